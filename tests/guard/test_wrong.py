import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import beta
from sklearn.isotonic import IsotonicRegression

from nescio.guard.wrong import LEAST, Mistakes, interval


def made(count, seed, levels=None):
    rng = np.random.default_rng(seed)
    doubt = rng.random(count) if levels is None else rng.integers(0, levels, count) / levels
    return torch.tensor(doubt), torch.tensor(rng.random(count) < doubt**2)


@settings(max_examples=12)
@given(st.integers(LEAST, 700), st.integers(0, 10_000))
def test_groups_are_those_of_isotonic_regression_on_the_bins(count, seed):
    doubt, wrong = made(count, seed)
    found = Mistakes.of(doubt, wrong)
    order = doubt.argsort()
    bins = np.array_split(wrong[order].double().numpy(), max(1, min(20, count // LEAST)))
    expected = IsotonicRegression().fit_transform(
        np.arange(len(bins)), [part.mean() for part in bins], sample_weight=[len(part) for part in bins]
    )
    steps = np.repeat(expected, [len(part) for part in bins])
    np.testing.assert_allclose(found(doubt[order]).probability.numpy(), steps, atol=1e-12)
    assert int(found.count.sum()) == count
    assert int(found.wrong.sum()) == int(wrong.sum())


@settings(max_examples=12)
@given(st.integers(LEAST, 300), st.integers(0, 1000))
def test_the_interval_is_that_of_clopper_and_pearson(count, seed):
    doubt, wrong = made(count, seed)
    found = Mistakes.of(doubt, wrong)
    answer = found(doubt)
    w = found.wrong[torch.searchsorted(found.bounds, doubt)].numpy()
    n = found.count[torch.searchsorted(found.bounds, doubt)].numpy()
    low = np.where(w == 0, 0.0, beta.ppf(0.05, w, n - w + 1))
    high = np.where(w == n, 1.0, beta.ppf(0.95, w + 1, n - w))
    np.testing.assert_allclose(answer.low.numpy(), low, atol=1e-6)
    np.testing.assert_allclose(answer.high.numpy(), high, atol=1e-6)


@settings(max_examples=12)
@given(st.integers(LEAST, 400), st.integers(0, 1000), st.sampled_from([1, 2, 7]))
def test_equal_doubt_gets_one_answer_and_the_order_of_the_inputs_does_not_matter(count, seed, levels):
    doubt, wrong = made(count, seed, levels)
    found = Mistakes.of(doubt, wrong)
    order = torch.tensor(np.random.default_rng(seed).permutation(count))
    again = Mistakes.of(doubt[order], wrong[order])
    points = torch.linspace(0, 1, 50, dtype=torch.float64)
    assert torch.equal(found(points).probability, again(points).probability)
    assert bool((found(points).probability.diff() >= 0).all())


@pytest.mark.parametrize("wrong", [False, True])
def test_all_right_or_all_wrong(wrong):
    found = Mistakes.of(torch.rand(60, dtype=torch.float64), torch.full((60,), wrong))
    answer = found(torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
    assert answer.probability.tolist() == [float(wrong)] * 3
    assert answer.low.tolist() == pytest.approx([0.05 ** (1 / 60) if wrong else 0.0] * 3, abs=1e-6)


def test_with_too_few_there_is_no_answer():
    assert Mistakes.of(torch.rand(LEAST - 1), torch.zeros(LEAST - 1, dtype=torch.bool)) is None


def test_the_intervals_are_computed_once_and_not_with_each_batch():
    found = Mistakes.of(*made(300, 0))
    first = found(torch.rand(5, dtype=torch.float64))
    computed = interval.cache_info().misses
    second = found(torch.rand(5, dtype=torch.float64))
    assert interval.cache_info().misses == computed
    assert first.low.shape == second.low.shape == (5,)
