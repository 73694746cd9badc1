"""The sampled networks of a distribution, each as a function x ↦ z^s that has a gradient.

Sample s is one of several networks (ensembles), or one network with other weights (`Laplace`, `SWAG`, `Variational`)
or with fixed masks (`MCDropout`, `InsertedDropout`) while a block lasts. A `Member` is a network and that block. Logits
may be scaled afterwards (`Temperature`).

Samples that differ in the last layer alone (`InsertedDropout`, `Laplace`) share all layers before it. `fans` joins
several of them into one member, a network with d · C outputs, whose passes cost hardly more than those of one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nescio import inputs, posteriors
from nescio.attribution.defaults import MEMBERS
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier, ModelOrPosterior
from nescio.models.structure import replaced
from nescio.modes import eager, predicting, preserved
from nescio.posteriors import inserted
from nescio.posteriors.base import PosteriorBase
from nescio.posteriors.masks import Masks
from nescio.posteriors.sampled import SampledWeights
from nescio.types import InputError, Posterior, refuse_estimator

Enter = Callable[[Inputs], AbstractContextManager[object]]
Layer = Callable[[Tensor], Tensor]
DRAWS = 16
"""Samples that share a pass, at most."""


class Last(NamedTuple):
    """The last layer, and what it gives in this sample, from its own function and its input."""

    layer: nn.Module
    gives: Callable[[Layer, Tensor], Tensor]


@dataclass(frozen=True)
class Member:
    """A network, and what to enter so that it is sample s for a prepared batch.

    alone: its inputs cannot share a batch. finish: what is done to the logits. before: what is done to a batch first.
    last: the layer whose output is the network's, where samples differ there alone. draws: samples whose logits it
    gives, side by side.
    """

    network: Callable[[], Classifier]
    enter: Enter = lambda x: nullcontext()
    alone: bool = False
    finish: Callable[[Tensor], Tensor] = lambda z: z
    before: Callable[[Any], Any] = lambda x: x
    last: Last | None = None
    draws: int = 1

    def batch(self, x: Inputs) -> tuple[Classifier, Inputs]:
        """The network, and the batch prepared for it."""
        classifier = self.network()
        return classifier, classifier.prepare(self.before(x))

    def logits(self, x: Inputs, settle: Callable[[Classifier, Inputs], AbstractContextManager[Any]]) -> Tensor:
        """Logits of a batch without gradients, float64 [draws, N, C] on the CPU; `settle` gives the batch to run."""
        classifier, batch = self.batch(x)
        still = predicting(classifier)
        with preserved(classifier, again=False), still, eager(), self.enter(batch), settle(classifier, batch) as given:
            every = self.finish(classifier.logits(given)).to("cpu", torch.float64)
        return torch.stack(every.chunk(self.draws, 1))


def distribution(given: ModelOrPosterior, data: Data | None, output: str | None) -> tuple[Posterior, str]:
    """The distribution to explain, and what it is in words: for a single network one is put around it."""
    refuse_estimator(given)
    if isinstance(given, Posterior) and not isinstance(given, nn.Module | Classifier):
        if data is not None or output is not None:
            raise InputError("expected data= and output= with a single network only, got a distribution")
        return given, type(given).__name__
    if isinstance(given, list | tuple):
        raise InputError(f"expected a model or a distribution, got {describe(given)}; give DeepEnsemble(models)")
    classifier = Classifier.of(given, output)
    if data is None:
        made: PosteriorBase = posteriors.InsertedDropout(classifier, samples=MEMBERS)
        return made, f"inserted dropout (rate {made.p:g}) around the single network {classifier.name}"  # type: ignore[attr-defined]
    made = posteriors.Laplace(classifier, samples=MEMBERS).fit(data)
    return made, f"a Laplace posterior of the last layer around the single network {classifier.name}"


@singledispatch
def members(posterior: Posterior, x: Inputs) -> list[Member]:
    """The members of a distribution; x is a batch, of which the first input may be looked at.

    Each kind of distribution registers how it is done (`members.register`); any other has networks as `classifiers`.
    """
    networks = getattr(posterior, "classifiers", ())
    if not networks:
        raise _no_networks(posterior)
    return [Member(lambda one=one: Classifier.of(one)) for one in networks]  # type: ignore[misc]


@members.register
def _of_another_kind(posterior: PosteriorBase, x: Inputs) -> list[Member]:
    raise _no_networks(posterior)


def _no_networks(posterior: object) -> InputError:
    return InputError(
        "expected a distribution whose samples are networks (an ensemble, dropout, Laplace, SWAG, variational "
        f"weights), got {describe(posterior)}, whose samples have no gradient at the input; explain one of those"
    )


@members.register
def _single(posterior: posteriors.Deterministic, x: Inputs) -> list[Member]:
    return [Member(_own(posterior))]


@members.register
def _tempered(posterior: posteriors.Temperature, x: Inputs) -> list[Member]:
    return [replace(m, finish=_scaled(posterior, m.finish)) for m in members(posterior.base, x)]


@members.register
def _ensemble(posterior: posteriors.DeepEnsemble, x: Inputs) -> list[Member]:
    return [Member(_placed(posterior, at)) for at in range(len(posterior.classifiers))]


@members.register
def _sampled_weights(posterior: SampledWeights, x: Inputs) -> list[Member]:
    return [Member(_own(posterior), _drawn(posterior, sample)) for sample in range(posterior.samples)]


def fans(every: list[Member]) -> list[Member]:
    """The same samples in fewer members: those that differ in the last layer alone share a pass, some at a time."""
    last = every[0].last
    if last is None or not all(m.last is not None and m.last.layer is last.layer for m in every):
        return every
    return [_fan(every[start : start + DRAWS]) for start in range(0, len(every), DRAWS)]


def _fan(some: list[Member]) -> Member:
    first, each = some[0], [m.last.gives for m in some if m.last is not None]
    assert first.last is not None
    layer, finish, network = first.last.layer, first.finish, first.network

    def wider() -> Classifier:
        own = copy(network())
        own._count = None  # it has other outputs than the network
        return own

    def gives(own: Layer, h: Tensor) -> Tensor:
        return torch.cat([one(own, h) for one in each], 1)

    def finished(z: Tensor) -> Tensor:
        return finish(z.unflatten(1, (len(some), -1)).flatten(0, 1)).view_as(z)

    return replace(
        first, network=wider, enter=lambda x: _instead(layer, gives), finish=finished, last=None, draws=len(some)
    )


def running(posterior: Posterior) -> AbstractContextManager[object]:
    """What a distribution holds while it is worked with."""
    return posterior._running() if isinstance(posterior, PosteriorBase) else nullcontext()


def _own(posterior: PosteriorBase) -> Callable[[], Classifier]:
    return lambda: posterior.classifiers[0]


def _placed(posterior: posteriors.DeepEnsemble, at: int) -> Callable[[], Classifier]:
    return lambda: posterior._placed(at)


def _scaled(posterior: posteriors.Temperature, inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What is done to the logits after `inner`, which may scale them too."""

    def scaled(z: Tensor) -> Tensor:
        z = inner(z)
        if posterior.scale is None or posterior.shift is None:
            return posterior._scaled(z)
        return z * posterior.scale.to(z) + posterior.shift.to(z)

    return scaled


def _drawn(posterior: SampledWeights, sample: int) -> Enter:
    @contextmanager
    def enter(x: Inputs) -> Iterator[None]:
        module = posterior.classifiers[0].module
        assert module is not None
        with torch.no_grad():
            posterior._enter(sample)
        with replaced(module, posterior.weights(sample)):
            yield

    return enter


@members.register
def _dropout(posterior: posteriors.MCDropout, x: Inputs) -> list[Member]:
    classifier = posterior.classifiers[0]
    first = inputs.take(classifier.prepare(x), slice(0, 1))
    with preserved(classifier), predicting(classifier), eager():
        units = posterior._units(first)

    def enter(sample: int) -> Enter:
        def masks(x: Inputs) -> Masks:
            if units is None:
                return Masks(posterior.seed, sample)
            return Masks(posterior.seed, sample, inputs.size(x), units)

        return masks

    return [Member(_own(posterior), enter(sample), alone=units is None) for sample in range(posterior.samples)]


@members.register
def _inserted(posterior: posteriors.InsertedDropout, x: Inputs) -> list[Member]:
    classifier = posterior.classifiers[0]
    first = inputs.take(classifier.prepare(x), slice(0, 1))
    with preserved(classifier), predicting(classifier), eager():
        call, logits = inserted.last_call(classifier, first, inserted.possible_layers(classifier, posterior.layer))
    if call is None:
        raise inserted.no_layer(classifier, posterior.layer)
    axis = 1 if isinstance(call.layer, nn.modules.conv._ConvNd) else -1
    masks = inserted.draw_masks(posterior.p, posterior.samples, posterior.seed, call.given.shape[axis]).to(call.given)
    layer = call.layer
    at_end = call.times == 1 and call.given.ndim == 2 and inserted.is_output(call, logits)

    def member(mask: Tensor) -> Member:
        last = Last(layer, lambda own, h: own(h * mask)) if at_end else None
        return Member(_own(posterior), lambda x: inserted.dropping(layer, mask, axis), last=last)

    return [member(mask) for mask in masks]


@members.register
def _laplace(posterior: posteriors.Laplace, x: Inputs) -> list[Member]:
    """Draws as weights of the last layer: z^s = (W + ΔW^s) h + b + Δb^s."""
    if posterior.link != "sample":
        raise InputError(
            f"expected a Laplace posterior with link='sample', got link={posterior.link!r}, which has no draws; "
            "make it with link='sample'"
        )
    curvature = posterior._fitted()
    shape, layer = curvature.values.shape, posterior._layer_module()
    identity = torch.eye(shape[1], dtype=torch.float64)

    def member(sample: int) -> Member:
        def gives(_: Layer, h: Tensor) -> Tensor:
            noise = posterior._noise(sample, shape)
            moved = curvature.shift(identity, curvature.weights(noise, posterior.precision))[0].T
            weight = layer.weight.detach()
            bias = None if layer.bias is None else layer.bias.detach() + moved[:, -1].to(weight)
            return nn.functional.linear(h, weight + moved[:, : weight.shape[1]].to(weight), bias)

        last = Last(layer, gives) if layer.out_features > 1 else None  # a single one is made two outside of the network
        return Member(_own(posterior), lambda x: _instead(layer, gives), last=last)

    return [member(sample) for sample in range(posterior.samples)]


@contextmanager
def _instead(layer: nn.Module, gives: Callable[[Layer, Tensor], Tensor]) -> Iterator[None]:
    """Inside, the layer gives that, whatever its weights are made of or shared with."""
    before, own = layer.__dict__.get("forward"), layer.forward
    layer.__dict__["forward"] = lambda h: gives(own, h)
    try:
        with eager():
            yield
    finally:
        if before is None:
            del layer.__dict__["forward"]
        else:
            layer.__dict__["forward"] = before
