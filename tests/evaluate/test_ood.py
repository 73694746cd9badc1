import dataclasses
import math

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
    result = ood(known, foreign)
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
    assert ood(known, foreign) == ood(*shuffled)


@given(st.tuples(coarse, coarse))
def test_only_the_order_of_scores_matters(scores):
    known, foreign = map(np.array, scores)
    assert ood(known, foreign) == ood(np.exp(known), np.exp(foreign))


@given(pair)
def test_exchanged_sets_give_the_complement_and_are_not_flipped_back(scores):
    known, foreign = scores
    assert ood(known, foreign).auroc + ood(foreign, known).auroc == pytest.approx(1, abs=1e-12)


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
    ],
)
def test_errors_say_what_was_expected(measure, known, foreign, message):
    with pytest.raises(InputError, match=message):
        measure(known, foreign)
