import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nescio.decide import quantile, threshold, thresholds
from nescio.types import InputError

examples = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5).map(bool)), min_size=1, max_size=60)


def split(pairs):
    return np.array([s for s, _ in pairs], dtype=float), np.array([c for _, c in pairs])


def test_as_many_faultless_examples_as_the_rule_of_thumb_says_are_enough():
    assert threshold(np.arange(44), np.ones(44)).threshold is None
    policy = threshold(np.arange(45), np.ones(45))
    assert (policy.threshold, policy.coverage, policy.errors, policy.needed) == (44.0, 1.0, 0, 45)


def test_the_first_error_ends_what_can_be_promised_from_few_examples():
    correct = np.ones(60, dtype=bool)
    correct[50] = False  # 51 examples with one error: P(Bin(51, 0.05) ≤ 1) = 0.27
    policy = threshold(np.arange(60), correct)
    assert (policy.threshold, policy.accepted, policy.errors) == (49.0, 50, 0)
    correct[44] = False
    assert threshold(np.arange(60), correct).threshold is None


def test_levels_follow_the_fallback_procedure():
    """Against a plain loop with scipy's tails, where the first start fails and a later one passes."""
    rng = np.random.default_rng(3)
    n, risk, error = 1000, 0.1, 0.1
    seen = set()
    for trial in range(30):
        scores = rng.random(n)
        wrong = rng.random(n) < 0.05 + 0.1 * scores
        wrong[np.argsort(scores)[:3]] |= trial % 2 == 0  # errors at the very beginning
        errors = np.cumsum(wrong[np.argsort(scores)])
        level, best, part = 0.0, 0, error / 3
        for k in range(1, n + 1):
            level += part * ((k == 33) + (k == 125) + (k == 500))  # 0.9^33 ≤ 0.1/3
            if level and stats.binom.cdf(errors[k - 1], k, risk) <= level:
                best = k
            else:
                level = 0.0
        assert threshold(scores, ~wrong, risk).accepted == best
        seen.add(best > 500 and errors[32] > 0)
    assert seen == {True, False}


def test_ties_are_accepted_together():
    scores = np.r_[np.zeros(100), np.ones(100)]
    correct = np.r_[np.ones(100), np.zeros(60), np.ones(40)]
    policy = threshold(scores, correct)
    assert (policy.threshold, policy.accepted) == (0.0, 100)
    assert threshold(np.zeros(200), np.r_[np.ones(198), 0, 0]).accepted in (0, 200)


def test_no_promise_is_made_for_what_is_always_wrong():
    policy = threshold(np.arange(1000), np.zeros(1000))
    assert policy.threshold is None and policy.coverage == 0.0
    assert not policy.accept([-math.inf, 0.0, 5.0]).any()
    assert "No threshold can promise this with 1,000 examples" in str(policy)


def test_one_example_is_no_plural():
    assert "with 1 example: " in str(threshold([0.0], [False], 0.05))
    alone = threshold([0.0], [False], risk=0.95, confidence=0.9)
    assert "at least 1 example without" in str(alone) and "examples" not in str(alone)
    accepted = threshold([0.0], [True], risk=0.95, confidence=0.9)
    assert "like the 1 example, of which 1 (100 %) are accepted" in str(accepted)
    assert "like the 1 known one are" in str(quantile([0.0], keep=0.5))
    assert "keep 90 % with 1 example: " in str(quantile([0.0], keep=0.9))


@given(examples, st.randoms(use_true_random=False), st.sampled_from([0.05, 0.2, 0.5]))
def test_the_order_of_examples_never_matters(pairs, random, risk):
    assert threshold(*split(pairs), risk) == threshold(*split(random.sample(pairs, len(pairs))), risk)


def test_the_order_among_equal_scores_never_matters():
    rng = np.random.default_rng(0)
    accepted = set()
    for _ in range(60):
        scores, correct = rng.integers(0, 4, 120), rng.random(120) > 0.12
        policy = threshold(scores, correct, 0.2)
        order = np.lexsort((rng.random(120), correct, scores))
        assert policy == threshold(scores[order], correct[order], 0.2) == threshold(scores[::-1], correct[::-1], 0.2)
        accepted.add(policy.accepted > 0)
    assert accepted == {True, False}


@given(examples, st.sampled_from([0.1, 0.3, 0.6]))
def test_only_the_order_of_scores_matters(pairs, risk):
    scores, correct = split(pairs)
    one, other = threshold(scores, correct, risk), threshold(np.exp(scores), correct, risk)
    assert torch.equal(one.accept(scores), other.accept(np.exp(scores)))


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([30, 90, 210, 900]), st.booleans())
def test_a_higher_risk_or_less_confidence_never_accepts_less(seed, n, tied):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 9, n) if tied else rng.random(n)
    correct = rng.random(n) > 0.15 * rng.random() * (1 + scores)
    by_risk = [threshold(scores, correct, risk).accepted for risk in (0.02, 0.05, 0.06, 0.1, 0.2, 0.4)]
    assert by_risk == sorted(by_risk)
    by_confidence = [threshold(scores, correct, 0.1, c).accepted for c in (0.999, 0.95, 0.9, 0.5)]
    assert by_confidence == sorted(by_confidence)


@given(examples, st.sampled_from([0.2, 0.5]))
def test_counts_are_those_of_the_rule_applied(pairs, risk):
    scores, correct = split(pairs)
    policy = threshold(scores, correct, risk)
    accepted = policy.accept(scores).numpy()
    assert (policy.accepted, policy.errors) == (accepted.sum(), (~correct[accepted]).sum())
    assert policy.coverage == accepted.mean()
    assert policy.threshold is None or policy.threshold in scores


def violation(rates, n, risk, error):
    """The probability of a false promise for scores 0, 1, … of equal mass, over all samples of n, worked out in
    full."""
    worst = np.cumsum(rates) / np.arange(1, len(rates) + 1)
    total = 0.0
    cells = [(s, w) for s in range(len(rates)) for w in (False, True)]
    for sample in itertools.combinations_with_replacement(range(len(cells)), n):
        counts = np.bincount(sample, minlength=len(cells))
        chance = math.factorial(n) * math.prod(
            ((rates[s] if w else 1 - rates[s]) / len(rates)) ** int(c) / math.factorial(int(c))
            for (s, w), c in zip(cells, counts, strict=True)
        )
        scores = np.array([cells[i][0] for i in sample])
        wrong = np.array([cells[i][1] for i in sample])
        seeds = range(4)  # the mean over orders of equal scores
        for seed in seeds:
            policy = threshold(scores, ~wrong, risk, 1 - error, seed=seed)
            if policy.threshold is not None and worst[int(policy.threshold)] > risk + 1e-12:
                total += chance / len(seeds)
    return total


@pytest.mark.parametrize("rates", [(0.41, 0.41), (0.82, 0.0), (0.1, 0.9), (0.41, 0.0), (0.9, 0.0, 0.35)])
def test_every_sample_of_a_small_case_together_keeps_the_promise(rates):
    assert violation(rates, 5, 0.4, 0.3) <= 0.3
    assert violation((0.41, 0.41), 5, 0.4, 0.3) > 0.05  # so the sum is one of real violations


def test_needed_is_the_least_number_that_serves():
    for risk, confidence in ((0.05, 0.9), (0.01, 0.95), (0.3, 0.99), (0.002, 0.9)):
        needed = threshold([0.0], [True], risk, confidence).needed
        assert needed == math.ceil(math.log(1 - confidence) / math.log(1 - risk))
        assert threshold(np.arange(needed), np.ones(needed), risk, confidence).coverage == 1.0
        assert threshold(np.arange(needed - 1), np.ones(needed - 1), risk, confidence).threshold is None


def test_later_starts_lie_at_a_half_and_an_eighth():
    assert thresholds._starts(199) == [] and thresholds._starts(200) == [100]
    assert thresholds._starts(800) == [100, 400]


@pytest.mark.parametrize("n", [1, 9, 18, 19, 20, 100])
@pytest.mark.parametrize("keep", [0.5, 0.9, 0.95])
def test_quantile_is_the_conformal_rank(n, keep):
    scores = np.random.default_rng(n).permutation(n).astype(float)
    policy = quantile(scores, keep)
    k = math.ceil(round((n + 1) * keep, 9))
    assert policy.threshold == (float(k - 1) if k <= n else None)
    assert policy.coverage == (k / n if k <= n else 0)
    assert (policy.threshold is None) == (n < policy.needed)
    assert ("No threshold can promise" in str(policy)) == (k > n)


def test_quantile_accepts_equal_scores_together():
    policy = quantile(np.r_[np.zeros(50), np.ones(50)], 0.6)
    assert (policy.threshold, policy.coverage, policy.errors) == (1.0, 1.0, None)


@pytest.mark.parametrize(
    ("scores", "correct", "message"),
    [
        ([], [], "at least one score"),
        ([0.1, math.nan], [1, 1], r"1 of 2 are NaN or infinite \(at 1\)"),
        ([0.1, math.inf], [1, 1], "NaN or infinite"),
        ([[0.1]], [1], r"shape \[N\], but got shape \[1, 1\]"),
        ([0.1, 0.2], [1], "each of the 2 scores, but got 1"),
        ([0.1], [2], r"expected True or False"),
        ([0.1], [0.5], r"expected True or False"),
        ([0.1], [math.nan], r"expected True or False"),
        (["a"], [1], "expected real numbers"),
        ([[1, 2], [3]], [1], "expected real numbers"),
        ([1j], [1], "expected real numbers"),
    ],
)
def test_bad_examples_are_refused(scores, correct, message):
    with pytest.raises(InputError, match=message):
        threshold(scores, correct)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, math.nan, "0.1", None, True])
def test_bad_shares_are_refused(value):
    for call in (
        lambda: threshold([0.1], [1], risk=value),
        lambda: threshold([0.1], [1], confidence=value),
        lambda: quantile([0.1], keep=value),
    ):
        with pytest.raises(InputError, match="to be a share above 0 and below 1"):
            call()


def test_bad_scores_for_a_quantile_are_refused():
    with pytest.raises(InputError, match="scores_id: expected at least one"):
        quantile([])
    with pytest.raises(InputError, match="NaN"):
        quantile([math.nan])
    with pytest.raises(InputError, match="about: expected words by name"):
        quantile([1.0], about={"n": 3})


def test_how_many_examples_a_share_needs_is_exact_and_found_at_once():
    assert quantile([1.0], keep=1 - 1e-12).needed == 10**12 - 1
    assert quantile([1.0], keep=float(np.nextafter(1, 0))).needed == 10**16 - 1  # a search would never end
    assert [quantile([1.0], keep=k).needed for k in (0.1, 0.5, 0.9, 0.95)] == [1, 1, 9, 19]


def test_a_seed_below_zero_is_refused():
    with pytest.raises(InputError, match="expected seed to be a whole number of at least 0, got -1"):
        threshold([1.0], [True], seed=-1)
