"""`vim`: energy, and what of the features lies outside of the space that the training data fill.

    α‖P(h − u)‖ − log Σ_c exp(z_c),   u = −W⁺b,   α = |mean max_c z_c| / mean ‖P(h − u)‖ over the training data

P = 1 − RRᵀ takes off the D directions R in which the training features, seen from u, vary most: 1000 of more than 1500,
512 of 768 and more, half of fewer; where the data fill no more than D, half of those that they fill. A spread below
10⁻⁵ of the largest does not count, nor does a singular value of W: both may be round-off of float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.scores.base import FittedScore
from nescio.scores.last_layer_score import LastLayerScore, energy
from nescio.scores.registry import register
from nescio.types import InputError


@register
@dataclass(frozen=True, kw_only=True)
class ViM(LastLayerScore, FittedScore):
    """Compute the energy, and add how far the features lie outside the main directions (Wang et al. 2022).

    These directions are those in which the training features vary most; the formula is above. It fails where foreign
    features lie in the same directions, and needs more training inputs than directions.

    Args:
        dimension: The number of main directions, or "auto" to choose it from the width of the features.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), ViM(), fit=training).shape
        torch.Size([5])
    """

    dimension: int | str = "auto"

    name = "vim"
    summary = "Energy, and how far the features lie outside of the main directions of the training data."
    paper = "Wang et al. 2022"

    def __post_init__(self) -> None:
        if self.dimension != "auto":
            self._integer("dimension", at_least=1)

    def _fit(self, features: Tensor, logits: Tensor, layer: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, float]:
        origin = -torch.linalg.pinv(layer[:, :-1], rtol=1e-5) @ layer[:, -1]
        seen = features - origin
        values, vectors = torch.linalg.eigh(seen.T @ seen / len(seen))  # the smallest first
        width, filled = len(values), int((values > 1e-10 * values[-1]).sum()) if values[-1] > 0 else 0
        paper = 1000 if width > 1500 else 512 if width >= 768 else width // 2
        wanted = self.dimension if isinstance(self.dimension, int) else paper if paper < filled else filled // 2
        if wanted >= filled:
            raise InputError(
                f"{self.name}: expected training features that fill more than {wanted} directions, got {filled} from "
                f"{len(features)} inputs; give more training data, or a smaller dimension"
            )
        outside = vectors[:, : width - wanted]
        return origin, outside, float(logits.amax(1).mean().abs() / (seen @ outside).norm(dim=1).mean())

    def __call__(self, features: Tensor, logits: Tensor, layer: Tensor) -> Tensor:
        origin, outside, alpha = self._fitted_state()
        self._same_width(len(origin), features)
        result: Tensor = alpha * ((features - origin) @ outside).norm(dim=1) + energy(logits)
        return result
