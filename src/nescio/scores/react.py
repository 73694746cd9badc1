"""`react`: the energy after features are clipped from above.

    −log Σ_c exp(w_cᵀ min(h, t) + b_c),   t the percentile of all features of all training inputs

A foreign input often excites a few features far beyond what training inputs do. Clipped, these no longer make it sure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from nescio.scores.base import FittedScore
from nescio.scores.last_layer_score import LastLayerScore, energy_of
from nescio.scores.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class ReAct(LastLayerScore, FittedScore):
    """Compute the energy of the logits from clipped features, min(h, t) (Sun et al. 2021).

    It fails where foreign inputs excite no feature beyond what training inputs do.

    Args:
        percentile: t is this percentile of all features of all training inputs.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), ReAct(), fit=training).shape
        torch.Size([5])
    """

    percentile: float = 90.0

    name = "react"
    summary = "Energy after the features are clipped at a percentile of those of the training data."
    paper = "Sun et al. 2021"

    def __post_init__(self) -> None:
        self._number("percentile", above=0.0, below=100.0)

    def _fit(self, features: Tensor, logits: Tensor, layer: Tensor, labels: Tensor) -> float:
        return float(np.percentile(features.numpy(), self.percentile))

    def __call__(self, features: Tensor, logits: Tensor, layer: Tensor) -> Tensor:
        return energy_of(features.clamp(max=self._fitted_state()), layer)
