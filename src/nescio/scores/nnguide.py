"""`nnguide`: energy, guided by the nearest training inputs.

    −s(x) · (1/k) Σ over the k largest of s(x_i)·cos(h, h_i),   s(x) = log Σ_c exp(z_c)

An input is sure where the network is sure and where its features point like those of training inputs of which the
network is sure as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.quantities import Features, Logits, Request
from nescio.scores.base import HIGHER
from nescio.scores.feature_scores import ELEMENTS, FeatureScore, unit
from nescio.scores.last_layer_score import energy
from nescio.scores.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class NNGuide(FeatureScore):
    """Compute the energy, guided by the k training inputs that are nearest in direction (Park et al. 2023).

    With fewer than k training inputs, k is their number, and a warning says so. It fails where foreign features point
    like those of training inputs.

    Args:
        layer: The name of the module whose output the features are; None for the input of the last linear layer.
        k: How many training inputs guide.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), NNGuide(), fit=training).shape
        torch.Size([5])
    """

    k: int = 10

    name = "nnguide"
    summary = "Energy, times how much the features point like those of the nearest training inputs."
    paper = "Park et al. 2023"
    sign = f"{HIGHER} (negated)"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._integer("k", at_least=1)

    @property
    def needs(self) -> tuple[Request, ...]:
        return Features(self.layer), Logits()

    def _fit(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        self._enough(features, self.k)
        return unit(features) * -energy(logits)[:, None]

    def __call__(self, features: Tensor, logits: Tensor) -> Tensor:
        known: Tensor = self._fitted_state()
        self._same_width(known.shape[1], features)
        k, own = min(self.k, len(known)), unit(features)
        parts = [(rows @ known.T).topk(k, dim=1).values.mean(1) for rows in own.split(max(1, ELEMENTS // len(known)))]
        return energy(logits) * torch.cat(parts)
