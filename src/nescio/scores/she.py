"""`she`: how well the features match the pattern that the network has stored for the class it predicts.

    −hᵀ S_ŷ,   S_c the mean feature of the training inputs of class c that are classified rightly

A class of which no training input is classified rightly has the mean of all its inputs as pattern. One without
training input has none: what is predicted to be of it matches nothing, and its score is 0.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import Tensor

from nescio.quantities import Features, Logits, Request
from nescio.scores.base import HIGHER
from nescio.scores.feature_scores import FeatureScore
from nescio.scores.registry import register
from nescio.types import InputError


@register
@dataclass(frozen=True, kw_only=True)
class SHE(FeatureScore):
    """Compute the inner product of the features and their mean in the predicted class, −hᵀS_ŷ (Zhang et al. 2023).

    It fails where foreign inputs have large features, because the length of h counts.

    Args:
        layer: The name of the module whose output the features are; None for the input of the last linear layer.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), SHE(), fit=training).shape
        torch.Size([5])
    """

    name = "she"
    summary = "Match of the features with the mean ones of the predicted class, negated."
    paper = "Zhang et al. 2023"
    sign = f"{HIGHER} (negated)"

    @property
    def needs(self) -> tuple[Request, ...]:
        return Features(self.layer), Logits()

    def _fit(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        count = logits.shape[1]
        if int(labels.max()) >= count:
            raise InputError(f"{self.name}: expected labels from 0 to {count - 1}, got {int(labels.max())}")
        right = logits.argmax(1) == labels
        patterns = features.new_zeros(count, features.shape[1])
        for c in labels.unique().tolist():
            own = labels == c
            patterns[c] = features[own & right if bool((own & right).any()) else own].mean(0)
        if missing := count - len(labels.unique()):
            warnings.warn(
                f"{self.name}: {missing} of {count} classes have no training input; what is predicted to be of them "
                "scores 0. Give training data of every class",
                UserWarning,
                stacklevel=2,
            )
        return patterns

    def __call__(self, features: Tensor, logits: Tensor) -> Tensor:
        patterns: Tensor = self._fitted_state()
        self._same_width(patterns.shape[1], features)
        return -(features * patterns[logits.argmax(1)]).sum(1)
