"""What a model is given: a batch of inputs, and the few things that are done to one.

A batch is a tensor ``[N, ...]``, or a mapping of names to tensors that share their first dimension N, which the model
gets as keyword arguments. Every function here works on both alike and leaves its argument as it was. A data source is
one batch, or any iterable of batches; `batches` reads them all, and says what is wrong with anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from nescio.types import InputError

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
Index: TypeAlias = slice | Tensor | Sequence[int]

_EXPECTED = "expected a tensor [N, ...] or a mapping of names to tensors with a common first dimension"


def as_inputs(x: object, what: str = "the input") -> Inputs:
    """Check a batch: arrays, tables and nested lists become tensors, a mapping becomes a plain dict.

    Raises:
        InputError: If it is anything else.

    Examples:
        >>> nescio.inputs.as_inputs([[1.0, 2.0], [3.0, 4.0]]).shape
        torch.Size([2, 2])
    """
    x = plain(x)
    if isinstance(x, Mapping):
        if not x:
            raise InputError(f"{_EXPECTED}, got {what} without any entry; put the model's keyword arguments in it")
        batch: Inputs = {str(name): _tensor(value, f"{what}[{name!r}]") for name, value in x.items()}
    else:
        batch = _tensor(x, what)
    size(batch)
    return batch


def describe(x: object) -> str:
    """Say in a few words what came, for an error message: kind, type of number and shape."""
    if isinstance(x, Tensor):
        return f"a tensor of {str(x.dtype).removeprefix('torch.')} and shape {list(x.shape)}"
    if isinstance(x, np.ndarray):
        return f"an array of {x.dtype} and shape {list(x.shape)}"
    if isinstance(x, Mapping):
        entries = ", ".join(f"{name!r}: {describe(value)}" for name, value in list(x.items())[:6])
        return f"a mapping {{{entries}{', ...' if len(x) > 6 else ''}}}"
    if (names := columns(x)) is not None:
        return f"a {type(x).__name__} of {len(x)} rows and {len(names)} columns"  # type: ignore[arg-type]
    if isinstance(x, tuple | list):
        return f"a {type(x).__name__} of {len(x)} items" + (f", the first {describe(x[0])}" if x else "")
    return "None" if x is None else f"an object of type {type(x).__name__}"


def columns(x: object) -> list[str] | None:
    """Return the names of the columns of a table, such as a DataFrame of pandas or polars."""
    names = getattr(x, "columns", None)
    return [str(name) for name in names] if names is not None and hasattr(x, "to_numpy") else None


def plain(data: object) -> Any:
    """Return a table, or a list of rows of numbers, as an array; a pair of such things as a pair.

    Anything else is returned as it is. Whole numbers in a table are features, and become real ones.

    Examples:
        >>> nescio.inputs.plain([[1, 2], [3, 4]]).shape
        (2, 2)
    """
    if isinstance(data, tuple) and len(data) == 2:
        return tuple(plain(one) for one in data)
    if isinstance(data, list) and data and isinstance(data[0], list | tuple) and _numbers(data[0]):
        try:
            return np.array(data)
        except ValueError:
            raise InputError(
                f"{_EXPECTED}, got a list of {len(data)} rows of different lengths; give all rows one length (pad them)"
            ) from None
    if not hasattr(data, "to_numpy"):
        return data
    array = np.asarray(data.to_numpy())
    names = columns(data)
    if names is None or not len(array):
        return array
    odd = [name for at, name in enumerate(names) if not _are_numbers(array[:, at])]
    if odd:
        listing = ", ".join(map(repr, odd[:6])) + (" …" if len(odd) > 6 else "")
        raise InputError(
            f"{_EXPECTED}, got {describe(data)}, of which {listing} hold no numbers; give the columns that the model "
            f"takes: table.drop(columns={odd[:6]!r}), or table[names]"
        )
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _numbers(row: object) -> bool:
    """Whether a list, or the first of its lists, begins with a number."""
    while isinstance(row, list | tuple) and row:
        row = row[0]
    return isinstance(row, int | float | np.number)


def _are_numbers(column: Any) -> bool:
    try:
        return column.dtype.kind in "fiub" or bool(np.isfinite(column.astype(np.float64)).all())
    except (TypeError, ValueError):
        return False


def apply(x: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """Change every tensor of a batch.

    Examples:
        >>> nescio.inputs.apply({"a": torch.ones(2)}, lambda value: -value)
        {'a': tensor([-1., -1.])}
    """
    return change(x) if isinstance(x, Tensor) else {name: change(value) for name, value in x.items()}


def tensors(x: Inputs) -> list[Tensor]:
    """Return the batch's tensors in order."""
    return [x] if isinstance(x, Tensor) else list(x.values())


def size(x: Inputs) -> int:
    """Return the number of inputs N of a batch."""
    if isinstance(x, Tensor):
        if x.ndim == 0:
            raise InputError(f"{_EXPECTED}, got a tensor without dimensions; add one with x.unsqueeze(0)")
        return int(x.shape[0])
    if isinstance(x, Mapping) and x:
        sizes = {name: size(value) for name, value in x.items()}
        if len(set(sizes.values())) > 1:
            listing = ", ".join(f"{name!r}: {count}" for name, count in sizes.items())
            raise InputError(f"{_EXPECTED}, got first dimensions {listing}; give every entry one row for each input")
        return next(iter(sizes.values()))
    raise InputError(f"{_EXPECTED}, got {describe(x)}")


def is_floating(x: Inputs) -> bool:
    """Return whether any tensor of the batch holds floating-point numbers."""
    return any(value.is_floating_point() for value in tensors(x))


def take(x: Inputs, index: Index) -> Inputs:
    """Return the inputs at some positions.

    Examples:
        >>> nescio.inputs.take(torch.tensor([5, 6, 7]), [2, 0])
        tensor([7, 5])
    """
    if isinstance(index, slice):
        return apply(x, lambda value: value[index])
    where = index if isinstance(index, Tensor) else torch.tensor(index, dtype=torch.long, device="cpu")
    if where.ndim != 1:
        raise InputError(f"expected a slice or a list of positions, got an index of shape {list(where.shape)}")
    return apply(x, lambda value: value[where.to(value.device)])


def concatenate(parts: Sequence[Inputs]) -> Inputs:
    """Join batches in order; the opposite of `take` by slices."""
    if not parts:
        raise InputError("expected at least one batch to concatenate, got none")
    first = parts[0]
    if isinstance(first, Tensor):
        return _joined([part for part in parts if isinstance(part, Tensor)], len(parts), "")
    for part in parts:
        if not isinstance(part, Mapping) or part.keys() != first.keys():
            raise InputError(
                f"expected batches with the same entries {sorted(first)}, got {describe(part)}; "
                "give every batch the same keyword arguments"
            )
    named = [part for part in parts if isinstance(part, Mapping)]
    return {name: _joined([part[name] for part in named], len(parts), f" in entry {name!r}") for name in first}


def to(x: Inputs, device: torch.device | str | None, dtype: torch.dtype | None = None) -> Inputs:
    """Bring a batch to a device, and its floating-point numbers to a type."""

    def moved(value: Tensor) -> Tensor:
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)

    return apply(x, moved)


def repeat(x: Inputs, copies: int) -> Inputs:
    """Repeat every input, its copies adjacent: [a, b] becomes [a, a, b, b]."""
    if copies < 0:
        raise InputError(f"expected a number of copies >= 0, got {copies}")
    return apply(x, lambda value: value.repeat_interleave(copies, dim=0))


def batches(data: object) -> Iterator[Inputs]:
    """Give the batches of a data source, one after another.

    A tensor, an array, a table, a list of rows of numbers or a mapping is one batch. Any other iterable gives batches;
    where it gives tuples or lists, as a data loader does, the first item of each is the input.

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
    labels = _tensor(labels, f"the labels of batch {batch}")
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


def _tensor(value: object, what: str) -> Tensor:
    if isinstance(value, Tensor):
        if value.is_nested:
            raise InputError(
                f"{_EXPECTED}, got a nested tensor as {what}; pad it, torch.nested.to_padded_tensor(x, 0.0), and give "
                "the model a mask, or give inputs of one size in each batch"
            )
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise InputError(f"{_EXPECTED}, got {describe(value)} as {what}; give an array of numbers")
        # torch cannot share memory with arrays that are read-only, reversed or of foreign byte order: copy those
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        return torch.from_numpy(np.require(native, requirements=["C", "W"]))
    remedy = ""
    if isinstance(value, tuple | list):
        remedy = "; give a model with several inputs a mapping of argument names to tensors"
        if value and isinstance(value[0], int | float | list):
            remedy = "; make it a tensor first: torch.tensor(...), or return_tensors='pt' for a tokenizer"
    elif isinstance(value, str):
        remedy = "; make numbers of texts with a tokenizer (return_tensors='pt'), or use nescio.pipeline"
    elif type(value).__module__.startswith("PIL."):
        remedy = "; make it a tensor first, as the model was trained: torchvision.transforms.v2, or the model's own"
    raise InputError(f"{_EXPECTED}, got {describe(value)} as {what}{remedy}")


def _joined(parts: list[Tensor], count: int, where: str) -> Tensor:
    if len(parts) != count:
        raise InputError("expected batches of one kind, got tensors and mappings together; give one kind alone")
    kinds = {(tuple(part.shape[1:]), part.dtype) for part in parts}
    if len(kinds) > 1:
        listing = ", ".join(sorted({describe(part) for part in parts}))
        raise InputError(
            f"expected batches of one shape and type{where}, got {listing}; "
            "bring the inputs to one size (pad or resize)"
        )
    return torch.cat(parts)
