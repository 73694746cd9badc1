"""A score at every position: the map ``[N, *positions]`` of a method of logits, predictions or gradients.

    logits [N, *positions, C]  ─►  rows [N · P, C], some at a time  ─►  the method  ─►  a map [N, *positions]

A position is one more input to a method, so none of them has a line of its own here. The rows are taken a few at a
time, on the model's device: beyond the logits a map takes little more memory than itself. Gradients are those of the
last layer, in closed form (`nescio.dense.head`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio.dense.gradient_maps import kept, refuse, scores
from nescio.dense.head import Head, logits_and_head
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.positions import found_plain, unknown
from nescio.modes import predicting
from nescio.quantities import GradientNorms, Logits, Request
from nescio.quantities.base import Budget
from nescio.scores import Method
from nescio.scores.gradients import GradientScore
from nescio.types import InputError

CPU_NUMBERS, GPU_NUMBERS = 2**18, 2**23
"""Probabilities that are worked on at a time: what stays in the caches of a CPU, and what keeps a GPU busy."""
_COPIES = 16 * 8
"""Bytes for each of them, with all that a method makes of it in float64."""


@dataclass(frozen=True)
class PositionMap(Request):
    """Request the map of a method, float64 ``[N, *positions]`` on the CPU.

    Args:
        method: The method, which needs logits, predictions or norms of gradients alone.

    Examples:
        >>> network = torch.nn.Conv2d(3, 5, 1)
        >>> request = PositionMap(nescio.scores.Entropy())
        >>> classifier = nescio.Classifier(network, output="dense")
        >>> nescio.quantities.compute(classifier, torch.rand(2, 3, 8, 8), [request])[request].shape
        torch.Size([2, 8, 8])
    """

    method: Method

    of_posterior: ClassVar[bool] = True

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Compute the map in a forward pass of its own."""
        return self.answer_together([self], classifier, x, budget)[0]

    @property
    def shared_work(self) -> Hashable:
        """The forward pass, which all maps share."""
        return PositionMap

    @classmethod
    def answer_together(
        cls, requests: Sequence[Any], classifier: Classifier, x: Inputs, budget: Budget
    ) -> Sequence[Tensor]:
        """Compute the maps of several methods from one forward pass over the batch, in chunks."""

        def step(start: int, stop: int) -> list[Tensor]:
            return maps_of(requests, classifier, inputs.take(x, slice(start, stop)), budget.memory_gb)[1]

        with predicting(classifier):
            chunks = in_chunks(inputs.size(x), at_once(x, budget.chunk), step)
        return [torch.cat(parts) for parts in zip(*chunks, strict=True)]

    def _read(self, logits: Tensor, head: Head | None, classifier: Classifier, memory_gb: float | None) -> Tensor:
        """The map from the logits ``[N, *positions, C]`` of one forward pass, and its last layers."""
        wanted = self.method.needs[0]
        if head is None or not isinstance(wanted, GradientNorms):
            return by_position(self.method, logits, memory_gb)
        names = head.names(wanted.layers)
        chosen = kept(names, wanted)
        sizes = head.sizes(wanted.layers, wanted.norm)
        if len(chosen) < len(names):
            sizes, names = sizes[..., chosen], tuple(names[at] for at in chosen)
        binary = classifier.output == "binary"

        def rows(z: Tensor, own: Tensor) -> Tensor:
            joined = names
            if isinstance(self.method, GradientScore):  # the strength of a multiple is that multiple of it
                own, joined = self.method.strength(own)[..., None], ("+".join(names),)
            return scores(self.method, z, own, joined, wanted, binary)

        return by_position(rows, logits, memory_gb, sizes, convert=_same)

    def answer_from_predictions(self, p: Tensor) -> Tensor:
        """Compute the map from the probabilities ``[S, N, *positions, C]`` of a posterior."""

        def rows(part: Tensor) -> Tensor:
            return self.method(*(request.answer_from_predictions(part) for request in self.method.needs))

        return _in_parts(rows, [p], 1, None)


@dataclass(frozen=True)
class Mapped:
    """Take a method as one that gives maps: it needs its `PositionMap`, and is that.

    Args:
        method: The method.
    """

    method: Method

    name: ClassVar[str] = "map"

    @property
    def needs(self) -> tuple[Request, ...]:
        """The map."""
        return (PositionMap(self.method),)

    def __call__(self, *values: Any) -> Tensor:
        """Return the map as it is."""
        result: Tensor = values[0]
        return result


def maps_of(
    requests: Sequence[PositionMap], classifier: Classifier, x: Inputs, memory_gb: float | None
) -> tuple[Tensor, list[Tensor]]:
    """Return the logits ``[N, *positions, C]`` of one forward pass, on its device, and the map of each request.

    Args:
        requests: Which maps.
        classifier: A model that answers at every position.
        x: A batch that fits into memory.
        memory_gb: About how much memory the methods may take; None chooses.

    Returns:
        The logits, and a map for each request.

    Examples:
        >>> classifier = nescio.Classifier(torch.nn.Conv2d(3, 5, 1), output="dense")
        >>> wanted = [PositionMap(nescio.scores.Entropy())]
        >>> logits, (entropy,) = maps_of(wanted, classifier, torch.rand(2, 3, 8, 8), None)
        >>> logits.shape, entropy.shape
        (torch.Size([2, 8, 8, 5]), torch.Size([2, 8, 8]))
    """
    if not any(isinstance(one, GradientNorms) for request in requests for one in request.method.needs):
        logits, head = classifier.logits(x), None
    else:
        logits, head = logits_and_head(classifier, x)
    return logits, [request._read(logits, head, classifier, memory_gb) for request in requests]


def mapped(methods: Mapping[str, Method], posterior: bool = False) -> dict[str, Method]:
    """Return the methods as methods that give maps.

    Args:
        methods: By their names.
        posterior: Whether they are for a posterior, which can give what they need.

    Returns:
        The same names with a `Mapped` method each.

    Raises:
        InputError: A method needs something that no position has of its own.

    Examples:
        >>> mapped({"entropy": nescio.scores.Entropy()})["entropy"].needs
        (PositionMap(method=Entropy()),)
    """
    for key, one in () if posterior else methods.items():
        for request in one.needs:
            if isinstance(request, GradientNorms):
                refuse(key, request)
        if strange := [request for request in one.needs if not isinstance(request, Logits | GradientNorms)]:
            raise InputError(
                f"expected a method that answers at every position, which is made from logits (entropy, energy, gen, "
                f"max_logit, ...) or from gradients (exgrad, regrad, evengrad, gradnorm, ...), got '{key}', which "
                f"needs {type(strange[0]).__name__}"
            )
    return {key: Mapped(one) for key, one in methods.items()}


def _double(z: Tensor) -> Tensor:
    """Rows in float64, one after the other in memory."""
    return z.to(torch.float64, memory_format=torch.contiguous_format)


def _same(z: Tensor) -> Tensor:
    """Rows as they are: what is first made of them is dense in memory, class after class where they come so."""
    return z


def look(classifier: Classifier, x: Inputs, methods: Mapping[str, Method]) -> None:
    """Find out with one picture whether a model answers at every position, where more would be lost otherwise.

    A forward pass that finds this out is lost, and before norms of gradients there are several.

    Args:
        classifier: The model.
        x: Pictures; of other inputs nothing is tried.
        methods: What is asked of them.

    Raises:
        PositionsFound: It does.
    """
    if not unknown(classifier) or not isinstance(x, Tensor) or x.ndim < 4:
        return
    if any(isinstance(request, GradientNorms) for one in methods.values() for request in one.needs):
        with predicting(classifier):
            classifier.logits(classifier.prepare(x[:1]))
        found_plain(classifier)


def by_position(
    method: Callable[..., Tensor],
    logits: Tensor,
    memory_gb: float | None = None,
    *more: Tensor,
    convert: Callable[[Tensor], Tensor] = _double,
) -> Tensor:
    """Compute what a method says at every position.

    Args:
        method: A function from logits ``[M, C]`` to float64 ``[M]``.
        logits: ``[N, *positions, C]``.
        memory_gb: About how much memory the method may take; None chooses.
        more: What else the method gets of each position, ``[N, *positions, ...]``.
        convert: What is made of the logits of some positions first; float64 unless said.

    Returns:
        Its map, float64 ``[N, *positions]`` on the CPU.

    Examples:
        >>> by_position(nescio.scores.Entropy(), torch.zeros(1, 2, 2, 5)).shape
        torch.Size([1, 2, 2])
    """

    def rows(z: Tensor, *own: Tensor) -> Tensor:
        return method(convert(z), *own)

    maps = [_in_parts(rows, [value[i : i + 1] for value in (logits, *more)], 0, memory_gb) for i in range(len(logits))]
    return torch.cat(maps)  # one by one: where the classes are no last dimension, all inputs together would be copied


def _in_parts(method: Callable[..., Tensor], values: Sequence[Tensor], before: int, memory_gb: float | None) -> Tensor:
    """The map of a method of rows, some rows at a time; `before`: dimensions before that of the inputs, 0 or 1."""
    shape, rows = values[0].shape[before:-1], [value.flatten(before, -2) for value in values]
    numbers = GPU_NUMBERS if values[0].is_cuda else CPU_NUMBERS
    if memory_gb is not None:
        numbers = min(numbers, int(memory_gb * 1e9 / _COPIES))
    count = rows[0].shape[before]
    size = max(1, numbers // (rows[0].shape[-1] * (rows[0].shape[0] if before else 1)))

    def step(start: int, stop: int) -> Tensor:
        part = method(*(row.narrow(before, start, stop - start) for row in rows))
        if not isinstance(part, Tensor) or part.shape != (stop - start,):
            raise InputError(
                f"expected one float64 for each of {stop - start} positions, got {inputs.describe(part)}; mend its "
                "__call__"
            )
        return part

    return torch.cat(in_chunks(count, size, step)).to("cpu", torch.float64).reshape(shape)
