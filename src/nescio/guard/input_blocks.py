"""Inputs for a guard, block by block, with their labels where there are some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio import inputs
from nescio.data.prefetch import batches_ahead
from nescio.data.sources import Rows
from nescio.inputs import Data, Inputs
from nescio.models import Classifier
from nescio.posteriors.base import total

ROWS, ROWS_FOR_A_GPU = 64, 256
"""Rows of files that are read as one batch."""


def blocks(data: Data | Rows, most: int, device: torch.device | None = None) -> Iterator[tuple[Inputs, Tensor | None]]:
    """Yield blocks of at most `most` inputs with their labels, None where there are none.

    device: a GPU that rows of files are sent to while the work on others goes on.
    """
    for x, y in _pairs(data, device):
        for start in range(0, inputs.size(x), most):
            part = slice(start, start + most)
            yield inputs.take(x, part), None if y is None else y[part]


def block_size(classifier: Classifier) -> int:
    """Return how many inputs make a block."""
    return 64 if classifier.device is None or classifier.device.type == "cpu" else 512


def count(data: Data | Rows) -> int | None:
    """Return how many inputs there are; None where that is not known before they are read."""
    if isinstance(data, Rows):
        return len(data)
    return total(data[0]) if isinstance(data, tuple) and len(data) == 2 else total(data)


def form(x: Inputs) -> tuple[int, ...] | None:
    """Return the shape of one input where the batch is one tensor of floating-point numbers or bytes; else None."""
    return tuple(x.shape[1:]) if isinstance(x, Tensor) and (x.is_floating_point() or x.dtype == torch.uint8) else None


def _pairs(data: Data | Rows, device: torch.device | None) -> Iterator[tuple[Inputs, Tensor | None]]:
    """Batches with labels where there are some."""
    data = inputs.plain(data)
    if isinstance(data, Rows):
        on_gpu = device is not None and device.type == "cuda"
        for batch in batches_ahead(data, ROWS_FOR_A_GPU if on_gpu else ROWS, device):
            yield batch.inputs, batch.labels
    elif isinstance(data, tuple) and len(data) == 2 and (_are_labels(data[1], data[0]) or _is_column(data[1], data[0])):
        yield from inputs.labelled(data)
    elif isinstance(data, Tensor | np.ndarray | Mapping):
        yield inputs.as_inputs(data), None
    else:
        for item in _items(data):
            if isinstance(item, tuple | list) and len(item) >= 2 and _are_labels(item[1], item[0]):
                yield from inputs.labelled([item])
            else:
                yield next(iter(inputs.batches([item]))), None


def _items(data: object) -> Iterator[Any]:
    """The items of an iterable of batches; an InputError for anything else."""
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | PathLike):
        yield from data
    else:
        yield from inputs.batches(data)


def _are_labels(y: object, x: object) -> bool:
    """Whether y looks like the class indices of the batch x."""
    if isinstance(y, list):
        y = np.asarray(y) if all(isinstance(one, int) for one in y) else None
    if not isinstance(y, Tensor | np.ndarray) or y.ndim != 1:
        return False
    whole = not (y.is_floating_point() or y.is_complex()) if isinstance(y, Tensor) else y.dtype.kind in "iu"
    return whole and isinstance(x, Tensor | np.ndarray | Mapping) and len(y) == inputs.size(inputs.as_inputs(x))


def _is_column(y: object, x: object) -> bool:
    """Whether y may be meant as labels of x, and is not another batch; `inputs.labelled` says what is wrong with it."""
    batch = isinstance(x, Mapping) or (isinstance(x, Tensor | np.ndarray) and x.ndim > 1)
    return batch and (isinstance(y, list) or (isinstance(y, Tensor | np.ndarray) and y.ndim == 1))
