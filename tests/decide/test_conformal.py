import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nescio.decide import conformal
from nescio.types import InputError


def made(seed, n, classes=4):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes) * 0.5, n)
    return p, (p.cumsum(1) < rng.random((n, 1))).sum(1).clip(max=classes - 1)


def test_split_by_hand():
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.7, 0.3]])
    policy = conformal(p, [0, 0, 1, 0], coverage=0.6)  # scores 0.1, 0.2, 0.6, 0.3; the third of four
    assert policy.threshold == pytest.approx(0.3)
    sets = policy.sets([[0.75, 0.25], [0.5, 0.5], [0.2, 0.8]])
    assert sets.tolist() == [[True, False], [True, True], [False, True]]


def test_adaptive_by_hand():
    p = np.array([[0.5, 0.3, 0.2], [0.6, 0.3, 0.1], [0.4, 0.4, 0.2]])
    # sums down to the label: 0.5, 0.9, and 0.8 for a tie of two
    policy = conformal(p, [0, 1, 1], coverage=0.5, kind="adaptive")
    assert policy.threshold == pytest.approx(0.8)
    sets = policy.sets([[0.45, 0.34, 0.21], [0.4, 0.3, 0.3], [0.9, 0.05, 0.05]])
    assert sets.tolist() == [[True, True, False], [True, False, False], [True, False, False]]


@pytest.mark.parametrize("kind", ["split", "adaptive"])
def test_with_too_few_examples_every_class_is_in_the_set(kind):
    p, y = made(0, 8)
    policy = conformal(p, y, 0.9, kind)
    assert policy.threshold is None and policy.sets(p).all()
    assert "With 8 examples only the set of all 4 classes" in str(policy)
    assert "With 1 example only the set" in str(conformal(p[:1], y[:1], 0.9, kind))
    assert conformal(*made(0, 9), 0.9, kind).threshold is not None


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(["split", "adaptive"]), st.sampled_from([0.5, 0.8, 0.9]))
def test_rank_order_and_relabelling(seed, kind, coverage):
    p, y = made(seed, 30)
    p[:5] = p[:5].round(1)
    p[:5] /= p[:5].sum(1, keepdims=True)
    policy = conformal(p, y, coverage, kind)
    own = policy.sets(p).numpy()
    assert own[np.arange(30), y].mean() >= coverage  # the k-th smallest of n, k ≥ (n + 1) coverage, holds k of them
    assert own.any(1).all() and own[np.arange(30), p.argmax(1)].all()
    assert own.sum(1).mean() == policy.size
    order = np.random.default_rng(seed).permutation(30)
    assert conformal(p[order], y[order], coverage, kind) == policy
    classes = np.array(
        [2, 0, 3, 1]
    )  # the sums round otherwise in another order of equal classes: compare where none is
    other = conformal(p[5:][:, classes], np.argsort(classes)[y[5:]], coverage, kind)
    assert np.array_equal(
        other.sets(p[5:][:, classes]), conformal(p[5:], y[5:], coverage, kind).sets(p[5:])[:, classes]
    )


@pytest.mark.parametrize("kind", ["split", "adaptive"])
def test_new_inputs_are_covered_on_average(kind):
    covered = []
    for seed in range(200):
        p, y = made(seed, 49)
        covered.append(conformal(p[:19], y[:19], 0.8, kind).sets(p[19:])[np.arange(30), y[19:]].double().mean())
    assert np.mean(covered) >= 0.8 - 3 * np.std(covered) / np.sqrt(200)


def test_it_says_itself():
    text = str(conformal(*made(0, 100), about={"model": "cnn"}))
    assert "at least 90 % of new inputs like the 100 examples" in text and text.endswith("(model: cnn)")


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        ([[0.5, 0.4]], [0], "sum to one in each row, but the smallest is 0.4 and the sums reach from 0.9"),
        ([[1.5, -0.5]], [0], "of at least 0"),
        ([[np.nan, 1.0]], [0], "sum to one"),
        (np.zeros((0, 3)), [], "at least one input"),
        ([[1.0]], [0], "two classes"),
        ([0.5, 0.5], [0], r"shape \[N, C\]"),
        (np.full((2, 1, 2), 0.5), [0], "average over the samples first"),
        ([[0.5, 0.5]], [2], "class numbers from 0 to 1"),
        ([[0.5, 0.5]], [-1], "class numbers from 0 to 1"),
        ([[0.5, 0.5]], [True], "class numbers from 0 to 1"),
        ([[0.5, 0.5]], [0.5], "whole class numbers"),
        ([[0.5, 0.5]], [0, 1], "each of the 1 inputs, but got 2"),
        (torch.tensor([[0.5, 0.5]]).half(), [0], "float16; take the softmax in float32"),
        (torch.tensor([[0.5, 0.5]]).bfloat16(), [0], "bfloat16"),
        (np.array([[0.5, 0.5]], dtype=np.float16), [0], "float16"),
    ],
)
def test_bad_examples_are_refused(p, y, message):
    with pytest.raises(InputError, match=message):
        conformal(p, y)


def test_bad_settings_and_other_classes_are_refused():
    p, y = made(0, 30)
    with pytest.raises(InputError, match="expected 'split' or 'adaptive', but got 'raps'"):
        conformal(p, y, kind="raps")
    with pytest.raises(InputError, match="expected coverage to be a share"):
        conformal(p, y, coverage=1.0)
    with pytest.raises(InputError, match="expected 4 classes, but got 2"):
        conformal(p, y).sets([[0.5, 0.5]])
