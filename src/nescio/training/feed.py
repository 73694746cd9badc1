"""Labelled data as batches on the model's device: a pair of tensors that lies there as a whole, or a loader.

A pair is shuffled anew in every epoch by torch's global generator, which the trainer seeds; a loader shuffles itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Data, Inputs, describe
from nescio.types import InputError


class Feed(Protocol):
    """Batches of (inputs, labels), with how many there are."""

    count: int
    """Inputs in one pass."""
    steps: int
    """Batches in one pass."""
    classes: int | None
    """How many classes the model has, once that is known: labels are below it."""

    def batches(self, shuffle: bool) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass."""

    def first(self) -> tuple[Inputs, Tensor]:
        """A few inputs to try the model on."""

    def identity(self) -> str:
        """What tells these data from others."""


def feed(data: Data, device: torch.device, dtype: torch.dtype, batch_size: int, what: str, raw: bool) -> Feed:
    """The data as a `Feed`; raw says that whole numbers of a byte, such as pictures, are turned to floats later."""
    data = inputs.plain(data)
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray | Mapping):
        return _Pair(data, device, dtype, batch_size, what, raw)
    return _Loader(data, device, dtype, what, raw)


class _Pair:
    classes: int | None

    def __init__(
        self, data: Any, device: torch.device, dtype: torch.dtype, batch_size: int, what: str, raw: bool
    ) -> None:
        counts = [inputs.size(inputs.as_inputs(data[0])), len(data[1]) if np.ndim(data[1]) else 0]
        if counts[0] != counts[1] or not counts[0]:
            raise InputError(
                f"expected as many {what} labels as inputs, and at least one, "
                f"but got {counts[0]} inputs and {counts[1]} labels"
            )
        ((x, y),) = inputs.labelled(data)
        _check(x, what, raw)
        self.x, self.y = inputs.to(x, device, dtype), y.to(device)
        self.count, self.batch_size, self.classes = counts[0], batch_size, None
        self.steps = len(self._parts(torch.arange(self.count)))

    def _parts(self, order: Tensor) -> list[Tensor]:
        parts = list(order.split(self.batch_size))
        if len(parts) > 1 and len(parts[-1]) == 1:  # batch norm cannot train on a single input
            parts[-2:] = [torch.cat(parts[-2:])]
        return parts

    def batches(self, shuffle: bool) -> Iterator[tuple[Inputs, Tensor]]:
        if not shuffle:
            for start in range(0, self.count, self.batch_size):
                part = slice(start, start + self.batch_size)
                yield inputs.take(self.x, part), self.y[part]
            return
        for chosen in self._parts(torch.randperm(self.count).to(self.y.device)):
            yield inputs.take(self.x, chosen), self.y[chosen]

    def first(self) -> tuple[Inputs, Tensor]:
        return inputs.take(self.x, slice(0, 2)), self.y

    def identity(self) -> str:
        return f"{self.count} inputs {digest([*inputs.tensors(self.x), self.y])}"


class _Loader:
    classes: int | None

    def __init__(self, data: Data, device: torch.device, dtype: torch.dtype, what: str, raw: bool) -> None:
        if isinstance(data, Iterator):
            raise InputError(
                f"expected {what} data that can be read once in every epoch, got {describe(data)}, which can be read "
                "only once; give a pair of tensors, a list of batches or a data loader"
            )
        self.data, self.device, self.dtype, self.what, self.raw = data, device, dtype, what, raw
        sizes = _sizes(data)
        self.count, self.steps, self.classes = sum(sizes), len(sizes), None
        if not self.count:
            raise InputError(f"expected at least one {what} input, got none from {describe(data)}")

    def batches(self, shuffle: bool) -> Iterator[tuple[Inputs, Tensor]]:
        for x, y in inputs.labelled(self.data):
            _check(x, self.what, self.raw)
            check_labels(y, self.classes)
            yield inputs.to(x, self.device, self.dtype), y.to(self.device, non_blocking=True)

    def first(self) -> tuple[Inputs, Tensor]:
        x, y = next(iter(self.batches(False)))
        return inputs.take(x, slice(0, 2)), y

    def identity(self) -> str:
        return f"{self.count} inputs in {self.steps} batches"


def _sizes(loader: Any) -> list[int]:
    """The sizes of a loader's batches, without loading them where it can tell."""
    try:
        count, steps, size = len(loader.dataset), len(loader), loader.batch_size
        known = size is not None and len(loader.sampler) == count
    except (TypeError, AttributeError):  # no data loader, or one without a length
        known = False
    if not known:
        return [len(y) for _, y in inputs.labelled(loader)]
    return [min(size, count - size * place) for place in range(steps)]


def generators(data: object) -> list[torch.Generator]:
    """The random generators that belong to a loader; they are part of the state of a run."""
    owners = [data, *(getattr(data, name, None) for name in ("sampler", "batch_sampler"))]
    candidates = [getattr(owner, "generator", None) for owner in owners]
    return list({id(one): one for one in candidates if isinstance(one, torch.Generator)}.values())


def digest(tensors: list[Tensor]) -> str:
    """A hash of the values of tensors."""
    total = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        total.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def check_labels(y: Tensor, classes: int | None) -> None:
    """Raise an InputError for a label that is no class of the model."""
    if classes is not None and len(y) and int(y.max()) >= classes:
        raise InputError(
            f"expected labels from 0 to {classes - 1}, as the model has {classes} classes, got {int(y.max())}; "
            "count the classes from 0, or give the model more"
        )


def _check(x: Inputs, what: str, raw: bool) -> None:
    for value in inputs.tensors(x):
        if value.dtype == torch.uint8 and not raw:
            raise InputError(
                f"expected {what} inputs that the model takes, got {describe(value)}; say how such pictures become "
                "floats: Recipe(transform=lambda x: x / 255)"
            )
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise InputError(
                f"expected finite {what} inputs, got NaN or infinite values; leave those out, or fill them in, "
                "for example with torch.nan_to_num"
            )
