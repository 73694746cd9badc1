"""`relative_mahalanobis` (RMDS): how much farther the nearest class is than the training data as a whole.

    min_c (h − μ_c)ᵀ Σ⁻¹ (h − μ_c) − (h − μ)ᵀ Σ₀⁻¹ (h − μ),   Σ within the classes, μ and Σ₀ of all training inputs

What makes an input unusual for every class alike is taken off, and what tells the classes apart remains.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.scores.feature_scores import FeatureScore, Mahalanobis
from nescio.scores.registry import register
from nescio.types import InputError


class _Part(Mahalanobis):
    name = "relative_mahalanobis"  # in its messages


@register
@dataclass(frozen=True, kw_only=True)
class RelativeMahalanobis(FeatureScore):
    """Compute the squared Mahalanobis distance to the nearest class, less that to all training data (Ren et al. 2021).

    It needs two classes or more. It fails for inputs that are unusual for every class alike: that part is taken off.

    Args:
        layer: The name of the module whose output the features are; None for the input of the last linear layer.
        shrinkage: Of both covariances, as for `Mahalanobis`: "auto", or a number from 0 to 1.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), RelativeMahalanobis(), fit=training).shape
        torch.Size([5])
    """

    shrinkage: float | str = "auto"

    name = "relative_mahalanobis"
    summary = "Mahalanobis distance to the nearest class, less that to the training data as a whole."
    paper = "Ren et al. 2021"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._auto_or_share("shrinkage")

    def _fit(self, features: Tensor, labels: Tensor) -> tuple[Mahalanobis, Mahalanobis]:
        if len(labels.unique()) < 2:
            raise InputError(
                f"{self.name}: expected training inputs of at least two classes, got one, which is as far as the whole "
                "is; give more classes, or use mahalanobis"
            )
        plain = _Part(shrinkage=self.shrinkage)
        return plain.fitted([features], labels), plain.fitted([features], torch.zeros_like(labels))

    def __call__(self, features: Tensor) -> Tensor:
        nearest, whole = self._fitted_state()
        result: Tensor = nearest(features) - whole(features)
        return result
