"""Scores from one forward pass: functions of the logits z and the probabilities p = softmax(z) alone.

entropy          −Σ_c p_c log p_c
exgrad_v         −Σ_c |p_c − 1/C|
max_probability  1 − max_c p_c
energy           −T log Σ_c exp(z_c/T)
gen              Σ_{c among the M likeliest} p_c^γ (1 − p_c)^γ
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.quantities import Logits
from nescio.scores.base import HIGHER, Score
from nescio.scores.information import (
    complements,
    entropy,
    log_probabilities,
    log_probabilities_and_complements,
)
from nescio.scores.registry import register


@dataclass(frozen=True, kw_only=True)
class ForwardScore(Score):
    """Base of the scores that need the logits only."""

    requires = "forward"
    cost = "1"

    @property
    def needs(self) -> tuple[Logits]:
        """The logits."""
        return (Logits(),)


@register
@dataclass(frozen=True, kw_only=True)
class Entropy(ForwardScore):
    """Compute the entropy of the prediction, −Σ_c p_c log p_c (Shannon 1948).

    It lies between 0 and log C. It fails where the network is sure of a wrong answer, as it often is far from its
    training data.

    Examples:
        >>> Entropy()(torch.zeros(1, 2))
        tensor([0.6931], dtype=torch.float64)
    """

    name = "entropy"
    summary = "Entropy of the predicted distribution."
    paper = "Shannon 1948"

    def __call__(self, logits: Tensor) -> Tensor:
        return entropy(logits)


@register
@dataclass(frozen=True, kw_only=True)
class ExGradV(ForwardScore):
    """Compute how near the prediction is to the uniform one, −Σ_c |p_c − 1/C| (Igoe et al. 2022).

    It lies between −2(1 − 1/C) and 0, and is the factor of ExGrad that needs no gradient. It fails where entropy fails.

    Examples:
        >>> ExGradV()(torch.zeros(1, 2))
        tensor([-0.], dtype=torch.float64)
    """

    name = "exgrad_v"
    summary = "Distance of the prediction from the uniform one, negated: the factor of ExGrad that needs no gradient."
    paper = "Igoe et al. 2022"
    sign = f"{HIGHER} (negated)"

    def __call__(self, logits: Tensor) -> Tensor:
        p = log_probabilities(logits).exp()
        return -(p - 1.0 / p.shape[-1]).abs().sum(-1)


@register
@dataclass(frozen=True, kw_only=True)
class MaxProbability(ForwardScore):
    """Compute one minus the largest probability, 1 − max_c p_c (Hendrycks & Gimpel 2017).

    It is summed from the other classes, so that sure predictions keep their order. It fails where the network is sure
    of a wrong answer.

    Examples:
        >>> MaxProbability()(torch.zeros(1, 4))
        tensor([0.7500], dtype=torch.float64)
    """

    name = "max_probability"
    summary = "One minus the largest probability."
    paper = "Hendrycks & Gimpel 2017"
    sign = f"{HIGHER} (one minus it)"

    def __call__(self, logits: Tensor) -> Tensor:
        return complements(logits).amin(-1)


@register
@dataclass(frozen=True, kw_only=True)
class Energy(ForwardScore):
    """Compute the free energy of the logits, −T log Σ_c exp(z_c/T) (Liu et al. 2020).

    It is large where all logits are small. It depends on the level of the logits, which a softmax forgets: of a model
    that returns probabilities it means something only where the logits under its softmax can be reached. It fails where
    a foreign input excites the network more than known ones do.

    Args:
        temperature: T.

    Examples:
        >>> Energy()(torch.zeros(1, 2))
        tensor([-0.6931], dtype=torch.float64)
    """

    temperature: float = 1.0

    name = "energy"
    summary = "Free energy of the logits."
    paper = "Liu et al. 2020"
    needs_level = True

    def __post_init__(self) -> None:
        self._number("temperature", above=0.0)

    def __call__(self, logits: Tensor) -> Tensor:
        return -self.temperature * (logits.to(torch.float64) / self.temperature).logsumexp(-1)


@register
@dataclass(frozen=True, kw_only=True)
class GEN(ForwardScore):
    """Compute the generalised entropy Σ_c p_c^γ (1 − p_c)^γ of the likeliest classes (Liu et al. 2023).

    It is an entropy in which small probabilities weigh more. It fails where the network is sure of a wrong answer and
    leaves nothing to the other classes.

    Args:
        gamma: γ; the smaller, the more improbable classes weigh.
        top: How many of the likeliest classes count.

    Examples:
        >>> GEN(gamma=1.0)(torch.zeros(1, 2))
        tensor([0.5000], dtype=torch.float64)
    """

    gamma: float = 0.1
    top: int = 100

    name = "gen"
    summary = "Generalised entropy of the likeliest classes."
    paper = "Liu et al. 2023"

    def __post_init__(self) -> None:
        self._number("gamma", above=0.0)
        self._integer("top", at_least=1)

    def __call__(self, logits: Tensor) -> Tensor:
        log_p, complement = log_probabilities_and_complements(logits)
        terms = (self.gamma * (log_p + complement.log())).exp()
        likeliest = log_p.topk(min(self.top, log_p.shape[-1])).indices
        return terms.gather(-1, likeliest).sum(-1)
