"""The scores from one forward pass, by hand and in their limits."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nescio import scores

rows = st.lists(st.floats(-30, 30), min_size=2, max_size=6)


def logits(*p: float) -> Tensor:
    return torch.tensor([p], dtype=torch.float64).log()


def test_by_hand() -> None:
    z = logits(0.5, 0.3, 0.2)
    entropy = -(0.5 * math.log(0.5) + 0.3 * math.log(0.3) + 0.2 * math.log(0.2))
    assert scores.Entropy()(z).item() == pytest.approx(entropy, rel=1e-14)
    assert scores.ExGradV()(z).item() == pytest.approx(-(1 / 6 + 1 / 30 + 2 / 15), rel=1e-14)
    assert scores.MaxProbability()(z).item() == pytest.approx(0.5, rel=1e-14)
    assert scores.MaxLogit()(torch.tensor([[-1.0, 2.5, 0.0], [-3.0, -2.0, -4.0]])).tolist() == [-2.5, 2.0]
    assert scores.Energy()(z + 2.0).item() == pytest.approx(-2.0, rel=1e-14)
    assert scores.Energy(temperature=2.0)(z).item() == pytest.approx(
        -2.0 * math.log(sum(math.sqrt(p) for p in (0.5, 0.3, 0.2))), rel=1e-14
    )
    terms = [(p * (1 - p)) ** 0.1 for p in (0.5, 0.3, 0.2)]
    assert scores.GEN()(z).item() == pytest.approx(sum(terms), rel=1e-14)
    assert scores.GEN(top=2)(z).item() == pytest.approx(sum(terms[:2]), rel=1e-14)
    assert scores.GEN(gamma=1.0)(z).item() == pytest.approx(0.25 + 0.21 + 0.16, rel=1e-14)


@given(rows)
def test_bounds(row: list[float]) -> None:
    z, count = torch.tensor([row], dtype=torch.float64), len(row)
    assert 0.0 <= scores.MaxProbability()(z) <= (1 - 1 / count) * (1 + 1e-12)
    assert -2 * (1 - 1 / count) * (1 + 1e-12) <= scores.ExGradV()(z) <= 0.0
    assert 0.0 <= scores.GEN()(z) <= count * 0.25**0.1 * (1 + 1e-12)
    assert -max(row) - math.log(count) - 1e-9 <= scores.Energy()(z) <= -max(row) + 1e-9


@pytest.mark.parametrize("name", ["entropy", "exgrad_v", "max_probability", "gen"])
def test_the_level_of_the_logits_and_the_order_of_classes_do_not_matter(name: str) -> None:
    z, method = torch.randn(5, 4, dtype=torch.float64) * 3, scores.get(name)
    torch.testing.assert_close(method(z + 17.0), method(z), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(method(z[:, [2, 0, 3, 1]]), method(z), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["entropy", "exgrad_v", "max_probability", "energy", "gen", "max_logit"])
def test_a_flat_prediction_is_more_uncertain_than_a_sharp_one(name: str) -> None:
    z = torch.tensor([[0.0, 0.0, 0.0], [3.0, 0.0, 0.0], [9.0, 0.0, 0.0]], dtype=torch.float64)
    u = scores.get(name)(z)
    assert u[0] > u[1] > u[2]


@pytest.mark.parametrize("name", ["entropy", "max_probability", "gen"])
def test_very_sure_predictions_keep_their_order(name: str) -> None:
    """1 − p and p log p are exact zeros in plain arithmetic from gaps of 37 on."""
    gaps = torch.arange(20.0, 600.0, 20.0, dtype=torch.float64)
    u = scores.get(name)(torch.stack([gaps, torch.zeros_like(gaps)], 1))
    assert (u > 0).all() and (u.diff() < 0).all()
    truth = {"entropy": (1 + gaps) * torch.exp(-gaps), "max_probability": torch.exp(-gaps)}
    torch.testing.assert_close(u, truth.get(name, 2 * torch.exp(-0.1 * gaps)), rtol=1e-7, atol=0.0)
