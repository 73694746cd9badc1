"""Active learning: what is labelled when, and the ways to choose."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nescio.evaluate import active
from nescio.types import InputError


def test_the_highest_scores_are_labelled_and_the_model_is_the_one_just_trained() -> None:
    seen: list[list[int]] = []

    def train(indices: Any) -> tuple[int, Mapping[str, float]]:
        seen.append(indices.tolist())
        return len(seen), {"accuracy": len(indices) / 10}

    def score(model: int, indices: Any) -> torch.Tensor:
        assert model == len(seen)
        return torch.tensor(indices % 7 * model)  # integers, and never negative

    cycles: list[int] = []
    found = active.active_learning(
        train, score, [100, 101], np.arange(20), acquired=2, cycles=3, on_cycle=lambda n, m: cycles.append(n)
    )
    assert cycles == [1, 2, 3] and found.labelled.tolist() == [2, 4, 6]
    assert seen[0] == [100, 101] and {6, 13} == set(seen[1][2:]) and set(found.chosen[0]) == {6, 13}
    assert set(seen[2][4:]) <= {5, 12, 19} and len(found.chosen) == 2
    assert found.measured["accuracy"].tolist() == [0.2, 0.4, 0.6] and found.mean("accuracy") == pytest.approx(0.4)


def test_choosing_by_chance_asks_for_no_score() -> None:
    def forbidden(*_: Any) -> Any:
        raise AssertionError

    runs = [
        active.active_learning(
            lambda i: (None, {}), forbidden, [50], np.arange(20), acquired=5, cycles=3, choose="random", seed=seed
        )
        for seed in (0, 0, 1)
    ]
    chosen = [np.concatenate(run.chosen).tolist() for run in runs]
    assert chosen[0] == chosen[1] != chosen[2] and len(set(chosen[0])) == 10


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30), st.data())
def test_top_takes_the_highest_whatever_the_ties(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(values)))
    places = active.top(values, count, seed=data.draw(st.integers(0, 3)))
    assert len(set(places.tolist())) == count
    assert [values[i] for i in places] == sorted(values, reverse=True)[:count]


def test_equal_scores_are_not_taken_by_their_place() -> None:
    firsts = {int(active.top(np.zeros(50), 1, seed=seed)[0]) for seed in range(20)}
    assert len(firsts) > 10


def test_diverse_leaves_copies_out() -> None:
    features = np.array([[0.0, 0], [0, 0.01], [0, 0.02], [5, 0], [9, 9]])
    scores = np.array([1.0, 0.99, 0.98, 0.5, 0.0])
    assert active.diverse(scores, features, 2, among=2).tolist() == [0, 3]  # of the four highest, the farthest
    assert active.diverse(scores, features, 2, among=3).tolist() == [0, 4]
    assert sorted(active.diverse(scores, torch.tensor(features), 5).tolist()) == [0, 1, 2, 3, 4]


def test_identical_features_are_still_chosen_once_each() -> None:
    assert sorted(active.diverse(np.arange(4.0), np.zeros((4, 2)), 4).tolist()) == [0, 1, 2, 3]


def test_the_papers_split() -> None:
    labels = np.tile(np.arange(10), 2500)
    split = active.by_index(labels, 20, seed=1)
    assert len(split.initial) == 20 and split.initial.max() < 10_000
    assert np.bincount(labels[split.initial]).tolist() == [2] * 10
    assert (split.validation[0], split.validation[-1], split.pool[0], split.pool[-1]) == (
        10_000,
        19_999,
        20_000,
        24_999,
    )
    assert active.by_index(labels, 20, seed=2).initial.tolist() != split.initial.tolist()


def test_scores_and_features_may_be_tensors() -> None:
    found = active.diverse(torch.tensor([1.0, 2.0, 3.0]), torch.eye(3), 2)
    assert found.tolist() == active.diverse([1.0, 2.0, 3.0], np.eye(3), 2).tolist()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: active.top([1.0], 2), "1 to 1"),
        (lambda: active.top([float("nan")], 1), "NaN"),
        (lambda: active.random(3, 0), "1 to 3"),
        (lambda: active.diverse([1.0, 2.0], np.zeros((3, 2)), 1), r"\[2, D\]"),
        (lambda: active.balanced([0, 1, 0, 1], 3), "multiple of the 2 classes"),
        (lambda: active.balanced([0, 1, 0, 0], 4), "at least 2 inputs of class 1"),
        (lambda: active.balanced([0, 1, 0, 1], 2, among=[0, 7]), "among: expected indices from 0 to 3"),
        (lambda: active.balanced([0, 1, 0, 1], 2, among=[-1, 0]), "among: expected indices from 0 to 3"),
        (lambda: active.balanced([0, 1, 0, 1], 2.0), "expected count to be a whole number"),
        (lambda: active.top([1.0, 2.0], 1.5), "1 to 2"),
        (lambda: active.diverse([1.0, 2.0], np.eye(2), 1, among=0), "expected among to be a whole number"),
        (lambda: active.by_index(np.zeros(5), 1), "more than 20000"),
        (lambda: _run(initial=[0], pool=[0, 1]), "in both"),
        (lambda: _run(initial=[], pool=[0, 1]), "initial: expected a list"),
        (lambda: _run(initial=[5], pool=[0, 1], cycles=4), "a pool for all"),
        (lambda: _run(initial=[5], pool=[0, 1], cycles=1.5), "expected cycles to be a whole number"),
        (lambda: _run(initial=[5], pool=[0, 1], acquired=1.5), "expected acquired to be a whole number"),
        (lambda: _run(initial=[5], pool=[0, 1], seed=-3), "expected seed to be a whole number"),
        (lambda: _run(initial=[5], pool=[0, 1], choose="best"), "'top', 'random' or 'diverse'"),
        (lambda: _run(initial=[5], pool=[0, 1], choose="diverse"), "features"),
        (lambda: _run(initial=[5], pool=[0, 1], score=lambda m, i: [1.0]), "2 numbers"),
    ],
)
def test_what_cannot_be_done_is_said(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


def _run(*, initial: Any, pool: Any, score: Any = lambda m, i: i, **settings: Any) -> Any:
    given = {"acquired": 1, "cycles": 2, **settings}
    return active.active_learning(lambda i: (None, {"a": 1.0}), score, initial, pool, **given)
