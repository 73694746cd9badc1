import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from nescio.evaluate import brier, ece, mce, nll, reliability
from nescio.types import InputError

MEASURES = [ece, mce, nll, brier]


def binary(confidences, right):
    """Two classes: class 0 is predicted with the given confidences (≥ ½), and right or wrong as told."""
    c = np.asarray(confidences, dtype=float)
    return np.stack([c, 1 - c], 1), 1 - np.asarray(right, dtype=int)


def drawn(n, classes, seed=0, sharpness=1.0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 1.0 / sharpness), size=n)
    labels = np.where(rng.random(n) < 0.5, p.argmax(1), rng.integers(classes, size=n))
    return p, labels


@st.composite
def cases(draw):
    """Probabilities from few values, so that confidences tie with each other and with the edges of bins."""
    classes = draw(st.integers(2, 4))
    rows = st.lists(st.integers(0, 5), min_size=classes, max_size=classes).filter(any)
    p = np.array(draw(st.lists(rows, min_size=1, max_size=30)), dtype=float)
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=len(p), max_size=len(p)))
    return p / p.sum(1, keepdims=True), np.array(labels)


def plain_bins(confidence, bins, mode):
    """The bin of each confidence, by the definition and a loop."""
    if mode == "width":
        edges = [m / bins for m in range(bins + 1)]
    else:
        rising = sorted(confidence)
        edges = [0.0, *(rising[math.ceil(m * len(rising) / bins) - 1] for m in range(1, bins)), 1.0]
    return [
        next((m for m in range(bins) if edges[m] < c <= edges[m + 1]), 0 if c <= edges[1] else bins - 1)
        for c in confidence
    ]


def plain_gaps(p, labels, bins, mode):
    confidence, right = p.max(1), p.argmax(1) == labels
    place = np.array(plain_bins(confidence, bins, mode))
    return [
        ((place == m).mean(), abs(confidence[place == m].mean() - right[place == m].mean()))
        for m in range(bins)
        if (place == m).any()
    ]


def test_a_case_worked_by_hand():
    # five bins of width 0.2: (0.4, 0.6] holds 0.6 and 0.5, (0.6, 0.8] holds 0.8, (0.8, 1] holds 0.9 and 1
    p, labels = binary([0.6, 0.5, 0.8, 0.9, 1.0], [1, 0, 0, 1, 1])
    found = reliability(p, labels, bins=5)
    np.testing.assert_array_equal(found.count, [0, 0, 2, 1, 2])
    np.testing.assert_allclose(found.lower, [0, 0.2, 0.4, 0.6, 0.8], atol=1e-15)
    np.testing.assert_allclose(found.upper, [0.2, 0.4, 0.6, 0.8, 1.0], atol=1e-15)
    np.testing.assert_allclose(found.confidence, [math.nan, math.nan, 0.55, 0.8, 0.95], atol=1e-12)
    np.testing.assert_allclose(found.accuracy, [math.nan, math.nan, 0.5, 0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(found.gap, [math.nan, math.nan, 0.05, 0.8, -0.05], atol=1e-12)
    assert found.ece == pytest.approx((2 * 0.05 + 0.8 + 2 * 0.05) / 5, abs=1e-12)
    assert found.mce == pytest.approx(0.8, abs=1e-12)
    assert found.mean_accuracy == pytest.approx(0.6)
    assert found.mean_confidence == pytest.approx(3.8 / 5)
    assert (ece(p, labels, 5), mce(p, labels, 5)) == (found.ece, found.mce)
    # the label's probabilities are 0.6, 0.5, 0.2, 0.9 and 1
    assert nll(p, labels) == pytest.approx(-math.log(0.6 * 0.5 * 0.2 * 0.9) / 5, abs=1e-12)
    # two classes, so each input counts twice (1 − p)²
    assert brier(p, labels) == pytest.approx(2 * (0.16 + 0.25 + 0.64 + 0.01 + 0) / 5, abs=1e-12)


@pytest.mark.parametrize("bins", [1, 2, 3, 7, 10, 15, 100])
def test_an_edge_belongs_to_the_bin_below_it(bins):
    edges = np.arange(1, bins + 1) / bins
    edges = edges[edges >= 0.5]
    p, labels = binary(edges, np.ones(len(edges), int))
    found = reliability(p, labels, bins)
    np.testing.assert_array_equal(found.count, (found.upper >= 0.5).astype(int))  # 0.07·100 is above 7 in float64
    assert found.count[-1] == 1  # the last bin is never skipped
    p, labels = binary(np.nextafter(edges[:-1], 1), np.ones(len(edges) - 1, int))
    if len(labels):
        np.testing.assert_array_equal(reliability(p, labels, bins).count, (found.lower >= 0.5).astype(int))


def test_equal_mass_worked_by_hand():
    p, labels = binary([0.95, 0.55, 0.65, 0.75, 0.85], [1, 1, 0, 0, 1])
    found = reliability(p, labels, bins=2, mode="mass")  # the ⌈5/2⌉ = 3 lowest, and the rest
    np.testing.assert_array_equal(found.count, [3, 2])
    np.testing.assert_array_equal(found.lower, [0, 0.75])
    np.testing.assert_array_equal(found.upper, [0.75, 1])
    np.testing.assert_allclose(found.gap, [0.65 - 1 / 3, 0.9 - 1], atol=1e-12)
    assert found.ece == pytest.approx((3 * (0.65 - 1 / 3) + 2 * 0.1) / 5, abs=1e-12)


def test_equal_mass_never_parts_equal_confidences():
    p, labels = binary([0.6, 0.8, 0.8, 0.8, 0.8, 0.9], [1, 0, 0, 1, 1, 1])
    found = reliability(p, labels, bins=3, mode="mass")  # edges at the 2nd and 4th, both 0.8
    np.testing.assert_array_equal(found.count, [5, 1])
    np.testing.assert_array_equal(found.upper, [0.8, 1.0])
    alone = reliability(*binary([0.7] * 4, [1, 0, 0, 1]), bins=3, mode="mass")
    np.testing.assert_array_equal(alone.count, [4])


@pytest.mark.parametrize(("n", "bins"), [(100, 7), (60, 15), (5, 15), (1, 1)])
def test_equal_mass_bins_differ_by_at_most_one(n, bins):
    p, labels = drawn(n, 4)
    count = reliability(p, labels, bins, "mass").count
    assert len(count) == min(n, bins)
    assert count.sum() == n
    assert count.max() - count.min() <= 1


@pytest.mark.parametrize(("classes", "bins", "seed"), [(2, 15, 0), (5, 15, 1), (10, 10, 2), (3, 1, 3), (4, 37, 4)])
def test_equals_torchmetrics_and_scikit_learn(classes, bins, seed):
    from torchmetrics.classification import MulticlassCalibrationError  # takes seconds: not for every worker
    from torchmetrics.functional.classification.calibration_error import _ce_compute

    p, labels = drawn(500, classes, seed, sharpness=3)
    for measure, norm in ((ece, "l1"), (mce, "max")):
        theirs = MulticlassCalibrationError(num_classes=classes, n_bins=bins, norm=norm)
        expected = theirs(torch.from_numpy(p), torch.from_numpy(labels)).item()
        assert measure(p, labels, bins) == pytest.approx(expected, abs=2e-6)  # the metric rounds to float32
        confidence, right = torch.from_numpy(p.max(1)), torch.from_numpy(p.argmax(1) == labels).double()
        expected = _ce_compute(confidence, right, torch.linspace(0, 1, bins + 1, dtype=torch.float64), norm).item()
        assert measure(p, labels, bins) == pytest.approx(expected, abs=1e-9)  # what it stands on does not
    columns = list(range(classes))
    assert nll(p, labels) == pytest.approx(log_loss(labels, p, labels=columns), abs=1e-9)
    theirs = brier_score_loss(labels, p, labels=columns, scale_by_half=False)
    assert brier(p, labels) == pytest.approx(theirs, abs=1e-9)


@given(cases(), st.integers(1, 20), st.sampled_from(["width", "mass"]))
def test_equals_the_definition_also_with_ties(case, bins, mode):
    gaps = plain_gaps(*case, bins, mode)
    assert ece(*case, bins, mode) == pytest.approx(sum(share * gap for share, gap in gaps), abs=1e-12)
    assert mce(*case, bins, mode) == pytest.approx(max(gap for _, gap in gaps), abs=1e-12)


@given(cases(), st.integers(1, 20), st.sampled_from(["width", "mass"]))
def test_bounds(case, bins, mode):
    p, labels = case
    found = reliability(p, labels, bins, mode)
    assert abs(found.mean_confidence - found.mean_accuracy) - 1e-12 <= found.ece <= found.mce + 1e-12 <= 1 + 2e-12
    assert found.count.sum() == len(labels)
    assert len(found.count) == bins if mode == "width" else (found.count > 0).all() and len(found.count) <= bins
    assert 0 <= brier(p, labels) <= 2
    assert nll(p, labels) >= 0


@settings(max_examples=50)
@given(cases(), st.randoms(use_true_random=False), st.sampled_from(["width", "mass"]))
def test_the_order_of_inputs_never_matters(case, random, mode):
    p, labels = case
    order = random.sample(range(len(labels)), len(labels))
    there, back = reliability(p, labels, 4, mode), reliability(p[order], labels[order], 4, mode)
    for field in dataclasses.fields(there):
        np.testing.assert_array_equal(getattr(there, field.name), getattr(back, field.name))
    assert nll(p, labels) == nll(p[order], labels[order])
    assert brier(p, labels) == brier(p[order], labels[order])


def test_certain_and_right_is_perfect_and_certain_and_wrong_is_not():
    p = np.eye(3)
    assert [measure(p, [0, 1, 2]) for measure in MEASURES] == [0, 0, 0, 0]
    assert [measure(p, [1, 2, 0]) for measure in MEASURES] == [1, 1, math.inf, 2]


def test_the_lowest_of_equal_classes_is_predicted():
    p = [[0.25, 0.25, 0.25, 0.25], [0.1, 0.45, 0.45, 0.0]]
    assert reliability(p, [0, 1]).mean_accuracy == 1
    assert reliability(p, [3, 2]).mean_accuracy == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_of_any_precision_give_the_same_as_arrays(dtype):
    rng = np.random.default_rng(0)
    p, labels = rng.multinomial(8, np.full(4, 0.25), size=50) / 8, rng.integers(4, size=50)  # exact in every type
    tensor = torch.tensor(p, dtype=dtype, requires_grad=True)
    for measure in MEASURES:
        assert measure(tensor, torch.from_numpy(labels).to(torch.uint8)) == measure(p, labels)
        assert measure(p.tolist(), labels.tolist()) == measure(p, labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_takes_a_softmax_in_half_precision(dtype):
    logits = torch.randn(200, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    p, labels = logits.to(dtype).softmax(-1), logits.argmax(-1)
    assert p.double().sum(1).sub(1).abs().max() > 1e-8  # rows do not sum to 1 exactly
    wide = logits.to(dtype).double().softmax(-1)
    assert brier(p, labels) == pytest.approx(brier(wide, labels), rel=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("measure", [*MEASURES, reliability])
@pytest.mark.parametrize(
    ("p", "labels", "message"),
    [
        (np.full((4, 2, 3), 1 / 3), [0, 1], r"\[4, 2, 3\]; .*average them first: probabilities.mean\(0\)"),
        ([0.5, 0.5], [0], r"shape \[N, C\], .* but got shape \[2\]"),
        (np.empty((0, 3)), [], "probabilities: expected at least one row but got none"),
        ([[1.0], [1.0]], [0, 0], r"at least two classes but got shape \[2, 1\]; .*two columns"),
        ([[0.5, 0.5], [0.2, math.nan]], [0, 1], r"1 of 2 rows hold others \(row 1\)"),
        ([[math.inf, 0.0]], [0], "expected finite numbers that are at least 0"),
        ([[1.5, -0.5]], [0], "expected finite numbers that are at least 0"),
        ([[0.5, 0.5], [2.0, 3.0]], [0, 1], r"1 of 2 do not \(row 1; the first sums to 5\); .*logits.softmax\(-1\)"),
        (np.array([[0.5, 0.4998]]), [0], "rows that sum to 1"),
        (torch.tensor([[0.5, 0.49]], dtype=torch.float16), [0], "rows that sum to 1"),
        ([["a", "b"]], [0], "is not a type of numbers"),
        (np.eye(2), [0, 2], r"from 0 to 1 .*1 of 2 are not \(at 1: 2\); count classes from 0"),
        (np.eye(2), [-1, 0], r"at 0: -1"),
        (np.eye(2), [0.0, 1.0], "labels: expected class indices, .* but got float64"),
        (np.eye(2), np.array([True, False]), "but got bool"),
        (np.eye(2), [0], "labels: expected one for each of the 2 inputs but got 1"),
        (np.eye(2), np.eye(2, dtype=int), r"labels: expected one number for each input, shape \[N\], but got shape"),
    ],
)
def test_errors_say_what_was_expected(measure, p, labels, message):
    with pytest.raises(InputError, match=message):
        measure(p, labels)


@pytest.mark.parametrize("measure", [ece, mce, reliability])
def test_errors_in_the_settings(measure):
    with pytest.raises(InputError, match="expected bins to be a whole number of at least 1, got 0"):
        measure(np.eye(2), [0, 1], bins=0)
    with pytest.raises(InputError, match="expected bins to be a whole number"):
        measure(np.eye(2), [0, 1], bins=2.5)
    with pytest.raises(InputError, match=r"mode: expected \"width\" .* but got 'equal'"):
        measure(np.eye(2), [0, 1], mode="equal")


def test_arguments_are_left_alone_and_results_are_frozen():
    p, labels = drawn(20, 3)
    before = p.copy()
    for measure in MEASURES:
        measure(p, labels)
    np.testing.assert_array_equal(p, before)
    with pytest.raises(dataclasses.FrozenInstanceError):
        reliability(p, labels).ece = 0.0
