"""Probabilities of the samples of a posterior, float64 [S, N, C]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.quantities.base import Budget, Request
from nescio.types import ModelError, Posterior


@dataclass(frozen=True)
class Predictions(Request):
    """Request the probabilities of the posterior that is given in the place of a model, float64 ``[S, N, C]``.

    Examples:
        >>> from nescio.posteriors import InsertedDropout
        >>> posterior = InsertedDropout(torch.nn.Linear(2, 3), samples=5)
        >>> nescio.quantities.compute(posterior, torch.ones(4, 2), [Predictions()])[Predictions()].shape
        torch.Size([5, 4, 3])
    """

    of_model = False
    of_posterior = True

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Raise a ModelError: a single model has no samples."""
        raise ModelError(
            f"expected a posterior in the place of the model to answer {self!r}, got the model {classifier.name}"
        )

    def answer_from_predictions(self, p: Tensor) -> Tensor:
        """Return the probabilities as they are."""
        return p


def predictions(posterior: Posterior, x: Inputs) -> Tensor:
    """The probabilities [S, N, C] that the posterior predicts, checked; [S, N, *positions, C] of every position."""
    p = posterior.predict(x, progress=False)
    name, count = type(posterior).__name__, inputs.size(x)
    fair = isinstance(p, Tensor) and p.dtype == torch.float64 and p.ndim >= 3 and p.shape[1] == count
    if not fair or p.shape[0] < 1 or p.shape[-1] < 2:
        raise ModelError(
            f"expected {name}.predict to give probabilities of float64 and shape [S, {count}, C], got {describe(p)}"
        )
    if not (bool((p >= 0).all()) and bool(((p.sum(-1) - 1).abs() < 1e-6).all())):
        raise ModelError(
            f"expected {name}.predict to give probabilities, which are >= 0 and sum to 1 over the classes, got others"
        )
    return p
