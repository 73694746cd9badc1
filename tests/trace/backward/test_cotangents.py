"""Cotangents against plain formulas, and for logits so far apart that the plain formulas lose everything."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nescio.trace.backward import cotangents
from nescio.trace.backward.cotangents import Smoothing, build

SMOOTHINGS: list[Smoothing] = ["log", "mean"]


def logits(n: int, copies: int, classes: int, seed: int = 0, size: float = 2.0) -> Tensor:
    return size * torch.randn(n * copies, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(z: Tensor, smoothing: Smoothing) -> Tensor:
    """The smoothed log-probabilities [C] of one input's copies [copies, C], as the papers write them."""
    return z.log_softmax(1).mean(0) if smoothing == "log" else z.softmax(1).mean(0).log()


def plain(z: Tensor, copies: int, smoothing: Smoothing, row: str) -> Tensor:
    """The cotangents [K, N·copies, C] by autograd of the written objective."""
    columns = []
    for own in z.split(copies):
        own = own.clone().requires_grad_()
        smooth = objective(own, smoothing)
        p = own[0].detach().softmax(0)
        parts = {"classes": list(smooth), "uniform": [smooth.mean()], "expected": [(p * smooth).sum()]}[row]
        columns.append(torch.stack([torch.autograd.grad(s, own, retain_graph=True)[0] for s in parts]))
    return torch.cat(columns, 1)


def restored(found: cotangents.Cotangents, copies: int) -> Tensor:
    """Vectors times scale."""
    return found.vectors * found.scale.repeat_interleave(copies, 1).unsqueeze(2)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(2, 5), st.sampled_from(SMOOTHINGS), st.integers(0, 99))
def test_against_autograd(n: int, copies: int, classes: int, smoothing: Smoothing, seed: int) -> None:
    z = logits(n, copies, classes, seed)
    for row in cotangents.ROWS:
        found = build(row, z, copies, smoothing)
        assert found.vectors.shape == (cotangents.row_count(row, classes), n * copies, classes)
        assert found.scale.shape == (cotangents.row_count(row, classes), n)
        torch.testing.assert_close(restored(found, copies), plain(z, copies, smoothing, row), rtol=1e-9, atol=1e-13)


def test_one_class_is_e_minus_p() -> None:
    z = logits(3, 1, 4)
    found = build("classes", z, 1, "log")
    p = z.softmax(1)
    for c in range(4):
        e = torch.eye(4, dtype=torch.float64)[c]
        torch.testing.assert_close(restored(found, 1)[c], e - p)
        torch.testing.assert_close(found.scale[c], 1 - p[:, c])


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("row", cotangents.ROWS)
def test_rows_sum_to_zero_and_have_unit_size(smoothing: Smoothing, row: str) -> None:
    """Logits may be shifted: a cotangent has no constant part. What is pulled back is neither huge nor tiny."""
    found = build(row, logits(4, 3, 5, size=30.0), 3, smoothing)
    if row != "expected":  # which is what round-off leaves
        assert found.vectors.sum(2).abs().max() < 1e-12
    largest = found.vectors.abs().unflatten(1, (-1, 3)).amax((2, 3))
    torch.testing.assert_close(largest, torch.ones_like(largest), rtol=1e-12, atol=0)


@pytest.mark.parametrize("gap", [50.0, 700.0, 2000.0])
def test_a_certain_input(gap: float) -> None:
    """Logits (gap, 0, −1): 1 − p_0 is far below what 1 − 1.0 can tell, and beyond 745 below the smallest float64."""
    z = torch.tensor([[gap, 0.0, -1.0]], dtype=torch.float64)
    found = build("classes", z, 1, "log")
    rest = math.exp(-gap) * (1 + math.exp(-1)) if gap < 745 else 0.0
    assert found.scale[:, 0].tolist() == pytest.approx([rest, 1.0, 1.0], rel=1e-12, abs=0)
    others = [1 / (1 + math.exp(-1)), math.exp(-1) / (1 + math.exp(-1))]
    assert found.vectors[0, 0].tolist() == pytest.approx([1.0, -others[0], -others[1]], rel=1e-12)
    assert found.vectors[1, 0].tolist() == pytest.approx([-1.0, 1.0, -math.exp(-1 - gap) if gap < 744 else -0.0])
    assert found.vectors.isfinite().all()


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("gap", [50.0, 700.0, 2000.0])
def test_certain_copies(gap: float, smoothing: Smoothing) -> None:
    """Two copies, (gap, 0) and (gap + 1, 0), and the mirror image: every weight is known in closed form."""
    z = torch.tensor([[gap, 0.0], [gap + 1, 0.0]], dtype=torch.float64)
    found = build("classes", z, 2, smoothing)
    w0, w1 = 0.5 * math.exp(-gap), 0.5 * math.exp(-gap - 1)  # w_s (1 − p_0), p_0 = 1 but for e^−gap
    assert found.scale[0, 0].item() == pytest.approx(max(w0, w1), rel=1e-10, abs=0)
    assert found.vectors[0, :, 0].tolist() == pytest.approx([1.0, math.exp(-1)], rel=1e-10)
    # class 1: 1 − p_1 = 1; weights 1/2 each, or in the ratio of p_1, which is e : 1
    expected = [0.5, 0.5] if smoothing == "log" else [math.e / (1 + math.e), 1 / (1 + math.e)]
    assert restored(found, 2)[1, :, 1].tolist() == pytest.approx(expected, rel=1e-10)
    for row in ("uniform", "expected"):
        one = build(row, z, 2, smoothing)
        assert one.vectors.isfinite().all()
        assert one.scale.isfinite().all()


def test_weights_of_the_mean_are_shares() -> None:
    z = logits(2, 4, 3)
    found = restored(build("classes", z, 4, "mean"), 4)
    p = z.softmax(1).unflatten(0, (2, 4))
    for c in range(3):
        share = p[..., c] / p[..., c].sum(1, keepdim=True)
        torch.testing.assert_close(found[c, :, c].unflatten(0, (2, 4)), share * (1 - p[..., c]))


def test_float32_logits_are_worked_out_in_float64() -> None:
    z = torch.tensor([[20.0, 0.0]], dtype=torch.float32)
    found = build("classes", z, 1, "log")
    assert found.scale.dtype == found.vectors.dtype == torch.float64
    assert found.scale[0, 0].item() == pytest.approx(math.exp(-20) / (1 + math.exp(-20)), rel=1e-12)


def test_expected_is_zero_up_to_round_off_and_uniform_is_not() -> None:
    z = logits(5, 1, 4)
    assert build("expected", z, 1, "log").scale.max() < 1e-15
    torch.testing.assert_close(restored(build("uniform", z, 1, "log"), 1)[0], 1 / 4 - z.softmax(1))


def test_nothing_to_pull_is_zero_not_nan() -> None:
    z = torch.zeros(2, 2, dtype=torch.float64)  # 1/C − p is exactly zero
    found = build("uniform", z, 1, "log")
    assert found.vectors.eq(0).all()
    assert found.scale.eq(0).all()


@given(st.integers(2, 6), st.data())
def test_some_classes_are_the_same_as_all(classes: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, classes - 1))
    some = slice(start, data.draw(st.integers(start + 1, classes)))
    z = logits(2, 2, classes)
    whole, part = build("classes", z, 2, "mean"), build("classes", z, 2, "mean", some)
    assert torch.equal(part.vectors, whole.vectors[some])
    assert torch.equal(part.scale, whole.scale[some])


def test_sums_of_rows_give_the_other_rows() -> None:
    z = logits(3, 2, 4)
    each = restored(build("classes", z, 2, "mean"), 2)
    torch.testing.assert_close(each.mean(0), restored(build("uniform", z, 2, "mean"), 2)[0])
    p = z[::2].softmax(1).repeat_interleave(2, 0)
    torch.testing.assert_close((p.T.unsqueeze(2) * each).sum(0), restored(build("expected", z, 2, "mean"), 2)[0])


@pytest.mark.parametrize("shift", [-3000.0, 3000.0])
@pytest.mark.parametrize("row", cotangents.ROWS)
def test_logits_may_be_shifted(shift: float, row: str) -> None:
    z = torch.tensor([[0.0, 1.0, -40.0], [3.0, 2.0, 2.0]], dtype=torch.float64)
    here, there = (restored(build(row, t, 2, "mean"), 2) for t in (z, z + shift))
    torch.testing.assert_close(here, there, rtol=1e-9, atol=1e-13)


def test_a_probability_that_is_known_exactly() -> None:
    z = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)
    found = build("classes", z, 1, "log")
    assert found.scale[:, 0].tolist() == pytest.approx([float(Fraction(3, 4)), float(Fraction(1, 4))], rel=1e-15)


def test_an_unknown_row_is_named() -> None:
    with pytest.raises(ValueError, match="expected rows from classes, uniform, expected; got 'each'"):
        build("each", logits(1, 1, 2), 1, "log")


def test_every_input_can_have_its_own_classes() -> None:
    z = torch.randn(3 * 2, 5, dtype=torch.float64)
    own = torch.tensor([[0, 4, 2], [3, 3, 1]])
    for smoothing in ("log", "mean"):
        found = cotangents.build("classes", z, 2, smoothing, own)
        every = cotangents.build("classes", z, 2, smoothing)
        for k in range(2):
            for i in range(3):
                torch.testing.assert_close(found.scale[k, i], every.scale[own[k, i], i])
                torch.testing.assert_close(
                    found.vectors[k, 2 * i : 2 * i + 2], every.vectors[own[k, i], 2 * i : 2 * i + 2]
                )
