"""The squared norms against plain autograd, and against what they are the leading term of."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.scores.information import divergence, log_probabilities


def test_it_is_the_expected_squared_norm_of_plain_autograd(
    model: nn.Module, x: Tensor, oracle: Callable[..., Any]
) -> None:
    truth = [
        sum(p[c] * sum(g.square().sum() for g in layers) for c, layers in enumerate(by_class))
        for p, by_class in oracle(model, x)
    ]
    torch.testing.assert_close(nescio.score(model, x, "squared"), torch.stack(truth), rtol=1e-9, atol=0.0)


def test_it_is_the_leading_term_of_the_divergence_under_noise_of_the_parameters() -> None:
    """E KL = (σ²/2) Σ_i ∂²KL/∂θ_i² + …, here by moving each parameter in turn, up and down."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    x, step = torch.randn(5, 3, dtype=torch.float64), 1e-4
    total = torch.zeros(5, dtype=torch.float64)
    with torch.no_grad():
        plain = log_probabilities(model(x))
        for parameter in model.parameters():
            for entry in parameter.view(-1):
                for move in (step, -step):
                    entry += move
                    total += divergence(log_probabilities(model(x)), plain) / step**2
                    entry -= move
    torch.testing.assert_close(nescio.score(model, x, "squared"), total, rtol=1e-5, atol=0.0)


def test_layers_are_weighted_by_decay(model: nn.Module, x: Tensor) -> None:
    found = nescio.trace.class_gradients(model, x)
    weights = (0.5 * torch.arange(-3, 1, dtype=torch.float64)).exp()
    truth = (found.probabilities * (found.norms.square() * weights).sum(-1)).sum(-1)
    assert nescio.score(model, x, "squared", layer_decay=0.5).tolist() == pytest.approx(truth.tolist(), rel=1e-9)
