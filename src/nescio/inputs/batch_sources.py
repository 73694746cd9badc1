"""A data source, batch by batch, with labels or without, and what is wrong with anything else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from nescio.inputs.conversion import Inputs, as_inputs, describe, plain, size, tensor
from nescio.types import InputError


def batches(data: object) -> Iterator[Inputs]:
    """Give the batches of a data source, one after another.

    A tensor, an array, a table, a list of rows of numbers or a mapping is one batch. Any other iterable gives batches;
    where it gives tuples or lists, as a data loader does, the first item of each is the input.

    Args:
        data: The data source.

    Returns:
        The batches; they are read one by one.

    Raises:
        InputError: If it is no data source, or has no batches.

    Examples:
        >>> [len(batch) for batch in nescio.inputs.batches([torch.ones(4, 2), torch.ones(3, 2)])]
        [4, 3]
    """
    data = plain(data)
    if isinstance(data, Tensor | np.ndarray | Mapping):
        yield as_inputs(data)
        return
    count = 0
    for item in _iterable(data):
        what = f"batch {count}"
        if isinstance(item, tuple | list) and item:
            item = item[0]
            what = f"the first item of batch {count}"
        yield as_inputs(item, what)
        count += 1
    if count == 0:
        raise InputError(
            f"expected at least one batch, got none from {describe(data)}; an iterator can be read only once: "
            "give a list or a data loader, or make the iterator anew"
        )


def labelled(data: object) -> Iterator[tuple[Inputs, Tensor]]:
    """Give the batches of labelled data: one pair (inputs, labels), or an iterable of such pairs, as a data loader is.

    Labels are whole numbers from 0, one for each input, and come out as int64 on the CPU.

    Args:
        data: The labelled data.

    Returns:
        Pairs (inputs, labels ``[N]``); they are read one by one.

    Raises:
        InputError: If labels are missing, or are no class indices.

    Examples:
        >>> [labels for _, labels in nescio.inputs.labelled((torch.ones(2, 3), torch.tensor([1, 0])))]
        [tensor([1, 0])]
    """
    data = plain(data)
    pair = isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray | Mapping)
    wanted = "expected a pair (inputs, labels) or an iterable of such pairs"
    count = 0
    for item in [data] if pair else _iterable(data):
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise InputError(f"{wanted}, got {describe(item)} as batch {count}; labels are needed here")
        x = as_inputs(item[0], f"the inputs of batch {count}")
        yield x, _class_indices(item[1], size(x), count)
        count += 1
    if count == 0:
        raise InputError(f"{wanted}, got none from {describe(data)}; give a list or a data loader that is not empty")


def _class_indices(y: object, expected: int, batch: int) -> Tensor:
    labels = torch.as_tensor(y) if isinstance(y, list) and all(isinstance(one, int) for one in y) else y
    labels = tensor(labels, f"the labels of batch {batch}")
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.shape != (expected,):
        raise InputError(
            f"expected the labels of batch {batch} to be {expected} whole numbers, one class index for each input, "
            f"got {describe(labels)}"
        )
    if len(labels) and int(labels.min()) < 0:
        raise InputError(f"expected class indices from 0, got {int(labels.min())} in batch {batch}")
    return labels.to("cpu", torch.int64)


def _iterable(data: object) -> Iterable[Any]:
    """`data` where iterating over it gives batches, else an InputError that says why it would not."""
    wanted = "expected a tensor, an array, a mapping of tensors or an iterable of batches"
    if isinstance(data, str | bytes | PurePath):
        raise InputError(f"{wanted}, got the text {str(data)!r}; load the file first, then give its content")
    if isinstance(data, nn.Module):
        raise InputError(f"{wanted}, got a model ({type(data).__name__}); the model comes first, then the data")
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        raise InputError(
            f"{wanted}, got the dataset {type(data).__name__}, which gives single examples; "
            "wrap it: torch.utils.data.DataLoader(dataset, batch_size=64)"
        )
    if isinstance(data, list) and data and isinstance(data[0], int | float):
        raise InputError(
            f"{wanted}, got a list of {len(data)} numbers, which is one input at most; a batch of one is [numbers]"
        )
    if isinstance(data, tuple) and len(data) == 2 and _labels(data[1], data[0]):
        raise InputError(
            f"{wanted}, got a pair of {describe(data[0])} and {describe(data[1])} that looks like inputs with their "
            "labels; give the inputs alone, or a list of such pairs: [(inputs, labels)]"
        )
    if not isinstance(data, Iterable) and not hasattr(data, "__getitem__"):
        raise InputError(f"{wanted}, got {describe(data)}")
    return data  # type: ignore[return-value]  # what has __getitem__ alone can be iterated over too


def _labels(y: object, x: object) -> bool:
    """Whether y looks like the class indices of the batch x."""
    if not isinstance(y, Tensor | np.ndarray) or not isinstance(x, Tensor | np.ndarray):
        return False
    whole = not y.is_floating_point() if isinstance(y, Tensor) else y.dtype.kind in "iu"
    return whole and y.ndim == 1 and x.ndim >= 2 and len(y) == len(x)
