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
from nescio.scores.information import complements, entropy, log_probabilities
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
    """−Σ_c p_c log p_c, between 0 and log C."""

    name = "entropy"
    summary = "Entropy of the predicted distribution."
    paper = "Shannon 1948"

    def __call__(self, logits: Tensor) -> Tensor:
        """Entropy in nats."""
        return entropy(logits)


@register
@dataclass(frozen=True, kw_only=True)
class ExGradV(ForwardScore):
    """−Σ_c |p_c − 1/C|: how near the prediction is to the uniform one, from −2(1 − 1/C) to 0."""

    name = "exgrad_v"
    summary = "Distance of the prediction from the uniform one, negated: the factor of ExGrad that needs no gradient."
    paper = "Igoe et al. 2022"
    sign = f"{HIGHER} (negated)"

    def __call__(self, logits: Tensor) -> Tensor:
        """The negated distance."""
        p = log_probabilities(logits).exp()
        return -(p - 1.0 / p.shape[-1]).abs().sum(-1)


@register
@dataclass(frozen=True, kw_only=True)
class MaxProbability(ForwardScore):
    """1 − max_c p_c, summed from the other classes, so that sure predictions keep their order."""

    name = "max_probability"
    summary = "One minus the largest probability."
    paper = "Hendrycks & Gimpel 2017"
    sign = f"{HIGHER} (one minus it)"

    def __call__(self, logits: Tensor) -> Tensor:
        """The probability that is left to the other classes."""
        return complements(logits).amin(-1)


@register
@dataclass(frozen=True, kw_only=True)
class Energy(ForwardScore):
    """−T log Σ_c exp(z_c/T): large where all logits are small.

    It depends on the level of the logits, which a softmax forgets: of a model that hands out probabilities only,
    it is meaningful only where the logits under its softmax can be reached.
    """

    temperature: float = 1.0

    name = "energy"
    summary = "Free energy of the logits."
    paper = "Liu et al. 2020"
    needs_level = True

    def __post_init__(self) -> None:
        self._number("temperature", above=0.0)

    def __call__(self, logits: Tensor) -> Tensor:
        """The free energy."""
        return -self.temperature * (logits.to(torch.float64) / self.temperature).logsumexp(-1)


@register
@dataclass(frozen=True, kw_only=True)
class GEN(ForwardScore):
    """Σ_c p_c^γ (1 − p_c)^γ over the `top` likeliest classes: an entropy in which small probabilities weigh more."""

    gamma: float = 0.1
    top: int = 100

    name = "gen"
    summary = "Generalised entropy of the likeliest classes."
    paper = "Liu et al. 2023"

    def __post_init__(self) -> None:
        self._number("gamma", above=0.0)
        self._integer("top", at_least=1)

    def __call__(self, logits: Tensor) -> Tensor:
        """The generalised entropy."""
        log_p = log_probabilities(logits)
        terms = (self.gamma * (log_p + complements(logits).log())).exp()
        likeliest = log_p.topk(min(self.top, log_p.shape[-1])).indices
        return terms.gather(-1, likeliest).sum(-1)
