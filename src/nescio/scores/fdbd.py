"""`fdbd`: how near the features are to the boundaries between classes, measured by how far from the training data.

    −(1/(C − 1)) Σ_{c≠ŷ} (z_ŷ − z_c)/‖w_ŷ − w_c‖ / ‖h − μ‖,   ŷ the predicted class, μ the mean training feature

(z_ŷ − z_c)/‖w_ŷ − w_c‖ is the distance from h to the plane on which the classes ŷ and c are equal. Classes with the
same weights have no such plane and do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.scores.base import HIGHER, FittedScore
from nescio.scores.last_layer_score import LastLayerScore
from nescio.scores.registry import register
from nescio.types import InputError


@register
@dataclass(frozen=True, kw_only=True)
class FDBD(LastLayerScore, FittedScore):
    """Compute the mean distance to the decision boundaries over that to the training mean, negated (Liu & Qin 2024).

    It fails where a foreign input lies far from every boundary but near the training mean.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), FDBD(), fit=training).shape
        torch.Size([5])
    """

    name = "fdbd"
    summary = "Distance of the features from the decision boundaries, relative to the training mean, negated."
    paper = "Liu & Qin 2024"
    sign = f"{HIGHER} (negated)"

    def _fit(self, features: Tensor, logits: Tensor, layer: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, float]:
        mean = features.mean(0)
        spread = float((features - mean).norm(dim=1).mean())
        weights = layer[:, :-1]
        apart = torch.cdist(weights, weights, compute_mode="donot_use_mm_for_euclid_dist")
        apart[apart <= 1e-12 * weights.norm(dim=1).amax()] = torch.inf  # no boundary: it counts nothing
        if spread == 0.0 or not bool(apart.isfinite().any(1).all()):
            what = "training features that differ" if spread == 0.0 else "classes with weights of their own"
            raise InputError(f"{self.name}: expected {what}, got equal ones; use a score such as max_logit or energy")
        return mean, apart, torch.finfo(torch.float64).eps * spread

    def __call__(self, features: Tensor, logits: Tensor, layer: Tensor) -> Tensor:
        mean, apart, least = self._fitted_state()
        self._same_width(len(mean), features)
        best, predicted = logits.max(1, keepdim=True)
        planes = apart[predicted[:, 0]]
        distance = ((best - logits) / planes).sum(1) / planes.isfinite().sum(1)
        result: Tensor = -distance / (features - mean).norm(dim=1).clamp(min=least)
        return result
