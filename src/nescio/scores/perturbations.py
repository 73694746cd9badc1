"""Scores from S perturbed predictions p^s: how far they move, or how much they disagree.

    perturb_x         (1/S) Σ_s KL(p(x + σε_s) ‖ p(x)),  ε_s ~ N(0, I)
    perturb_theta     the same with the parameters θ + σε_s
    mc_aa             mutual information over x + ε_s·sign(∂NLL(predicted class)/∂x),  ε_s ~ U[−a, a]
    inserted_dropout  mutual information over dropout masks before the last linear layer

The draws are the same for every input, so that a score depends on nothing but its input, the model and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio.quantities import (
    AttackedLogits,
    DropoutLogits,
    Logits,
    NoisyInputLogits,
    NoisyParameterLogits,
    Request,
)
from nescio.scores.base import Score
from nescio.scores.information import divergence, log_probabilities, mutual_information
from nescio.scores.registry import register


@dataclass(frozen=True, kw_only=True)
class DrawScore(Score):
    """Base of the scores that are made from draws."""

    samples: int = 100
    seed: int = 0

    requires = "draws"
    cost = "1 + N"

    def __post_init__(self) -> None:
        self._integer("samples", at_least=1)
        self._integer("seed", at_least=0)


@dataclass(frozen=True, kw_only=True)
class NoiseScore(DrawScore):
    """What the scores of Gaussian noise share: its width σ, and the mean divergence from the prediction without it."""

    sigma: float = 0.008

    paper = "Wang & Ji 2024"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("sigma", above=0.0)

    def __call__(self, logits: Tensor, draws: Tensor) -> Tensor:
        return divergence(log_probabilities(draws), log_probabilities(logits)).mean(0)


@register
@dataclass(frozen=True, kw_only=True)
class PerturbX(NoiseScore):
    """Compute how far the prediction moves under noise on the input, (1/S) Σ_s KL(p(x + σε_s) ‖ p(x)).

    From Wang & Ji 2024. It needs floating-point inputs. It fails where the network is sure around a foreign input too.

    Args:
        samples: S, the number of noisy copies.
        seed: Of the noise.
        sigma: σ, in the units of the input that the model is given. The paper used 0.008 and, for CIFAR-100, 0.02.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), PerturbX(samples=10)).shape
        torch.Size([5])
    """

    name = "perturb_x"
    summary = "How far the prediction moves when noise is added to the input."

    @property
    def needs(self) -> tuple[Request, ...]:
        return Logits(), NoisyInputLogits(self.sigma, self.samples, self.seed)


@register
@dataclass(frozen=True, kw_only=True)
class PerturbTheta(NoiseScore):
    """Compute how far the prediction moves under noise on the parameters, (1/S) Σ_s KL(p(θ + σε_s) ‖ p(θ)).

    From Wang & Ji 2024. σ has to fit the network: where it is too large, every prediction is noise.

    Args:
        samples: S, the number of draws.
        seed: Of the noise.
        sigma: σ, the same for every parameter. The paper used 0.008 and, for its ResNet152 on CIFAR-100, 0.0003.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), PerturbTheta(samples=10)).shape
        torch.Size([5])
    """

    name = "perturb_theta"
    summary = "How far the prediction moves when noise is added to every parameter."

    @property
    def needs(self) -> tuple[Request, ...]:
        return Logits(), NoisyParameterLogits(self.sigma, self.samples, self.seed)


@register
@dataclass(frozen=True, kw_only=True)
class MCAA(DrawScore):
    """Compute the mutual information over adversarial steps x + ε_s·sign(∂ℓ/∂x), ε_s ~ U[−a, a].

    From Alarab & Prakoonwit 2022; ℓ = −log p_ŷ, ŷ the predicted class. With steps as small as the paper's the logits
    move by little more than the round-off of float32, which leaves the score two or three digits there; a larger a, or
    a model in float64, has more.

    Args:
        samples: S, the number of steps.
        seed: Of the steps.
        a: The longest step, in the units of the input. The paper used 1e-4 and, for CIFAR-100, 5e-4.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), MCAA(samples=10)).shape
        torch.Size([5])
    """

    a: float = 1e-4

    name = "mc_aa"
    summary = "Disagreement of the predictions along the adversarial direction of the input."
    cost = "3 + N"  # the direction is one forward and one backward pass
    paper = "Alarab & Prakoonwit 2022"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("a", above=0.0)

    @property
    def needs(self) -> tuple[Request, ...]:
        return (AttackedLogits(self.a, self.samples, self.seed),)

    def __call__(self, draws: Tensor) -> Tensor:
        return mutual_information(draws)


@register
@dataclass(frozen=True, kw_only=True)
class InsertedDropout(DrawScore):
    """Compute the mutual information over dropout masks before the last linear layer (Ledda et al. 2023).

    The model need not have been trained with dropout and is not changed. Where the last linear layer ends the model,
    only this layer is evaluated for each mask. It sees the last layer alone: what earlier layers confuse, it misses.

    Args:
        samples: S, the number of masks.
        seed: Of the masks.
        rate: The share of features that a mask sets to 0.
        layer: The name of the module before which the mask acts; None for the last linear layer.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), InsertedDropout(samples=10)).shape
        torch.Size([5])
    """

    rate: float = 0.4
    layer: str | None = None

    name = "inserted_dropout"
    summary = "Disagreement of the predictions under dropout before the last linear layer."
    cost = "1 + N·h"
    paper = "Ledda et al. 2023"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("rate", above=0.0, below=1.0)
        self._instance("layer", str | None, "None or the name of a module")

    @property
    def needs(self) -> tuple[Request, ...]:
        return (DropoutLogits(self.rate, self.samples, self.seed, self.layer),)

    def __call__(self, draws: Tensor) -> Tensor:
        return mutual_information(draws)
