import dataclasses
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from nescio.evaluate import ood, roc
from nescio.types import InputError

coarse = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=40)  # few values: ties everywhere
fine = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=40)
pair = st.one_of(st.tuples(coarse, coarse), st.tuples(fine, fine))


def joined(known, foreign):
    return np.r_[np.zeros(len(known)), np.ones(len(foreign))], np.r_[known, foreign]


def test_a_case_worked_by_hand():
    # pairs won by the ood side: 3 > 1, 2; 2 > 1 and ties with 2: 3.5 of 4
    result = ood([1.0, 2.0], [2.0, 3.0])
    assert result.auroc == 3.5 / 4
    # thresholds 3 (1 of 1 right, recall ½), then 2 (2 of 3 right, recall 1)
    assert result.aupr == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert result.fpr95 == 0.5  # all of the OOD needs the threshold 2, and one of the two ID scores is ≥ 2
    assert (result.n_id, result.n_ood) == (2, 2)


@given(pair)
def test_equals_scikit_learn_also_with_ties(scores):
    known, foreign = scores
    labels, values = joined(known, foreign)
    result = ood(known, foreign, bootstrap=0)
    assert result.auroc == pytest.approx(roc_auc_score(labels, values), abs=1e-12)
    assert result.aupr == pytest.approx(average_precision_score(labels, values), abs=1e-12)
    fpr, tpr, thresholds = roc_curve(labels, values, drop_intermediate=False)
    assert result.fpr95 == pytest.approx(fpr[np.argmax(tpr >= 0.95 - 1e-12)], abs=1e-12)
    curve = roc(known, foreign)
    np.testing.assert_allclose(curve.false_positive_rate, fpr, atol=1e-12)
    np.testing.assert_allclose(curve.true_positive_rate, tpr, atol=1e-12)
    np.testing.assert_allclose(curve.thresholds[1:], thresholds[1:])
    assert curve.thresholds[0] == math.inf


@given(pair, st.randoms(use_true_random=False))
def test_the_order_of_inputs_never_matters(scores, random):
    known, foreign = scores
    shuffled = random.sample(known, len(known)), random.sample(foreign, len(foreign))
    assert ood(known, foreign, bootstrap=100) == ood(*shuffled, bootstrap=100)


@given(st.tuples(coarse, coarse))
def test_only_the_order_of_scores_matters(scores):
    known, foreign = map(np.array, scores)
    assert ood(known, foreign, bootstrap=100) == ood(np.exp(known), np.exp(foreign), bootstrap=100)


@given(pair)
def test_exchanged_sets_give_the_complement_and_are_not_flipped_back(scores):
    known, foreign = scores
    there, back = ood(known, foreign, bootstrap=0), ood(foreign, known, bootstrap=0)
    assert there.auroc + back.auroc == pytest.approx(1, abs=1e-12)


def test_a_score_that_is_wrong_throughout_gets_zero():
    result = ood([3.0, 4.0], [1.0, 2.0])
    assert result.auroc == 0.0
    assert result.fpr95 == 1.0


def test_fpr95_counts_exactly_at_95_percent():
    foreign = np.r_[np.full(19, 2.0), 0.0]  # 19 of 20 are exactly 95 %
    assert ood([1.0, 3.0], foreign).fpr95 == 0.5
    foreign = np.r_[np.full(94, 2.0), np.zeros(6)]  # 94 % will not do: the threshold falls to 0
    assert ood([1.0, 3.0], foreign).fpr95 == 1.0


def test_takes_lists_arrays_tensors_and_infinities():
    expected = ood([0.0, 1.0], [0.5, 2.0])
    assert ood(np.array([0.0, 1.0], dtype=np.float32), torch.tensor([0.5, 2.0], dtype=torch.bfloat16)) == expected
    assert ood(torch.tensor([0.0, 1.0], requires_grad=True), (0.5, 2)) == expected
    assert ood([0.0, -math.inf], [math.inf, 1.0]).auroc == 1.0


def test_results_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ood([0.0], [1.0]).auroc = 1.0


@pytest.mark.parametrize("measure", [ood, roc])
@pytest.mark.parametrize(
    ("known", "foreign", "message"),
    [
        ([], [1.0], "id_scores: expected at least one score but got none"),
        ([1.0], torch.empty(0), "ood_scores: expected at least one score but got none"),
        ([1.0, float("nan")], [1.0], r"id_scores: .*1 of 2 scores are NaN \(at 1\)"),
        ([1.0], np.full(9, np.nan), r"9 of 9 scores are NaN \(at 0, 1, 2, 3, 4, …\)"),
        ([[1.0], [2.0]], [1.0], r"shape \[N\], but got shape \[2, 1\]"),
        (3.0, [1.0], r"shape \[N\], but got shape \[\]"),
        (["high"], [1.0], "id_scores: expected real numbers"),
        ([1j], [1.0], "complex numbers have no order"),
        (["1.5"], [1.0], "<U3 is not a type of numbers"),
        ([torch.tensor(1.0, requires_grad=True)], [1.0], "id_scores: expected real numbers"),
    ],
)
def test_errors_say_what_was_expected(measure, known, foreign, message):
    with pytest.raises(InputError, match=message):
        measure(known, foreign)


def normal_scores(n, m, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.normal(1.0, size=m)


def slow_intervals(known, foreign, resamples, confidence, seed):
    """One resample after another, each scored by scikit-learn from its own scores."""
    known, foreign = np.sort(known)[::-1], np.sort(foreign)[::-1]
    id_rng, ood_rng = np.random.default_rng(seed).spawn(2)
    figures = []
    for _ in range(resamples):
        u = known[id_rng.integers(known.size, size=known.size)]
        v = foreign[ood_rng.integers(foreign.size, size=foreign.size)]
        labels, values = joined(u, v)
        fpr95 = min(np.mean(u >= t) for t in v if np.mean(v >= t) >= 0.95 - 1e-12)
        figures.append([roc_auc_score(labels, values), average_precision_score(labels, values), fpr95])
    return np.quantile(figures, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0).T


@pytest.mark.parametrize(("n", "m", "digits"), [(30, 50, 16), (40, 25, 0), (1, 3, 16)])
def test_intervals_equal_a_plain_bootstrap(monkeypatch, n, m, digits):
    known, foreign = (np.round(values, digits) for values in normal_scores(n, m))
    monkeypatch.setattr(
        sys.modules["nescio.evaluate.ood"], "_BLOCK", 7 * 80
    )  # several blocks, and one that is not full
    result = ood(known, foreign, bootstrap=60, confidence=0.9, seed=3)
    found = [result.auroc_interval, result.aupr_interval, result.fpr95_interval]
    np.testing.assert_allclose(found, slow_intervals(known, foreign, 60, 0.9, 3), rtol=0, atol=1e-12)


def test_intervals_hold_the_figure_and_shrink_with_more_inputs():
    widths = []
    for n in (50, 200, 800):
        result = ood(*normal_scores(n, n))
        for name in ("auroc", "aupr", "fpr95"):
            low, high = getattr(result, f"{name}_interval")
            assert 0 <= low < getattr(result, name) < high <= 1
        widths.append(np.diff(result.auroc_interval)[0])
    # the width falls like 1/√n: a half for four times as many
    assert 1.6 < widths[0] / widths[1] < 2.5
    assert 1.6 < widths[1] / widths[2] < 2.5


def test_the_width_is_what_theory_says():
    # DeLong, DeLong and Clarke-Pearson (1988): the variance of the AUROC from the placements of either set
    known, foreign = normal_scores(300, 100)
    wins = (foreign[:, None] > known[None, :]).astype(float)
    error = math.sqrt(wins.mean(1).var(ddof=1) / 100 + wins.mean(0).var(ddof=1) / 300)
    low, high = ood(known, foreign, bootstrap=4000).auroc_interval
    assert (high - low) / (2 * 1.96) == pytest.approx(error, rel=0.07)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    truth = 0.5 * (1 + math.erf(1 / 2))  # of N(1, 1) above N(0, 1)
    held = 0
    for seed in range(300):
        low, high = ood(*normal_scores(80, 80, seed), bootstrap=200, confidence=0.9).auroc_interval
        held += low <= truth <= high
    assert 0.84 < held / 300 < 0.95


def test_seeds():
    scores = normal_scores(40, 40)
    assert ood(*scores, seed=1) == ood(*scores, seed=1)
    assert ood(*scores, seed=1).auroc_interval != ood(*scores, seed=2).auroc_interval
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    ood(*scores)
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


def test_wider_with_more_confidence_and_none_when_not_asked_for():
    scores = normal_scores(40, 40)
    narrow, wide = (ood(*scores, confidence=confidence).auroc_interval for confidence in (0.5, 0.99))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    result = ood(*scores, bootstrap=0)
    assert (result.auroc_interval, result.aupr_interval, result.fpr95_interval) == (None, None, None)
    assert dataclasses.astuple(result)[:5] == dataclasses.astuple(ood(*scores))[:5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap": -1}, "expected bootstrap to be a whole number of at least 0, got -1"),
        ({"bootstrap": 10.0}, "expected bootstrap to be a whole number"),
        ({"bootstrap": True}, "expected bootstrap to be a whole number"),
        ({"bootstrap": 39}, r"at least 40 resamples .* 0.95 \(or 0 for none\) but got 39"),
        ({"bootstrap": 19, "confidence": 0.9}, "at least 20 resamples"),
        ({"confidence": 95}, "expected confidence to be a share above 0 and below 1, got 95"),
        ({"confidence": "high"}, "expected confidence to be a share"),
        ({"confidence": float("nan")}, "expected confidence to be a share"),
        ({"seed": -1}, "expected seed to be a whole number of at least 0"),
    ],
)
def test_errors_in_the_settings_of_the_bootstrap(settings, message):
    with pytest.raises(InputError, match=message):
        ood([0.0, 1.0], [1.0, 2.0], **settings)
    assert ood([0.0, 1.0], [1.0, 2.0], bootstrap=20, confidence=0.9).auroc_interval is not None
