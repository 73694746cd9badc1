"""Entropy, divergence and mutual information: by hand, against exact arithmetic, and where plain formulas fail."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nescio.scores.information import complements, divergence, entropy, log_probabilities, mutual_information

rows = st.lists(st.floats(-30, 30), min_size=2, max_size=6)
draws = st.integers(2, 5).flatmap(
    lambda c: st.lists(st.lists(st.floats(-30, 30), min_size=c, max_size=c), min_size=1, max_size=6)
)


def logits(*p: float) -> Tensor:
    return torch.tensor(p, dtype=torch.float64).log()


@given(rows)
def test_log_probabilities_are_a_log_softmax(row: list[float]) -> None:
    z = torch.tensor(row, dtype=torch.float64)
    torch.testing.assert_close(log_probabilities(z), z.log_softmax(-1), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(log_probabilities(z).exp() + complements(z), torch.ones_like(z), rtol=0.0, atol=1e-14)


@given(rows, st.floats(-100, 100))
def test_entropy_lies_between_zero_and_log_c_and_forgets_the_level(row: list[float], shift: float) -> None:
    z = torch.tensor(row, dtype=torch.float64)
    assert 0.0 <= entropy(z) <= math.log(len(row)) * (1 + 1e-12)
    torch.testing.assert_close(entropy(z + shift), entropy(z), rtol=1e-9, atol=1e-13)


@given(draws)
def test_mutual_information_lies_between_zero_and_its_bounds(z: list[list[float]]) -> None:
    found = mutual_information(torch.tensor(z, dtype=torch.float64)[:, None])
    assert 0.0 <= found.item() <= min(math.log(len(z)), math.log(len(z[0]))) * (1 + 1e-12) + 1e-15


@given(rows, rows)
def test_divergence_is_never_negative(a: list[float], b: list[float]) -> None:
    size = min(len(a), len(b))
    p, q = (log_probabilities(torch.tensor(r[:size], dtype=torch.float64)) for r in (a, b))
    assert divergence(q, p) >= 0.0
    torch.testing.assert_close(divergence(q, p), (q.exp() * (q - p)).sum(), rtol=1e-10, atol=1e-13)
    assert divergence(q, q) == 0.0


def test_by_hand() -> None:
    assert entropy(logits(0.25, 0.75)).item() == pytest.approx(2 * math.log(2) - 0.75 * math.log(3), rel=1e-14)
    # KL((1/2, 1/2) ‖ (1/4, 3/4)) = ½ log 2 + ½ log(2/3)
    found = divergence(logits(0.5, 0.5), logits(0.25, 0.75)).item()
    assert found == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), rel=1e-14)
    # two draws (0.9, 0.1) and (0.1, 0.9): H(1/2) − H(0.9); the draw, not the class, is what is averaged over
    pair = torch.stack([logits(0.9, 0.1), logits(0.1, 0.9)])[:, None]
    h = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    torch.testing.assert_close(mutual_information(pair), torch.tensor([math.log(2) - h]).double(), rtol=1e-7, atol=0.0)


def test_equal_draws_have_no_mutual_information() -> None:
    one = torch.randn(1, 5, 4, dtype=torch.float64) * 10
    assert torch.equal(mutual_information(one), torch.zeros(5, dtype=torch.float64))
    assert (mutual_information(one.expand(7, -1, -1)) < 1e-28).all()


def exact_divergence(gap: Fraction, step: Fraction) -> float:
    """KL of two-class predictions with odds 1/gap and step/gap, worked out with 60 digits."""
    decimal = pytest.importorskip("decimal")
    with decimal.localcontext() as context:
        context.prec = 80

        def d(f: Fraction) -> "decimal.Decimal":
            return decimal.Decimal(f.numerator) / decimal.Decimal(f.denominator)

        p, q = gap / (1 + gap), gap * step / (1 + gap * step)
        return float(d(q) * (d(q) / d(p)).ln() + d(1 - q) * (d(1 - q) / d(1 - p)).ln())


@pytest.mark.parametrize("gap", [Fraction(1), Fraction(1, 10**6), Fraction(1, 10**25), Fraction(1, 10**80)])
@pytest.mark.parametrize("step", [Fraction(100001, 100000), Fraction(11, 10), Fraction(5), Fraction(10**9)])
def test_sure_predictions_keep_their_digits(gap: Fraction, step: Fraction) -> None:
    """Σ q log(q/p) as it stands is off by 1e-16, that is by everything, when the divergence is 1e-25."""
    p = log_probabilities(torch.tensor([0.0, math.log(gap)], dtype=torch.float64))
    q = log_probabilities(torch.tensor([0.0, math.log(gap) + math.log(step)], dtype=torch.float64))
    assert divergence(q, p).item() == pytest.approx(exact_divergence(gap, step), rel=1e-8)
    pair = torch.tensor([[[0.0, math.log(gap)]], [[0.0, math.log(gap * step)]]], dtype=torch.float64)
    assert mutual_information(pair).item() > 0.0


def test_the_series_meets_the_plain_formula_where_they_change_over() -> None:
    d = torch.tensor([0.0999999999, 0.1000000001, -0.0999999999, -0.1000000001], dtype=torch.float64)
    for value in d.tolist():
        log_q = torch.tensor([0.0], dtype=torch.float64)
        found = divergence(log_q, log_q - value).item()
        assert found == pytest.approx(value + math.expm1(-value), rel=1e-13)


def test_far_apart_logits_stay_finite() -> None:
    z = torch.tensor([[0.0, 5000.0, -5000.0], [5000.0, 0.0, -5000.0]], dtype=torch.float64)
    assert log_probabilities(z).isfinite().all() and entropy(z).isfinite().all()
    assert divergence(log_probabilities(z[:1]), log_probabilities(z[1:])).item() == pytest.approx(5000.0)
    assert mutual_information(z[:, None]).item() == pytest.approx(math.log(2.0))
