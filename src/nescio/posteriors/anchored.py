"""Anchored ensembles (Pearce et al. 2020): every member is held near a draw of its own from the prior.

    θ_anc ~ N(m, diag σ²),   minimise  (1/B) Σ_b −log p(y_b | x_b, θ) + (1/N) Σ_j (θ_j − θ_anc,j)²/(2σ_j²)

A member that is regularised towards zero, as by weight decay, finds one maximum of the posterior; minima around random
anchors spread like the posterior itself. The prior is that of `nescio.posteriors.prior`, by fan-in unless it is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from nescio.inputs import Data
from nescio.models import Classifier
from nescio.posteriors.ensemble import DeepEnsemble, recipe_from
from nescio.posteriors.prior import prior
from nescio.posteriors.saving import saved
from nescio.training import Recipe, Step, spawned


@saved("anchored_ensemble")
class AnchoredEnsemble(DeepEnsemble):
    """Take an ensemble whose members were held near draws from the prior in training (Pearce et al. 2020).

    `AnchoredEnsemble.train` makes one; the arguments here are those of `DeepEnsemble`.

    Args:
        models: The members, two or more.
        device: As for `DeepEnsemble`.
        one_at_a_time: As for `DeepEnsemble`.
        output: What the models return, as in `nescio.score`.

    Examples:
        >>> data = torch.rand(20, 4), torch.arange(20) % 3
        >>> make = lambda: torch.nn.Linear(4, 3)
        >>> ensemble = nescio.posteriors.AnchoredEnsemble.train(make, data, members=2, epochs=1, progress=False)
        >>> ensemble.predict(torch.rand(5, 4)).shape
        torch.Size([2, 5, 3])
    """

    @classmethod
    def train(
        cls,
        factory: Callable[[], nn.Module],
        data: Data,
        validation: Data | None = None,
        *,
        members: int = 5,
        prior_std: float | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        recipe: Recipe | None = None,
        **settings: Any,
    ) -> Self:
        """Train members, each with an anchor and random numbers of its own.

        Args:
            factory: As for `DeepEnsemble.train`; so are data, validation, members, seed, folder, progress and recipe.
            data: Labelled training data.
            validation: Labelled data that choose the best epoch.
            members: How many.
            prior_std: The standard deviation of the prior; None takes the fan-in of each layer.
            seed: Of all random numbers.
            folder: Where the state is kept.
            progress: As in `nescio.score`.
            recipe: How to train. Its weight decay is not used: the anchor is in its place.
            settings: Those of `nescio.training.Recipe`, in place of a recipe.

        Returns:
            The ensemble.
        """
        recipe = replace(recipe_from(recipe, settings), weight_decay=0.0)
        more: Any = {"members": members, "seed": seed, "folder": folder, "progress": progress}

        def loss(model: nn.Module, member: int) -> AnchoredLoss:
            return AnchoredLoss.drawn(model, prior_std, spawned(seed, member, 1))

        return cls._trained(factory, data, validation, recipe, loss, **more)


@dataclass(frozen=True)
class AnchoredLoss:
    """The cross-entropy, and in training the pull towards the anchors."""

    prior_std: float | None
    seed: int
    terms: list[tuple[Tensor, Tensor, float]] = field(repr=False)
    """Parameters, their anchors and the standard deviations of their prior."""

    @classmethod
    def drawn(cls, model: nn.Module, prior_std: float | None, seed: int) -> Self:
        """With anchors from the prior of the model's weights."""
        classifier, random = Classifier.of(model), torch.Generator().manual_seed(seed)
        named, terms = classifier.parameters(), []
        for name, (mean, std) in prior(classifier, prior_std).items():
            noise = torch.randn(mean.shape, generator=random, dtype=mean.dtype).to(mean.device)
            terms.append((named[name], mean + std * noise, std))
        return cls(prior_std, seed, terms)

    def __call__(self, output: Tensor, y: Tensor, step: Step) -> Tensor:
        fit = nn.functional.cross_entropy(output, y)
        return fit + self.penalty() / step.count if step.training else fit

    def penalty(self) -> Tensor:
        """Σ_j (θ_j − θ_anc,j)²/(2σ_j²)."""
        return torch.stack([(now - anchor).square().sum() / (2 * std**2) for now, anchor, std in self.terms]).sum()
