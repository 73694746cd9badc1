"""What scores share that look at the last linear layer: features h, logits z = Wh + b, and W and b themselves.

They exist for models that end in an `nn.Linear`; for others the request is refused with a sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.quantities import Features, LastLayer, Logits, Request
from nescio.scores.base import Score


@dataclass(frozen=True, kw_only=True)
class LastLayerScore(Score):
    """Base of the scores from features, logits and the last linear layer."""

    requires = "forward"
    cost = "1"

    @property
    def needs(self) -> tuple[Request, ...]:
        """The features, the logits and the last linear layer, from one pass."""
        return Features(), Logits(), LastLayer()


def energy(logits: Tensor) -> Tensor:
    """−log Σ_c exp(z_c)."""
    return -logits.to(torch.float64).logsumexp(-1)


def energy_of(features: Tensor, layer: Tensor) -> Tensor:
    """The energy of what the layer [C, D + 1] makes of the features."""
    return energy(features @ layer[:, :-1].T + layer[:, -1])


def largest(features: Tensor, percentile: float) -> tuple[Tensor, Tensor]:
    """Where the features above the percentile of their own input are, and the factor exp(Σ h/Σ of those).

    At least one is above it, ties all are, and a feature of 0 never is. Where the sum of those is not above 0 the
    factor is 0, its limit.
    """
    width = features.shape[1]
    count = max(1, width - round(width * percentile / 100.0))
    kept = (features >= features.topk(count, dim=1).values[:, -1:]) & (features != 0)
    total, part = features.sum(1, keepdim=True), (features * kept).sum(1, keepdim=True)
    return kept, torch.where(part > 0, (total / torch.where(part > 0, part, 1.0)).exp(), 0.0)
