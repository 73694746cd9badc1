"""Evidential networks (Sensoy et al. 2018): the output is evidence for each class, and α = evidence + 1 a Dirichlet.

    evidence e(z) = softplus(z), relu(z) or exp(z);   S = Σ_c α_c,   p̄ = α/S,   y one-hot
    "mse"       Σ_c (y_c − p̄_c)² + p̄_c (1 − p̄_c)/(S + 1)        expected squared error
    "nll"       Σ_c y_c (log S − log α_c)                        −log of the expected likelihood
    "digamma"   Σ_c y_c (ψ(S) − ψ(α_c))                          expected cross-entropy
    loss_t = one of these + λ_t KL(Dir(α̃)‖Dir(1)),   α̃ = y + (1 − y) ⊙ α,   λ_t = kl · min(1, t/annealing)

The defaults are those with the lowest negative log-likelihood on held-out digits; the paper prefers "mse", which may
not learn at all from few data and the full divergence.

α̃ is what evidence is left when that for the right class is taken away; t counts the epochs from 0. Vacuity is C/S: 1
where the network has no evidence at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from nescio._common.argument_checks import choice, integer, number
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelLike
from nescio.posteriors.base import PosteriorBase
from nescio.posteriors.deterministic import Deterministic
from nescio.posteriors.dirichlet import decomposed, divergence_from_flat, sampled
from nescio.posteriors.sampled import copied
from nescio.posteriors.saving import refilled, saved, weights
from nescio.training import Epoch, Recipe, Step, train
from nescio.types import Decomposition, ModelError

Evidence = Literal["softplus", "relu", "exp"]
Fit = Literal["mse", "nll", "digamma"]


@saved("evidential")
class Evidential(PosteriorBase):
    """Read the outputs of a network as evidence: one pass gives a Dirichlet over class probabilities.

    `Evidential.train` makes one (Sensoy et al. 2018). `predict` gives samples of each input's Dirichlet.

    Args:
        model: A network that was trained on an evidential loss, without softmax or sigmoid at its end.
        evidence: The activation that makes evidence of an output: "exp", "softplus" or "relu".
        samples: S, the number of samples; their random numbers are shared by all inputs.
        seed: Of the samples.

    Examples:
        >>> Evidential(torch.nn.Linear(4, 3), samples=10).predict(torch.rand(5, 4)).shape
        torch.Size([10, 5, 3])
    """

    def __init__(
        self,
        model: Classifier | Callable[..., Any],
        evidence: Evidence = "exp",
        *,
        samples: int = 100,
        seed: int = 0,
    ) -> None:
        self.classifiers = (Classifier.of(model),)
        if self.classifiers[0].output != "logits":
            raise ModelError(
                f"expected a model that returns evidence before its activation, output='logits', got "
                f"output={self.classifiers[0].output!r}; take the softmax or sigmoid off the model"
            )
        self.evidence = choice("evidence", evidence, get_args(Evidence))
        self.samples, self.seed = integer("samples", samples, at_least=1), integer("seed", seed, at_least=0)
        self.history: list[Epoch] = []

    @classmethod
    def train(
        cls,
        model: Callable[..., Any],
        data: Data,
        validation: Data | None = None,
        *,
        evidence: Evidence = "exp",
        loss: Fit = "digamma",
        kl: float = 1.0,
        annealing: int = 10,
        samples: int = 100,
        recipe: Recipe | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        on_epoch: Callable[[Epoch], object] | None = None,
    ) -> Self:
        """Train a network on an evidential loss.

        Args:
            model: A network, of which a deep copy is trained, or a function that makes one.
            data: Labelled training data, as in `nescio.training.train`.
            validation: Labelled data, on which the loss is measured without the divergence.
            evidence: As for the class.
            loss: "digamma", "nll" or "mse", as above.
            kl: The weight of the divergence from the flat Dirichlet.
            annealing: In how many epochs this weight rises from 0; 0 is at once.
            samples: As for the class.
            recipe: How to train, see `nescio.training.Recipe`.
            seed: As in `nescio.training.train`; so are folder, progress and on_epoch.
            folder: Where the state is kept.
            progress: As in `nescio.score`.
            on_epoch: Called after every epoch.

        Returns:
            The distribution.
        """
        integer("samples", samples, at_least=1)
        objective = EvidentialLoss(loss, evidence, kl, annealing)
        network, recipe = copied(model, seed), Recipe() if recipe is None else recipe
        more: Any = {"seed": seed, "folder": folder, "progress": progress, "on_epoch": on_epoch}
        history = train(network, data, validation, recipe=recipe, loss=objective, **more)
        fitted = cls(Classifier(network, preprocess=recipe.transform), evidence, samples=samples, seed=seed)
        fitted.history = history
        return fitted

    def dirichlet(self, x: Data, *, progress: bool | None = None) -> Tensor:
        """Compute the parameters α of each input's Dirichlet.

        Args:
            x: As in `predict`.
            progress: As in `nescio.score`.

        Returns:
            The parameters, float64 ``[N, C]``, all at least 1.
        """
        return concentration(Deterministic(self.classifiers[0]).logits(x, progress=progress)[0], self.evidence)

    def vacuity(self, x: Data, *, progress: bool | None = None) -> Tensor:
        """Compute C/α₀.

        Args:
            x: As in `predict`.
            progress: As in `nescio.score`.

        Returns:
            The values, float64 ``[N]``: from near 0 (much evidence) to 1 (none).
        """
        alpha = self.dirichlet(x, progress=progress)
        return alpha.shape[1] / alpha.sum(1)

    def decompose(self, x: Data, *, progress: bool | None = None) -> Decomposition:
        """Compute the kinds of doubt in closed form, without samples.

        Args:
            x: As in `predict`.
            progress: As in `nescio.score`.

        Returns:
            The kinds; epistemic is the distributional uncertainty.
        """
        return decomposed(self.dirichlet(x, progress=progress))

    def _logits(self, x: Inputs) -> Tensor:
        """The logarithm of the sampled probabilities."""
        z = self.classifiers[0].logits(x).to("cpu", torch.float64)
        return sampled(concentration(z, self.evidence), self.samples, self.seed)

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        settings = {"evidence": self.evidence, "samples": self.samples, "seed": self.seed}
        return settings, weights(self.classifiers[0])

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        more: Any = {key: settings[key] for key in ("evidence", "samples", "seed")}
        return cls(refilled(model, tensors, output="logits"), **more)


def concentration(z: Tensor, evidence: str) -> Tensor:
    """α = evidence + 1. The exponential is taken of at most 10, or a network could not be trained with it."""
    if evidence == "exp":
        return z.clamp(-10.0, 10.0).exp() + 1
    return (nn.functional.softplus(z) if evidence == "softplus" else z.relu()) + 1


@dataclass(frozen=True)
class EvidentialLoss:
    """The loss of an evidential network for `nescio.training.train`."""

    fit: Fit = "digamma"
    evidence: Evidence = "exp"
    kl: float = 1.0
    annealing: int = 10

    def __post_init__(self) -> None:
        choice("loss", self.fit, get_args(Fit))
        choice("evidence", self.evidence, get_args(Evidence))
        number("kl", self.kl, at_least=0)
        integer("annealing", self.annealing, at_least=0)

    def __call__(self, output: Tensor, y: Tensor, step: Step) -> Tensor:
        alpha = concentration(output, self.evidence)
        fit = misfit(alpha, y, self.fit).mean()
        weight = self.kl * (min(1.0, (step.epoch - 1) / self.annealing) if self.annealing else 1.0)
        return fit + weight * misleading(alpha, y).mean() if step.training and weight else fit


def misfit(alpha: Tensor, y: Tensor, kind: str) -> Tensor:
    """The part of the loss that depends on the label, one number for each input."""
    whole = alpha.sum(-1, keepdim=True)
    if kind == "mse":
        mean = alpha / whole
        hot = nn.functional.one_hot(y, alpha.shape[-1]).to(alpha.dtype)
        return ((hot - mean).square() + mean * (1 - mean) / (whole + 1)).sum(-1)
    own = alpha.gather(-1, y.unsqueeze(-1))
    function = torch.log if kind == "nll" else torch.digamma
    return (function(whole) - function(own)).squeeze(-1)


def misleading(alpha: Tensor, y: Tensor) -> Tensor:
    """KL(Dir(α̃)‖Dir(1)): how much evidence there is for wrong classes, one number for each input."""
    return divergence_from_flat(alpha.scatter(-1, y.unsqueeze(-1), 1.0))
