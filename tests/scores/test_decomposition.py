"""Kinds of uncertainty: worked out by hand, in fifty digits, and as properties that hold for any predictions."""

import math
from dataclasses import fields
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from nescio.scores.decomposition import decompose
from nescio.types import Decomposition, InputError

NAMES = [field.name for field in fields(Decomposition)]
LOG2 = math.log(2.0)


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def exact(rows: list[list[Any]]) -> dict[str, Any]:
    """The definitions in mpmath, for one input: rows [S][C]."""
    with mpmath.workdps(700):
        p = [[mpmath.mpf(v) / mpmath.fsum(map(mpmath.mpf, row)) for v in row] for row in rows]
        classes, samples = range(len(p[0])), len(p)
        mean = [mpmath.fsum(row[c] for row in p) / samples for c in classes]

        def entropy(row: list[Any]) -> Any:
            return -mpmath.fsum(v * mpmath.log(v) for v in row if v > 0)

        total, aleatoric = entropy(mean), mpmath.fsum(map(entropy, p)) / samples
        logs = [
            mpmath.exp(mpmath.fsum(mpmath.log(row[c]) for row in p) / samples) if all(r[c] > 0 for r in p) else 0
            for c in classes
        ]
        shared = mpmath.fsum(logs)
        return {
            "total": +total,
            "aleatoric": +aleatoric,
            "epistemic": total - aleatoric,
            "variance": mpmath.fsum((row[c] - mean[c]) ** 2 for row in p for c in classes) / samples,
            "max_probability": 1 - max(mean),
            "bregman": -mpmath.log(shared) if shared > 0 else mpmath.inf,
        }


def test_two_samples_by_hand() -> None:
    """p = (3/4, 1/4) and (1/4, 3/4): the mean is even, so that the total is one bit."""
    found = decompose(tensor([[[0.75, 0.25]], [[0.25, 0.75]]]))
    each = 2.0 * LOG2 - 0.75 * math.log(3.0)
    expected = [LOG2, each, LOG2 - each, 0.125, 0.5, -math.log(math.sqrt(3.0) / 2.0)]
    for name, value in zip(NAMES, expected, strict=True):
        assert getattr(found, name).tolist() == pytest.approx([value], abs=1e-12), name
        assert getattr(found, name).dtype == torch.float64


def test_samples_that_are_sure_of_different_classes() -> None:
    found = decompose(tensor([[[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]]))
    expected = [LOG2, 0.0, LOG2, 0.5, 0.5, math.inf]
    assert [getattr(found, name).item() for name in NAMES] == pytest.approx(expected, abs=1e-15)


def test_samples_that_agree() -> None:
    row = [0.5, 0.25, 0.125, 0.125]
    found = decompose(tensor([[row]] * 7))
    assert found.total.item() == pytest.approx(1.75 * LOG2, abs=1e-14)
    for name in ("epistemic", "variance", "bregman"):
        assert 0.0 <= getattr(found, name).item() < 1e-30, name


def test_one_sample_has_no_epistemic_part() -> None:
    p = torch.rand(20, 5, dtype=torch.float64).softmax(-1)
    flat, deep = decompose(p), decompose(p[None])
    for name in NAMES:
        assert torch.equal(getattr(flat, name), getattr(deep, name))
    assert not flat.epistemic.any() and not flat.variance.any() and not flat.bregman.any()
    torch.testing.assert_close(flat.total, torch.from_numpy(scipy.stats.entropy(p.numpy(), axis=-1)))


def test_the_axes_are_not_mixed_up() -> None:
    """Two samples, three inputs, four classes; each input has its own answer, and samples may come in any order."""
    p = torch.rand(2, 3, 4, dtype=torch.float64).mul(3).softmax(-1)
    found = decompose(p)
    for at in range(3):
        truth = exact(p[:, at].tolist())
        for name in NAMES:
            assert getattr(found, name)[at].item() == pytest.approx(float(truth[name]), rel=1e-12), name
    for other in (p.flip(0), p[..., torch.tensor([2, 0, 3, 1])]):
        for name in NAMES:
            torch.testing.assert_close(getattr(decompose(other), name), getattr(found, name), rtol=1e-12, atol=1e-15)
    square = torch.eye(3, dtype=torch.float64)[None].repeat(3, 1, 1)  # any two axes could be swapped in shape
    assert decompose(square).total.tolist() == [0.0, 0.0, 0.0]


TINY = [
    [[1.0, 1e-30], [1.0, 3e-30]],
    [[1.0, 1e-30, 1e-12], [1.0, 1e-10, 1e-25]],
    [[0.5, 0.5, 1e-30], [0.25, 0.75, 1e-30]],
    [[1.0, 1e-30, 0.0], [1.0, 0.0, 1e-30]],
    [[1e-30, 1.0], [1.0, 1e-30], [1.0, 0.0]],
    [[1.0, 1e-300], [1.0, 1e-290]],
    [[1.0, 5e-20, 5e-20], [1.0, 5.0000001e-20, 4.9999999e-20]],
    [[0.3, 0.7], [0.3000001, 0.6999999]],
]


@pytest.mark.parametrize("rows", TINY)
def test_small_probabilities_in_many_digits(rows: list[list[float]]) -> None:
    found, truth = decompose(tensor(rows)[:, None]), exact(rows)
    for name in NAMES:
        # nearly equal numbers, as they were given, have few digits of their difference
        near = 1e-6 if rows in TINY[-2:] and name in ("epistemic", "variance", "bregman") else 1e-12
        assert getattr(found, name).item() == pytest.approx(float(truth[name]), rel=near, abs=1e-320), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_is_brought_to_a_sum_of_one(dtype: torch.dtype) -> None:
    p = torch.randn(4, 3, 50, generator=torch.Generator().manual_seed(0)).mul(4).softmax(-1).to(dtype)
    found = decompose(p)
    for at in range(3):
        truth = exact(p[:, at].double().tolist())
        for name in NAMES:
            assert getattr(found, name)[at].item() == pytest.approx(float(truth[name]), rel=1e-11), name


@given(
    arrays.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(2, 6)),
        elements=st.floats(-80.0, 80.0, allow_subnormal=False),
    )
)
def test_what_holds_for_any_predictions(logits: np.ndarray) -> None:
    p = torch.from_numpy(logits).softmax(-1)
    found = decompose(p)
    classes = p.shape[-1]
    assert torch.equal(found.total, found.aleatoric + found.epistemic)
    for name in NAMES:
        value = getattr(found, name)
        assert value.shape == p.shape[1:2] and (value >= 0).all() and value.isfinite().all(), name
    assert (found.total <= math.log(classes) + 1e-12).all()
    assert (found.epistemic <= math.log(len(p)) + 1e-12).all()
    assert (found.variance <= 1.0).all() and (found.max_probability <= 1 - 1 / classes + 1e-12).all()
    mean = p.mean(0)
    entropy = -torch.special.xlogy(mean, mean).sum(-1)
    torch.testing.assert_close(found.total, entropy, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.variance, p.var(0, correction=0).sum(-1), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.max_probability, 1 - mean.amax(-1), rtol=1e-9, atol=1e-12)
    again = decompose(p.flip(1))
    for name in NAMES:
        torch.testing.assert_close(getattr(again, name).flip(0), getattr(found, name), rtol=1e-12, atol=1e-300)


def test_parts_of_many_inputs_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    p = torch.rand(3, 11, 4, dtype=torch.float64).softmax(-1)
    whole = decompose(p)
    monkeypatch.setattr("nescio.scores.decomposition._AT_ONCE", 24)
    parts = decompose(p.numpy())
    for name in NAMES:
        assert torch.equal(getattr(parts, name), getattr(whole, name))


class Predicts:
    def predict(self, x: object) -> None: ...


WRONG: list[tuple[Any, str]] = [
    (torch.zeros(2, 3, 4), "that sum to one over the classes, got a sum of 0 for input 0 of sample 0"),
    (tensor([[[0.5, 0.5], [0.9, 0.2]]]), r"got a sum of 1\.1 for input 1 of sample 0; give probabilities, not logits"),
    (tensor([[[1.5, -0.5]]]), "got some below 0; give probabilities, not logits"),
    (tensor([[[math.nan, 1.0]]]), "got NaN or infinite ones"),
    (torch.ones(3, 4, 1), r"C >= 2 classes, got a tensor of torch\.float32 and shape \[3, 4, 1\]"),
    (torch.ones(3), r"shape \[3\]"),
    (torch.ones(2, 0, 3), r"shape \[2, 0, 3\]"),
    (torch.full((2, 1, 3, 2, 2), 0.25), r"got a sum of 0\.5 for input 0 of sample 0"),
    ("text", "got an object of type str"),
    (Predicts(), r"got an object of type Predicts; give what its predict\(x\) returns"),
    (torch.tensor([[0.55, 0.5]], dtype=torch.float16), r"got a sum of 1\.0498"),
    (torch.tensor([[0.501, 0.5]]), r"got a sum of 1\.001"),
]


@pytest.mark.parametrize(("given_value", "words"), WRONG)
def test_wrong_input_is_told(given_value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        decompose(given_value)


def test_arrays_of_any_layout_are_read() -> None:
    rows = np.array([[0.3, 0.7], [0.2, 0.8]])
    expected = decompose(rows).total
    fixed = rows.copy()
    fixed.setflags(write=False)
    others: list[Any] = [rows[:, ::-1], rows.astype(">f8"), rows.astype(np.longdouble), fixed, tuple(map(tuple, rows))]
    for given_rows in [*others, [torch.tensor(row) for row in rows]]:
        torch.testing.assert_close(decompose(given_rows).total, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("wrong", [[["a", "b"]], [[0.5, 0.5], [1.0]], np.array([[0.5, None]], dtype=object)])
def test_what_holds_no_numbers_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="expected probabilities"):
        decompose(wrong)
