"""Probabilities under a Laplace approximation of the last linear layer, which is fitted to training data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.posteriors.laplace import Laplace
from nescio.quantities.base import Budget, Fit, Request
from nescio.quantities.predictions import predictions
from nescio.types import ModelError


@dataclass(frozen=True)
class LaplacePredictions(Request):
    """Request the probabilities of a last-layer Laplace approximation, float64 ``[S, N, C]``.

    Fitting gives the same request with its posterior, which can be answered for any input of the same model.

    Args:
        kind: The structure of the curvature, as in `nescio.posteriors.Laplace`.
        prior: The precision of the prior, or "marglik" for the one of largest marginal likelihood.
        samples: S, the number of draws.
        seed: Of the draws.
        posterior: The fitted posterior, None before the fit.

    Examples:
        >>> posterior = nescio.posteriors.Laplace(torch.nn.Linear(2, 3), samples=5)
        >>> request = LaplacePredictions(posterior=posterior.fit((torch.eye(2), torch.arange(2))))
        >>> nescio.quantities.compute(posterior.classifiers[0], torch.ones(4, 2), [request])[request].shape
        torch.Size([5, 4, 3])
    """

    kind: str = "auto"
    prior: float | str = "marglik"
    samples: int = 100
    seed: int = 0
    posterior: Laplace | None = None

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Return the predictions of the fitted posterior, which must be one of this model."""
        if self.posterior is None:
            raise ModelError(f"expected a fitted 'laplace' to answer {self!r}, got the model {classifier.name}")
        if not any(own.module is classifier.module for own in self.posterior.classifiers):
            raise ModelError(
                f"expected the model that 'laplace' was fitted with, got another one, {classifier.name}; fit it anew"
            )
        return predictions(self.posterior, x)

    def start_fit(self, classifier: Classifier) -> Fit:
        """Begin to fit the posterior."""
        return _LaplaceFit(self, classifier)


class _LaplaceFit(Fit):
    """Fits the posterior batch by batch; what it finishes with is the request that holds it."""

    needs_answer = False

    def __init__(self, request: LaplacePredictions, classifier: Classifier) -> None:
        settings = {name: getattr(request, name) for name in ("kind", "prior", "samples", "seed")}
        self.unfitted, self.posterior = request, Laplace(classifier, **settings)

    def absorb(self, x: Inputs, labels: Tensor, answer: Any) -> None:
        self.posterior.absorb(x, labels)

    def finish(self) -> LaplacePredictions:
        return replace(self.unfitted, posterior=self.posterior.finish())
