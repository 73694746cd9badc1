"""`ash`: the energy after all but the largest features of an input are taken away.

With K the features above the percentile of their own input, s = Σ_i h_i and s_K = Σ_{i in K} h_i, those in K become

    variant="s"  h_i exp(s/s_K)      "b"  s/|K|      "p"  h_i

and the others 0. It was made for wide ReLU networks with sparse features. On small networks and on transformers, whose
features are few, or dense and of both signs, it is known to fail.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.scores.last_layer_score import LastLayerScore, energy_of, largest
from nescio.scores.registry import register


@register
@dataclass(frozen=True, kw_only=True)
class ASH(LastLayerScore):
    """Compute the energy of the logits that the largest features of each input give (Djurisic et al. 2023).

    It was made for wide ReLU networks. On small networks and on transformers it is known to fail.

    Args:
        percentile: Features below this percentile of their own input are set to 0.
        variant: What becomes of the others: they are scaled ("s"), made equal ("b"), or left as they are ("p").

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), ASH()).shape
        torch.Size([5])
    """

    percentile: float = 90.0
    variant: str = "s"

    name = "ash"
    summary = "Energy from the largest features alone, scaled up; known to fail on small networks and on transformers."
    paper = "Djurisic et al. 2023"

    def __post_init__(self) -> None:
        self._number("percentile", at_least=0.0, below=100.0)
        self._choice("variant", "s", "b", "p")

    def __call__(self, features: Tensor, logits: Tensor, layer: Tensor) -> Tensor:
        kept, factor = largest(features, self.percentile)
        left = torch.where(kept, features, 0.0)
        if self.variant == "b":
            left = kept * features.sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)
        return energy_of(left * factor if self.variant == "s" else left, layer)
