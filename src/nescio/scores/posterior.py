"""Scores from the predictions p^s of S samples of a posterior: how much they disagree.

    mutual_information  H(mean p) − mean H(p^s), of a posterior that is given in the place of a model
    laplace             the same of a last-layer Laplace approximation, which is fitted to the training data

Mutual information is the part of the uncertainty that more data would remove: 0 where all samples agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.quantities import LaplacePredictions, Predictions
from nescio.scores.base import FittedScore, Score
from nescio.scores.information import mutual_information
from nescio.scores.registry import register
from nescio.types import InputError


@register
@dataclass(frozen=True, kw_only=True)
class Laplace(FittedScore):
    """Compute the mutual information over draws of the last layer from its Laplace approximation.

    After Daxberger et al. 2021. It sees the last layer alone: what earlier layers confuse, it misses.

    Args:
        samples: S, the number of draws.
        seed: Of the draws.
        kind: "full", "kron" or "diag", or "auto" for the first that the size of the layer allows.
        prior: The precision of the prior, or "marglik" for the one of largest marginal likelihood.

    Examples:
        >>> training = torch.rand(60, 4), torch.arange(60) % 3
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), Laplace(samples=10), fit=training).shape
        torch.Size([5])
    """

    samples: int = 100
    seed: int = 0
    kind: str = "auto"
    prior: float | str = "marglik"

    name = "laplace"
    summary = "Disagreement of the predictions under a Gaussian posterior of the last linear layer."
    requires = "draws"
    cost = "1 + N·h"
    paper = "Daxberger et al. 2021"

    def __post_init__(self) -> None:
        self._integer("samples", at_least=2)
        self._integer("seed", at_least=0)
        self._choice("kind", "auto", "full", "kron", "diag")
        if isinstance(self.prior, str):
            self._choice("prior", "marglik")
        else:
            self._number("prior", above=0.0)

    @property
    def training(self) -> tuple[LaplacePredictions]:
        """The request that is fitted to the training data."""
        return (LaplacePredictions(self.kind, self.prior, self.samples, self.seed),)

    @property
    def needs(self) -> tuple[LaplacePredictions]:
        """The predictions of the fitted posterior."""
        return self.training if self._state is None else (self._state,)

    def _fit(self, request: LaplacePredictions, labels: Tensor) -> LaplacePredictions:
        return request

    def __call__(self, p: Tensor) -> Tensor:
        self._fitted_state()
        return _disagreement(p)


@register
@dataclass(frozen=True, kw_only=True)
class MutualInformation(Score):
    """Compute the mutual information of class and sample, H(p̄) − (1/S) Σ_s H(p^s) (Houlsby et al. 2011).

    It needs a posterior in the place of a model, such as an ensemble or `MCDropout`, and fails where its samples agree
    on a wrong answer.

    Examples:
        >>> posterior = nescio.posteriors.InsertedDropout(torch.nn.Linear(4, 3), samples=10)
        >>> nescio.score(posterior, torch.rand(5, 4), MutualInformation()).shape
        torch.Size([5])
    """

    name = "mutual_information"
    summary = "Disagreement of the samples of a posterior that is given in the place of a model."
    requires = "posterior"
    cost = "N"
    paper = "Houlsby et al. 2011"

    @property
    def needs(self) -> tuple[Predictions]:
        return (Predictions(),)

    def __call__(self, p: Tensor) -> Tensor:
        if len(p) < 2:
            raise InputError(
                "mutual_information: expected a posterior with at least two samples, got one, which agrees with "
                "itself; use entropy, or give an ensemble, MCDropout or Laplace"
            )
        return _disagreement(p)


def _disagreement(p: Tensor) -> Tensor:
    # a probability of 0 has no logarithm; the smallest number stands for it
    return mutual_information(p.to(torch.float64).clamp(min=torch.finfo(torch.float64).tiny).log())
