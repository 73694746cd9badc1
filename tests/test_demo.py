import os
from pathlib import Path

import numpy as np
import pytest
import torch

import nescio
from nescio import demo as room
from nescio.data import NOT_DIGITS
from nescio.demo import demo, write_page
from nescio.types import InputError

TINY = {"inputs": 8, "epochs": 1, "progress": False}


@pytest.fixture(scope="module")
def comparison():
    return demo(**TINY)


OF_A_NETWORK = [info for info in nescio.methods() if info.requires != "posterior"]


def test_every_registered_method_for_one_network_is_compared_with_its_defaults(comparison):
    assert {"laplace", "mahalanobis", "knn"} <= {info.name for info in OF_A_NETWORK}
    assert [method.name for method in comparison.methods] == [*(info.name for info in OF_A_NETWORK), "guard"]
    for method, settings in zip(
        comparison.methods, [*(i.settings for i in OF_A_NETWORK), {"reference": 300}], strict=True
    ):
        assert method.settings == settings
        assert method.seconds_per_input > 0
        assert method.known.shape == (8,)
        assert {kind: scores.shape for kind, scores in method.foreign.items()} == dict.fromkeys(NOT_DIGITS, (4,))
        assert np.isfinite(method.all_foreign).all()


def test_known_and_foreign_are_equal_in_number_also_when_odd(comparison):
    assert len(comparison.known.pictures) == 8
    assert sum(len(pictures.pictures) for pictures in comparison.foreign) == 8
    shares = room._shares(9)
    assert sorted(shares.values()) == [4, 5]


def test_pictures_labels_and_scores_belong_together(comparison):
    assert comparison.known.labels is not None
    accuracy = (comparison.known.predicted == comparison.known.labels).mean()
    assert comparison.accuracy == pytest.approx(accuracy)
    doubt = next(method for method in comparison.methods if method.name == "max_probability")
    np.testing.assert_allclose(doubt.known, 1 - comparison.known.probability, atol=1e-5)
    for pictures in comparison.foreign:
        assert pictures.labels is None
        np.testing.assert_allclose(doubt.foreign[pictures.name], 1 - pictures.probability, atol=1e-5)
        assert np.abs(NOT_DIGITS[pictures.name].make(4, 0)[:, 0].numpy() - pictures.pictures).max() == 0


def test_a_seed_gives_the_same_scores_again_and_another_seed_others(comparison):
    before = torch.get_rng_state()
    again, other = (demo(**TINY, seed=seed, methods=["entropy", "exgrad"]) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    first = {method.name: method for method in comparison.methods}
    assert [method.name for method in again.methods] == ["entropy", "exgrad", "guard"]
    for same, different in zip(again.methods, other.methods, strict=True):
        one = first[same.name]
        np.testing.assert_array_equal(one.known, same.known)
        np.testing.assert_array_equal(one.all_foreign, same.all_foreign)
        assert not np.array_equal(one.known, different.known)
    assert again.featured == "guard"


def test_methods_are_fitted_to_what_the_network_was_trained_on_and_the_guard_to_digits_of_its_own(monkeypatch):
    fitted, reference = [], []
    own = room.Guard.fit

    def fit(model, method, data, **more):
        fitted.append((method.name, data))
        return nescio.scoring.fit(model, method, data, **more)

    monkeypatch.setattr(room, "fit", fit)
    monkeypatch.setattr(room.Guard, "fit", lambda self, x, **more: reference.append(x) or own(self, x, **more))
    found = demo(**TINY, methods=["entropy", "knn"])
    data = nescio.data.digits(held_out=8 + room.REFERENCE, seed=0)
    ((name, (x, y)),) = fitted
    assert name == "knn" and torch.equal(x, data.train.x) and torch.equal(y, data.train.y)
    assert torch.equal(reference[0], data.held_out.x[8:]) and len(reference[0]) == room.REFERENCE  # nor is it judged
    assert np.array_equal(found.known.pictures, data.held_out.x[:8, 0].numpy())


def test_the_page_begins_with_what_the_guard_says_of_some_pictures(comparison):
    front = comparison.front
    assert front["judged"] and front["headline"].endswith("300 digits of the reference.") and len(front["strip"]) == 16
    assert sum(front["counts"].values()) == 16
    kinds = {"a handwritten", "photo patch", "drawn letter"}
    assert {next(kind for kind in kinds if one["name"].startswith(kind)) for one in front["strip"]} == kinds
    assert front["lines"][0].startswith("In the whole test the guard calls ") and front["lines"][0].count(" of 8 ") == 2
    assert front["command"]["text"].startswith("nescio report --model")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_number_of_threads_comes_back_after_a_failure(monkeypatch, two_threads):
    seen = []

    def fail(*_):
        seen.append(torch.get_num_threads())
        raise KeyboardInterrupt

    monkeypatch.setattr(room, "_trained", fail)
    with pytest.raises(KeyboardInterrupt):
        demo(**TINY)
    assert seen == [1]
    assert torch.get_num_threads() == 2


def test_the_page_names_what_is_needed_to_repeat_it(comparison, tmp_path):
    write_page(comparison, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "nescio demo --seed 0 --inputs 8 --epochs 1" in text
    assert f"torch {torch.__version__}" in text
    assert all(NOT_DIGITS[kind].about in text for kind in NOT_DIGITS)
    assert all(f"<code>{info.name}</code>" in text for info in OF_A_NETWORK)
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
def test_nothing_half_written_stays(comparison, tmp_path, monkeypatch, failure):
    (tmp_path / "page.html").write_text("old")
    monkeypatch.setattr(room, "page", lambda comparison: "new" * 100)

    def fail(self, text, encoding):
        with self.open("w", encoding=encoding) as file:
            file.write(text[:100])
        raise failure

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(KeyboardInterrupt if failure is KeyboardInterrupt else InputError):
        write_page(comparison, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("settings", [{"inputs": 3}, {"inputs": 1001}, {"seed": -1}])
def test_impossible_sizes_are_refused_before_any_work(settings):
    with pytest.raises(InputError, match="expected a seed of at least 0 and 4 to 1000 inputs"):
        demo(**(TINY | settings))
