import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nescio.evaluate import accuracy_rejection, raulc, risk_coverage
from nescio.types import InputError


def cases(size, values):
    return st.integers(2, size).flatmap(
        lambda n: st.tuples(
            st.lists(values.map(float), min_size=n, max_size=n), st.lists(st.booleans(), min_size=n, max_size=n)
        )
    )


ties = cases(6, st.integers(0, 2))
coarse = cases(40, st.integers(-3, 3))
fine = cases(40, st.floats(-1e6, 1e6))
mixed = st.one_of(coarse, fine)


def plain(right):
    """AULC and AURC of answers in the given order, by the definition and a loop; AULC is None when all are wrong."""
    accuracy = [sum(right[: i + 1]) / (i + 1) for i in range(len(right))]
    aurc = sum(1 - a for a in accuracy) / len(right)
    return sum(a / accuracy[-1] for a in accuracy) / len(right) - 1 if any(right) else None, aurc


def test_a_case_worked_by_hand():
    # right, wrong, right: accuracies 1, 1/2, 2/3; the perfect order has 1, 1, 2/3
    uncertainty, correct = [0.3, 0.1, 0.2], [1, 1, 0]
    aulc, best = (1 + 0.5 + 2 / 3) / 3 / (2 / 3) - 1, (1 + 1 + 2 / 3) / 3 / (2 / 3) - 1
    assert raulc(uncertainty, correct) == pytest.approx(aulc / best, abs=1e-12)
    curve = risk_coverage(uncertainty, correct)
    np.testing.assert_allclose(curve.coverage, [1 / 3, 2 / 3, 1], atol=1e-15)
    np.testing.assert_allclose(curve.risk, [0, 1 / 2, 1 / 3], atol=1e-15)
    np.testing.assert_array_equal(curve.thresholds, [0.1, 0.2, 0.3])
    assert curve.aurc == pytest.approx((0 + 1 / 2 + 1 / 3) / 3, abs=1e-12)
    assert curve.eaurc == pytest.approx((0 + 1 / 2 + 1 / 3) / 3 - (1 / 3) / 3, abs=1e-12)
    rejection = accuracy_rejection(uncertainty, correct)
    np.testing.assert_allclose(rejection.rejected, [0, 1 / 3, 2 / 3], atol=1e-15)
    np.testing.assert_allclose(rejection.accuracy, [2 / 3, 1 / 2, 1], atol=1e-15)
    np.testing.assert_array_equal(rejection.thresholds, [0.3, 0.2, 0.1])
    assert rejection.area == pytest.approx((1 + 1 / 2 + 2 / 3) / 3, abs=1e-12)


def test_ties_worked_by_hand():
    # a right and a wrong answer tie, then a right one: A = 1/2, 1/2, 2/3 on average over both orders
    curve = risk_coverage([1, 1, 2], [True, False, True])
    np.testing.assert_array_equal(curve.coverage, [2 / 3, 1])
    np.testing.assert_array_equal(curve.risk, [1 / 2, 1 / 3])
    assert curve.aurc == pytest.approx((1 / 2 + 1 / 2 + 1 / 3) / 3, abs=1e-12)


@settings(max_examples=40)
@given(ties)
def test_equals_the_mean_over_all_orders_of_equal_uncertainties(case):
    uncertainty, correct = case
    orders = [
        [correct[i] for i in order]
        for order in itertools.permutations(range(len(correct)))
        if all(uncertainty[i] <= uncertainty[j] for i, j in itertools.pairwise(order))
    ]
    aulcs, aurcs = zip(*map(plain, orders), strict=True)
    best_aulc, best_aurc = plain(sorted(correct, reverse=True))
    curve = risk_coverage(uncertainty, correct)
    assert curve.aurc == pytest.approx(np.mean(aurcs), abs=1e-12)
    assert curve.eaurc == pytest.approx(np.mean(aurcs) - best_aurc, abs=1e-12)
    assert accuracy_rejection(uncertainty, correct).area == pytest.approx(1 - np.mean(aurcs), abs=1e-12)
    if any(correct) and not all(correct):
        assert raulc(uncertainty, correct) == pytest.approx(np.mean(aulcs) / best_aulc, abs=1e-12)


@settings(max_examples=50)
@given(mixed)
def test_the_points_of_the_curves_are_those_of_a_loop_over_thresholds(case):
    uncertainty, correct = map(np.array, case)
    curve, rejection = risk_coverage(*case), accuracy_rejection(*case)
    np.testing.assert_array_equal(curve.thresholds, sorted(set(case[0])))
    np.testing.assert_allclose(curve.coverage, [np.mean(uncertainty <= t) for t in curve.thresholds], atol=1e-15)
    np.testing.assert_allclose(curve.risk, [1 - correct[uncertainty <= t].mean() for t in curve.thresholds], atol=1e-12)
    np.testing.assert_allclose(rejection.rejected, 1 - curve.coverage[::-1], atol=1e-15)
    np.testing.assert_allclose(rejection.accuracy, 1 - curve.risk[::-1], atol=1e-15)
    np.testing.assert_array_equal(rejection.thresholds, curve.thresholds[::-1])


@given(mixed)
def test_bounds(case):
    uncertainty, correct = case
    curve = risk_coverage(uncertainty, correct)
    assert 0 <= curve.aurc <= 1
    assert -1e-12 <= curve.eaurc <= curve.aurc + 1e-12
    assert curve.coverage[-1] == 1
    assert accuracy_rejection(uncertainty, correct).rejected[0] == 0
    if any(correct) and not all(correct):
        assert raulc(uncertainty, correct) <= 1 + 1e-12


@settings(max_examples=50)
@given(mixed, st.randoms(use_true_random=False))
def test_the_order_of_inputs_never_matters(case, random):
    order = random.sample(range(len(case[0])), len(case[0]))
    shuffled = [[values[i] for i in order] for values in case]
    for measure in (risk_coverage, accuracy_rejection):
        there, back = measure(*case), measure(*shuffled)
        for field in dataclasses.fields(there):
            np.testing.assert_array_equal(getattr(there, field.name), getattr(back, field.name))
    if any(case[1]) and not all(case[1]):
        assert raulc(*case) == raulc(*shuffled)


@given(coarse)
def test_only_the_order_of_uncertainties_matters(case):
    uncertainty, correct = np.array(case[0]), case[1]
    there, back = risk_coverage(uncertainty, correct), risk_coverage(np.exp(uncertainty), correct)
    assert (there.aurc, there.eaurc) == (back.aurc, back.eaurc)
    np.testing.assert_array_equal(there.risk, back.risk)
    if any(correct) and not all(correct):
        assert raulc(uncertainty, correct) == raulc(np.exp(uncertainty), correct)


def test_perfect_chance_and_reversed():
    correct = np.r_[np.ones(70), np.zeros(30)]
    assert raulc(1 - correct, correct) == pytest.approx(1, abs=1e-12)  # ties among the right alone cost nothing
    assert raulc(np.arange(100), correct) == pytest.approx(1, abs=1e-12)
    assert risk_coverage(np.arange(100), correct).eaurc == pytest.approx(0, abs=1e-12)
    assert raulc(np.zeros(100), correct) == pytest.approx(0, abs=1e-12)
    assert raulc(-np.arange(100), correct) < -0.5  # never turned round
    assert risk_coverage(np.zeros(100), correct).aurc == pytest.approx(0.3, abs=1e-12)


def test_all_right_or_all_wrong():
    with pytest.raises(InputError, match="correct: expected some right and some wrong answers but all 3 are right"):
        raulc([1, 2, 3], [1, 1, 1])
    with pytest.raises(InputError, match=r"all 2 are wrong; .* rAULC is not defined"):
        raulc([1, 2], [False, False])
    right, wrong = risk_coverage([1, 2], [1, 1]), risk_coverage([1, 2], [0, 0])
    assert (right.aurc, right.eaurc, wrong.aurc, wrong.eaurc) == (0, 0, 1, 0)
    assert accuracy_rejection([1, 2], [1, 1]).area == 1


def test_takes_tensors_of_any_precision_and_any_kind_of_flags():
    uncertainty, correct = np.array([0.5, 0.25, 2.0, 2.0]), np.array([True, True, False, True])
    expected = raulc(uncertainty, correct)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        tensor = torch.tensor(uncertainty, dtype=dtype, requires_grad=True)
        for kind in (torch.bool, torch.int64, torch.uint8, dtype):
            assert raulc(tensor, torch.from_numpy(correct).to(kind)) == expected
    assert raulc(uncertainty.tolist(), correct.tolist()) == expected
    assert risk_coverage([-math.inf, 0.0, math.inf, math.inf], [1, 1, 0, 1]).aurc > 0


@pytest.mark.parametrize("measure", [raulc, risk_coverage, accuracy_rejection])
@pytest.mark.parametrize(
    ("uncertainty", "correct", "message"),
    [
        ([], [], "uncertainty: expected at least one score but got none"),
        ([1.0, math.nan], [1, 0], "uncertainty: .*1 of 2 scores are NaN"),
        ([[1.0], [2.0]], [1, 0], r"uncertainty: .*shape \[N\], but got shape \[2, 1\]"),
        ([1.0, 2.0], [1], "correct: expected one for each of the 2 inputs but got 1"),
        ([1.0, 2.0], [0, 2], r"correct: expected booleans, or 0 and 1, but 1 of 2 are neither \(at 1: 2\)"),
        ([1.0, 2.0], [0.5, math.nan], "2 of 2 are neither"),
        ([1.0, 2.0], ["yes", "no"], "correct: expected booleans, one for each input"),
        ([1.0, 2.0], [], "correct: expected at least one flag but got none"),
    ],
)
def test_errors_say_what_was_expected(measure, uncertainty, correct, message):
    with pytest.raises(InputError, match=message):
        measure(uncertainty, correct)


@pytest.mark.parametrize("measure", [risk_coverage, accuracy_rejection])
def test_results_are_frozen(measure):
    with pytest.raises(dataclasses.FrozenInstanceError):
        measure([1.0, 2.0], [1, 0]).thresholds = None
