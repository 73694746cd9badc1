"""Bayes by backprop (Blundell et al. 2015): a Gaussian of independent weights, fitted by its evidence lower bound.

    q(θ) = Π_j N(μ_j, σ_j²),   σ = softplus(ρ),   θ = μ + σ ⊙ ε
    minimise  (1/B) Σ_b −log p(y_b | x_b, θ) + (w/N) KL(q‖p),   one ε for each batch
    KL(N(μ, σ²) ‖ N(m, s²)) = log(s/σ) + (σ² + (μ − m)²)/(2s²) − ½,   summed over all weights

w is `kl_weight`, which rises from 0 during the first epochs where `annealing` says so. The prior is that of
`nescio.posteriors.prior`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from nescio._common.argument_checks import integer, number
from nescio.inputs import Data
from nescio.models import Classifier, ModelLike
from nescio.models.structure import replaced
from nescio.posteriors.prior import prior
from nescio.posteriors.sampled import SampledWeights, copied
from nescio.posteriors.saving import refilled, saved, weights
from nescio.training import Epoch, Recipe, Step, train
from nescio.types import InputError

RECIPE = Recipe(optimizer="adam", lr=3e-3, weight_decay=0.0)


@saved("variational")
class Variational(SampledWeights):
    """Draw networks whose weights are independent Gaussians, fitted by variational inference (Blundell et al. 2015).

    `Variational.train` makes one.

    Args:
        model: The network with the mean weights.
        stds: The standard deviations of its parameters by name; the others are fixed.
        samples: S, the number of networks that `predict` draws.
        seed: Of the draws.

    Examples:
        >>> model = torch.nn.Linear(4, 3)
        >>> posterior = Variational(model, {"weight": torch.full((3, 4), 0.1)}, samples=5)
        >>> posterior.predict(torch.rand(6, 4)).shape
        torch.Size([5, 6, 3])
    """

    def __init__(
        self, model: Classifier | nn.Module, stds: dict[str, Tensor], *, samples: int = 30, seed: int = 0
    ) -> None:
        super().__init__(Classifier.of(model, dense=True), samples, seed)
        self.stds = self._by_name(stds)
        if any(bool((std < 0).any()) for std in stds.values()):
            raise InputError("expected standard deviations of at least 0, got some below")
        self.history: list[Epoch] = []

    @classmethod
    def train(
        cls,
        model: Callable[..., Any],
        data: Data,
        validation: Data | None = None,
        *,
        samples: int = 30,
        prior_std: float | None = None,
        initial_std: float = 0.02,
        kl_weight: float = 1.0,
        annealing: int = 0,
        recipe: Recipe | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        on_epoch: Callable[[Epoch], object] | None = None,
    ) -> Self:
        """Fit the distribution of the weights to labelled data.

        Args:
            model: A network, of which a deep copy is trained, or a function that makes one.
            data: Labelled training data, as in `nescio.training.train`.
            validation: Labelled data, on which the network with the mean weights is measured.
            samples: S, the number of networks that `predict` draws.
            prior_std: The standard deviation of the prior; None takes the fan-in of each layer.
            initial_std: The standard deviation of every weight at the start.
            kl_weight: The weight of the divergence from the prior; below 1 it tempers the posterior.
            annealing: In how many epochs this weight rises from 0.
            recipe: How to train. Its weight decay is not used: the prior is in its place.
            seed: As in `nescio.training.train`; so are folder, progress and on_epoch.
            folder: Where the state is kept.
            progress: As in `nescio.score`.
            on_epoch: Called after every epoch.

        Returns:
            The distribution.
        """
        number("initial_std", initial_std, above=0)
        integer("samples", samples, at_least=1)
        loss = Bound(number("kl_weight", kl_weight, above=0), integer("annealing", annealing, at_least=0), prior_std)
        network = MeanField(copied(model, seed), prior_std, initial_std)
        recipe = replace(recipe or RECIPE, weight_decay=0.0)
        more: Any = {"seed": seed, "folder": folder, "progress": progress, "on_epoch": on_epoch}
        history = train(network, data, validation, recipe=recipe, loss=loss, **more)
        stds = {name: std.detach() for name, std in network.stds().items()}
        fitted = cls(Classifier(network.inner, preprocess=recipe.transform), stds, samples=samples, seed=seed)
        fitted.history = history
        return fitted

    def _draw(self, sample: int, random: torch.Generator) -> dict[str, Tensor]:
        means = self.classifiers[0].parameters()
        return {
            name: (means[name].detach().cpu() + std * torch.randn(std.shape, generator=random, dtype=std.dtype))
            for name, std in self.stds.items()
        }

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        settings = {"samples": self.samples, "seed": self.seed, "output": self.classifiers[0].output}
        return settings, weights(self.classifiers[0], "model.") | {f"std.{n}": std for n, std in self.stds.items()}

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        classifier = refilled(model, tensors, "model.", settings["output"])
        stds = {name.removeprefix("std."): std for name, std in tensors.items() if name.startswith("std.")}
        return cls(classifier, stds, samples=settings["samples"], seed=settings["seed"])


class MeanField(nn.Module):
    """A network with a mean and a ρ for each weight: in training mode it draws weights, in eval mode it has the means.

    Its own parameters are the means; those that are frozen stay fixed.
    """

    def __init__(self, network: nn.Module, prior_std: float | None, initial_std: float) -> None:
        super().__init__()
        self.inner = network
        self.prior = prior(Classifier.of(network), prior_std)
        named = Classifier.of(network).parameters()
        self.means = {name: named[name] for name in self.prior}  # μ: the network's own parameters, registered there
        start = torch.tensor(initial_std, dtype=torch.float64).expm1().log().item()  # softplus(start) = initial_std
        self.rho = nn.ParameterList([torch.full_like(mean, start) for mean in self.means.values()])

    def stds(self) -> dict[str, Tensor]:
        """σ by name."""
        return {name: nn.functional.softplus(rho) for name, rho in zip(self.means, self.rho, strict=True)}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the network returns, with weights drawn for this batch in training mode."""
        if not self.training:
            return self.inner(*args, **kwargs)
        stds = self.stds()
        drawn = {name: mean + stds[name] * torch.randn_like(mean) for name, mean in self.means.items()}
        with replaced(self.inner, drawn):
            return self.inner(*args, **kwargs)

    def kl(self) -> Tensor:
        """KL(q‖p), summed over all weights."""
        stds = self.stds()
        return torch.stack(
            [gaussian_kl(mean, stds[name], *self.prior[name]).sum() for name, mean in self.means.items()]
        ).sum()


def gaussian_kl(mean: Tensor, std: Tensor, prior_mean: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std²) ‖ N(prior_mean, prior_std²)), elementwise."""
    ratio = (std / prior_std).square()
    return 0.5 * (ratio + ((mean - prior_mean) / prior_std).square() - 1.0 - ratio.log())


@dataclass(frozen=True)
class Bound:
    """The negative evidence lower bound of a batch, divided by its size; on validation data its data term alone."""

    kl_weight: float = 1.0
    annealing: int = 0
    prior_std: float | None = None
    """Not used here, but part of what the loss is: a run does not go on with another one."""

    def __call__(self, output: Tensor, y: Tensor, step: Step) -> Tensor:
        fit = nn.functional.cross_entropy(output, y)
        if not step.training:
            return fit
        assert isinstance(step.model, MeanField)
        share = min(1.0, (step.epoch - 1) / self.annealing) if self.annealing else 1.0
        return fit + self.kl_weight * share / step.count * step.model.kl()
