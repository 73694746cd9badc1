"""Logits under dropout that is inserted before the last linear layer, float64 [S, N, C]."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.posteriors.inserted import dropped_logits
from nescio.quantities.base import Budget, Request


@dataclass(frozen=True)
class DropoutLogits(Request):
    """Request the logits under S masks before a layer, float64 ``[S, N, C]``, see `nescio.posteriors.inserted`.

    Args:
        rate: The share of features that a mask sets to 0.
        samples: S, the number of masks; all inputs share each of them.
        seed: Of the masks.
        layer: The name of the module before which the mask acts; None for the last `nn.Linear` that the model calls.

    Examples:
        >>> request = DropoutLogits(rate=0.4, samples=5)
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> nescio.quantities.compute(classifier, torch.ones(4, 2), [request])[request].shape
        torch.Size([5, 4, 3])
    """

    rate: float
    samples: int = 100
    seed: int = 0
    layer: str | None = None

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Compute the logits of every mask."""
        return dropped_logits(classifier, x, self.rate, self.samples, self.seed, self.layer, budget.chunk)
