"""Distributions over weights: sample s is the network with weights θ^s, the same for all inputs.

z^s_n = z(x_n; θ^s),   θ^s drawn from the seed, s and the shapes of the model alone
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from nescio._common.argument_checks import integer
from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.models.structure import listing
from nescio.posteriors.base import PosteriorBase
from nescio.posteriors.saving import check_tensors
from nescio.training import seeded, spawned
from nescio.types import InputError, ModelError

KEPT_BYTES = 2**31
"""Drawn weights are kept for the next batch while all of them together are no larger than this."""


class SampledWeights(PosteriorBase):
    """Base of the distributions that draw weights: a subclass says what the weights of a sample are."""

    def __init__(self, classifier: Classifier, samples: int, seed: int) -> None:
        self.classifiers = (classifier,)
        self.samples, self.seed = integer("samples", samples, at_least=1), integer("seed", seed, at_least=0)
        self._kept: dict[tuple[int, torch.device | None], Mapping[str, Tensor]] = {}
        self._kept_for: tuple[float, ...] = ()

    def _settings(self) -> tuple[float, ...]:
        """What the draws depend on beside the model: where it was changed, they are made anew."""
        return (self.samples, self.seed)

    def _by_name(self, values: Mapping[str, Tensor], *more: int) -> dict[str, Tensor]:
        """A tensor ``[*more, ...]`` for each parameter, checked, on the CPU, and in the model's order, as draws are."""
        means = self.classifiers[0].parameters()
        if unknown := [name for name in values if name not in means]:
            raise InputError(f"expected names of parameters of the model, got {listing(unknown)}")
        check_tensors(values, {name: (*more, *means[name].shape) for name in values})
        return {name: values[name].detach().cpu() for name in means if name in values}

    @abstractmethod
    def _draw(self, sample: int, random: torch.Generator) -> dict[str, Tensor]:
        """The weights of a sample on the CPU, or wherever they are; random numbers come from this generator (CPU)."""

    def _enter(self, sample: int) -> None:
        """Change what else differs between samples, in the model's buffers; they are put back afterwards."""

    def weights(self, sample: int) -> Mapping[str, Tensor]:
        """The weights θ^s by name, on the model's device."""
        device = self.classifiers[0].device
        if self._kept_for != self._settings():
            self._kept, self._kept_for = {}, self._settings()
        if (kept := self._kept.get((sample, device))) is not None:
            return kept
        random = torch.Generator().manual_seed(spawned(self.seed, sample))
        drawn = {name: value.to(device) for name, value in self._draw(sample, random).items()}
        if self.samples * sum(value.numel() * value.element_size() for value in drawn.values()) <= KEPT_BYTES:
            self._kept[sample, device] = drawn
        return drawn

    def _logits(self, x: Inputs) -> Tensor:
        logits = []
        for sample in range(self.samples):
            self._enter(sample)
            logits.append(self.classifiers[0].functional(self.weights(sample), x))
        return torch.stack(logits)


def copied(model: Callable[..., Any], seed: int) -> nn.Module:
    """A network to train: a deep copy of a module, or what a function without arguments makes from the seed."""
    if isinstance(model, nn.Module):
        return deepcopy(model)
    return network_from(model, seed)


def network_from(factory: Callable[[], Any], seed: int) -> nn.Module:
    """A network from a function without arguments, which draws its weights from the seed."""
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ModelError(
            f"expected a function without arguments that makes a new network, got {describe(factory)}; "
            "give its class, or lambda: Network(...)"
        )
    with seeded(seed):
        network = factory()
    if not isinstance(network, nn.Module):
        raise ModelError(f"expected the function to make a torch.nn.Module, got {describe(network)}")
    return network
