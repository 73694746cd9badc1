"""What the tests of estimates share: a deep network, inputs, and the score that estimates are made for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nescio import trace
from nescio.models import Classifier
from nescio.types import NormSettings, NormTable

DECAY = 0.3


def deep(classes: int = 12, layers: int = 24, width: int = 12) -> nn.Module:
    torch.manual_seed(1)
    body = [part for _ in range(layers - 1) for part in (nn.Linear(width, width), nn.Tanh())]
    model = nn.Sequential(*body, nn.Linear(width, classes)).double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2.0)
    return model


def pictures(count: int = 40, width: int = 12) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def total(table: Any, decay: float) -> Tensor:
    """Σ_c √p_c Σ_l a_l n², the score that estimates are made for."""
    weights = (decay * torch.arange(1 - table.norms.shape[2], 1, dtype=torch.float64)).exp()
    return (table.probabilities.sqrt().unsqueeze(2) * table.norms.square() * weights).sum((1, 2))


def tables(model: nn.Module, x: Tensor, **settings: Any) -> NormTable:
    return trace.gradient_norms(Classifier.of(model), x, NormSettings("classes", **settings))["classes"]
