"""Why it doubts: maps over an input that say which part of it causes the uncertainty.

    maps = nescio.explain(posterior, x)                                    # UA-Backprop over FullGrad, epistemic
    maps = nescio.explain(posterior, x, of="total", path="gradcam")
    maps = nescio.explain(posterior, x, of=("epistemic", "aleatoric"))["aleatoric"]     # several kinds at once
    maps = nescio.explain(model, x)                                        # a single network, with dropout inserted
    maps = nescio.explain(posterior, x, "integrated_gradients", steps=100)

| method | attributes | adds up to U |
|---|---|---|
| `ua_backprop` | U through probabilities and logits; path = fullgrad, gradient, smoothgrad, gradcam | yes |
| `gradient`, `smoothgrad`, `fullgrad` | U itself, as magnitudes | no |
| `integrated_gradients`, `blur_ig` | U itself, along a path | but for the uncertainty at its start |
| `blur_gradient` | U itself, by what blurring a pixel takes away to first order | no |
| `clue`, `delta_clue` | the change to a less uncertain input (needs a `VAE`) | no |
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import chain
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio._common.chunking import at_once, in_chunks
from nescio._common.formatting import percent
from nescio.attribution import uncertainty
from nescio.attribution.base import MapMethod
from nescio.attribution.clue import CLUE, DeltaCLUE
from nescio.attribution.direct import BlurGradient, BlurIG, FullGrad, Gradient, IntegratedGradients, SmoothGrad
from nescio.attribution.problem import Problem
from nescio.attribution.refusing_positions import refusing_positions
from nescio.attribution.result import Attribution
from nescio.attribution.sampled_members import Member, distribution, fans, members, running
from nescio.attribution.source import Channels, Source, as_floats
from nescio.attribution.ua_backprop import CLASSES_AT_ONCE, UABackprop
from nescio.attribution.vae import VAE
from nescio.inputs import Data, Inputs
from nescio.models import ModelOrPosterior
from nescio.modes import preserved
from nescio.posteriors.base import total
from nescio.posteriors.masks import Unshared
from nescio.progress import bar
from nescio.types import InputError, ModelError

METHODS: dict[str, type[MapMethod]] = {
    m.name: m
    for m in (UABackprop, Gradient, SmoothGrad, FullGrad, IntegratedGradients, BlurIG, BlurGradient, CLUE, DeltaCLUE)
}


class _Chunk(NamedTuple):
    """The results of a chunk of inputs; drawn: how many maps of how many logits each has, or 0 where it has all."""

    maps: Tensor
    uncertainty: Tensor
    error: Tensor | None
    parts: Tensor
    drawn: tuple[int, int]


@overload
def explain(
    posterior: ModelOrPosterior, x: Data, method: str | MapMethod = ..., *, of: uncertainty.Of = ..., **more: Any
) -> Attribution: ...  # one kind
@overload
def explain(
    posterior: ModelOrPosterior, x: Data, method: str | MapMethod = ..., *, of: Sequence[uncertainty.Of], **more: Any
) -> dict[str, Attribution]: ...  # several


def explain(
    posterior: ModelOrPosterior,
    x: Data,
    method: str | MapMethod = "ua_backprop",
    *,
    of: uncertainty.Of | Sequence[uncertainty.Of] = "epistemic",
    parts: bool = False,
    channels: Channels = "auto",
    data: Data | None = None,
    output: str | None = None,
    chunk: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Attribution | dict[str, Attribution]:
    """Find which part of each input causes its uncertainty.

    Args:
        posterior: A distribution whose samples are networks, or a single network: then dropout is inserted before its
            last linear layer, or, with labelled training ``data``, its last layer gets a Laplace posterior.
        x: A batch (pictures ``[N, channels, H, W]``, features ``[N, F]``, embeddings ``[N, T, D]``, token indices
            ``[N, T]``, or a mapping with one of these), or an iterable of batches.
        method: The name of a method, or a method with its settings, such as ``UABackprop(tau2=0.05)``.
        of: "epistemic", "aleatoric" or "total"; or several of them, which UA-Backprop explains in one pass.
        parts: Also keep the map of each member.
        channels: The dimension of x that holds features, and not places; "auto": 1 for pictures, the last of
            ``[N, T, D]``.
        data: Labelled training data for a single network.
        output: What a single network returns, as in `nescio.Classifier`.
        chunk: Inputs at a time; None chooses. Results do not depend on it.
        progress: True shows a bar, False none, None one where it takes long.
        settings: Settings of the method: path, classes, tau1, tau2, copies, steps, baseline, vae … With many classes
            UA-Backprop (``classes="auto"``) draws 16 of all members' logits, by their share of the doubt. So the cost
            does not grow with the classes, and `Attribution.error` says how far a map may be off. ``classes="exact"``
            takes all logits, with one backward pass for each.

    Returns:
        An `Attribution` with maps ``[N, H, W]``, ``[N, F]`` or ``[N, T]``, float64 on the CPU; for several kinds of
        uncertainty a dict with one for each.

    Raises:
        InputError: The method, its settings or the inputs cannot be used.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> nescio.explain(nescio.posteriors.InsertedDropout(model, samples=5), torch.rand(2, 4)).maps.shape
        torch.Size([2, 4])
    """
    chosen = with_settings(method, settings)
    if parts and not isinstance(chosen, UABackprop):
        raise InputError(f"expected parts=True with method='ua_backprop' only, got it with {chosen.name!r}")
    if chunk is not None:
        integer("chunk", chunk, at_least=1)
    kinds = uncertainty.kinds(of)
    with torch.inference_mode(False):
        model, words = distribution(posterior, data, output)
    chunks: dict[str, list[_Chunk]] = {kind: [] for kind in kinds}
    count = 0
    shows = bar(total(x), show=progress, description="explaining")
    with torch.inference_mode(False), preserved(model), running(model), shows as shown:
        for given in inputs.batches(x):
            batch = inputs.apply(given, _ordinary)
            if inputs.size(batch) == 0:
                raise InputError("expected batches of at least one input, got none; leave empty batches out")
            with refusing_positions(model, batch):
                all_members = [as_floats(member, batch) for member in members(model, batch)]
            for kind in kinds:
                uncertainty.check_kind(kind, len(all_members))
            source = Source.of(inputs.as_inputs(all_members[0].before(batch)), channels)
            count = len(all_members)

            with refusing_positions(model, batch):
                own, size = _shared(chosen, all_members, source, batch, parts)

            def part(
                start: int, stop: int, batch: Inputs = batch, own: Any = own, source: Source = source
            ) -> dict[str, _Chunk]:
                problem = Problem(own, source, kinds[0], inputs.take(batch, slice(start, stop)))
                every = _attributed(chosen, problem, kinds, parts)
                shown.update(stop - start)
                return every

            def step(start: int, stop: int, part: Any = part) -> list[dict[str, _Chunk]]:
                if stop - start > 1:
                    with suppress(Unshared):
                        return [part(start, stop)]
                return [part(at, at + 1) for at in range(start, stop)]  # as `MCDropout.predict` does

            size = 1 if any(member.alone for member in all_members) else chunk or size
            for piece in chain.from_iterable(in_chunks(inputs.size(batch), size, step)):
                for kind, value in piece.items():
                    chunks[kind].append(value)
    about = f"uncertainty of {words} ({count} members), by {chosen.words}"
    results = {kind: _result(chunks[kind], kind, chosen, f"{kind} {about}", parts) for kind in kinds}
    return results[of] if isinstance(of, str) else results


def _ordinary(value: Tensor) -> Tensor:
    """The tensor, or a copy that a graph can hold where it was made in inference mode."""
    return value.clone() if value.is_inference() else value


def _attributed(method: MapMethod, problem: Problem, kinds: tuple[str, ...], parts: bool) -> dict[str, _Chunk]:
    """What is found for each kind, with the uncertainty that was attributed."""
    logits = problem.logits
    maps, error, drawn = method.several(problem, kinds)
    return {
        kind: _Chunk(
            own.sum(0).cpu(),
            uncertainty.value(logits, kind),
            None if error is None else error[at],
            (own if parts else own[:0]).cpu(),
            (drawn, logits[:, 0].numel()),
        )
        for at, (kind, own) in enumerate(zip(kinds, maps, strict=True))
    }


def _result(chunks: list[_Chunk], of: str, method: MapMethod, about: str, parts: bool) -> Attribution:
    _check_shapes([one.maps for one in chunks])
    maps, value = torch.cat([one.maps for one in chunks]), torch.cat([one.uncertainty for one in chunks])
    drawn, logits = chunks[0].drawn
    errors = [one.error for one in chunks if one.error is not None]
    error = torch.cat(errors) if errors else None
    if error is not None:
        elsewhere = percent(float(error.mean()), 2)
        about += (
            f"; {drawn} of {logits:,} maps of logits were drawn, so that about {elsewhere} of the doubt lies elsewhere "
            "than with all of them"
        )
    if not bool(maps.isfinite().all()):
        raise InputError(
            "expected finite maps, got NaN or infinite ones; look for an overflow in the network's gradients"
        )
    return Attribution(
        maps=maps,
        uncertainty=value,
        residual=maps.flatten(1).sum(1) - value,
        of=of,
        method=method.name,
        about=about,
        parts=torch.cat([one.parts for one in chunks], dim=1) if parts else None,
        drawn=drawn,
        error=error,
    )


def _shared(
    method: MapMethod, own: list[Member], source: Source, batch: Inputs, apart: bool
) -> tuple[list[Member], int]:
    """The members whose passes are made, which may share one (unless `apart`), and how many inputs go at a time.

    With UA-Backprop each input becomes as many rows as there are logits in a backward pass.
    """
    first = inputs.take(batch, slice(0, 1))
    size = at_once(own[0].batch(first)[1], None)  # where the network is, which x need not be
    if not isinstance(method, UABackprop):
        return own, size

    def classes(some: list[Member]) -> int:
        return Problem(some[:1], source, "total", first).logits.shape[2]

    # signs come from a gradient of each member
    if not apart and not method.signed and (few := fans(own)) != own:
        with suppress(RuntimeError, InputError, ModelError):  # a network that takes no more outputs than it has
            return few, _fitting(size, method.rows(classes(few), few[0].draws, len(own)))
    return own, _fitting(size, method.rows(classes(own), 1, len(own)))


def _fitting(size: int, rows: int) -> int:
    """Inputs at a time, where a forward pass takes `size`, and a backward pass so many rows of each."""
    return max(1, 2 * size // min(rows, CLASSES_AT_ONCE))


def _check_shapes(maps: list[Tensor]) -> None:
    if len({m.shape[1:] for m in maps}) > 1:
        listing = ", ".join(sorted({str(list(m.shape[1:])) for m in maps}))
        raise InputError(f"expected batches of inputs of one shape, got maps of {listing}; explain them one by one")


def with_settings(method: str | MapMethod, settings: dict[str, Any]) -> MapMethod:
    """Return the method with its settings, checked."""
    if isinstance(method, MapMethod):
        if settings:
            raise InputError(f"expected settings in {type(method).__name__}(...) or beside its name, got both")
        return method
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"expected method= to be one of {', '.join(METHODS)}, got {method!r}")
    known = [field.name for field in fields(METHODS[method])]
    if strange := [name for name in settings if name not in known]:
        some = f"it has {', '.join(known)}" if known else "it has none"
        raise InputError(f"expected settings of {method!r}, got {', '.join(map(repr, strange))}; {some}")
    return METHODS[method](**settings)


__all__ = [
    "explain",
    "Attribution",
    "METHODS",
    "UABackprop",
    "Gradient",
    "SmoothGrad",
    "FullGrad",
    "IntegratedGradients",
    "BlurIG",
    "BlurGradient",
    "CLUE",
    "DeltaCLUE",
    "VAE",
]
