"""`scale`: the energy after the features are scaled by how much of them is in the largest.

    −log Σ_c exp(w_cᵀ h exp(s/s_K) + b_c),   s = Σ_i h_i,   s_K the same over the features above the percentile

No feature is taken away, unlike in ASH. Like ASH it was made for wide ReLU networks with sparse features, and on small
networks and on transformers it is known to fail.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio.scores.last_layer_score import LastLayerScore, energy_of, largest
from nescio.scores.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class Scale(LastLayerScore):
    """Compute the energy of the logits from scaled features, h·exp(s/s_K) (Xu et al. 2024).

    It was made for wide ReLU networks. On small networks and on transformers it is known to fail.

    Args:
        percentile: s_K is the sum of the features above this percentile of their own input, and s that of all.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), Scale()).shape
        torch.Size([5])
    """

    percentile: float = 85.0

    name = "scale"
    summary = "Energy after the features are scaled; known to fail on small networks and on transformers."
    paper = "Xu et al. 2024"

    def __post_init__(self) -> None:
        self._number("percentile", at_least=0.0, below=100.0)

    def __call__(self, features: Tensor, logits: Tensor, layer: Tensor) -> Tensor:
        return energy_of(features * largest(features, self.percentile)[1], layer)
