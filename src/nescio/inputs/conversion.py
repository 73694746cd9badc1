"""From arrays, tables and lists to a batch: what is one, what is none, and what an error message calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from nescio.types import InputError

Inputs: TypeAlias = Tensor | Mapping[str, Tensor]
Data: TypeAlias = Tensor | np.ndarray[Any, Any] | Mapping[str, Any] | Iterable[Any]
"""What a user gives: one batch (a tensor, an array, a table, names with these), or an iterable of batches."""
Index: TypeAlias = slice | Tensor | Sequence[int]

EXPECTED = "expected a tensor [N, ...] or a mapping of names to tensors with a common first dimension"


def as_inputs(x: object, what: str = "the input") -> Inputs:
    """Check a batch: arrays, tables and nested lists become tensors, a mapping becomes a plain dict.

    Args:
        x: The batch.
        what: What an error message calls it.

    Returns:
        The batch as a tensor ``[N, ...]``, or as a dict of such tensors.

    Raises:
        InputError: If it is anything else.

    Examples:
        >>> nescio.inputs.as_inputs([[1.0, 2.0], [3.0, 4.0]]).shape
        torch.Size([2, 2])
    """
    x = plain(x)
    if isinstance(x, Mapping):
        if not x:
            raise InputError(f"{EXPECTED}, got {what} without any entry; put the model's keyword arguments in it")
        batch: Inputs = {str(name): tensor(value, f"{what}[{name!r}]") for name, value in x.items()}
    else:
        batch = tensor(x, what)
    size(batch)
    return batch


def describe(x: object) -> str:
    """Say in a few words what came, for an error message: kind, type of number and shape.

    Args:
        x: Anything.

    Returns:
        The words.

    Examples:
        >>> nescio.inputs.describe(torch.zeros(2, 3))
        'a tensor of float32 and shape [2, 3]'
    """
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
    """Return the names of the columns of a table, such as a DataFrame of pandas or polars.

    Args:
        x: Anything.

    Returns:
        The names; None where it is no table.

    Examples:
        >>> nescio.inputs.columns(torch.zeros(2, 3)) is None
        True
    """
    names = getattr(x, "columns", None)
    return [str(name) for name in names] if names is not None and hasattr(x, "to_numpy") else None


def plain(data: object) -> Any:
    """Return a table, or a list of rows of numbers, as an array; a pair of such things as a pair.

    Anything else is returned as it is. Whole numbers in a table are features, and become real ones.

    Args:
        data: Anything.

    Returns:
        The array, the pair, or the very object.

    Raises:
        InputError: If rows differ in length, or columns of a table hold no numbers.

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
                f"{EXPECTED}, got a list of {len(data)} rows of different lengths; give all rows one length (pad them)"
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
            f"{EXPECTED}, got {describe(data)}, of which {listing} hold no numbers; give the columns that the model "
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


def tensors(x: Inputs) -> list[Tensor]:
    """Return the batch's tensors in order.

    Args:
        x: The batch.

    Returns:
        One tensor, or those of all entries.

    Examples:
        >>> nescio.inputs.tensors({"a": torch.ones(2)})
        [tensor([1., 1.])]
    """
    return [x] if isinstance(x, Tensor) else list(x.values())


def size(x: Inputs) -> int:
    """Return the number of inputs N of a batch.

    Args:
        x: The batch.

    Returns:
        Its first dimension.

    Raises:
        InputError: If there is no first dimension, or that of the entries differs.

    Examples:
        >>> nescio.inputs.size({"words": torch.ones(2, 5), "mask": torch.ones(2, 5)})
        2
    """
    if isinstance(x, Tensor):
        if x.ndim == 0:
            raise InputError(f"{EXPECTED}, got a tensor without dimensions; add one with x.unsqueeze(0)")
        return int(x.shape[0])
    if isinstance(x, Mapping) and x:
        sizes = {name: size(value) for name, value in x.items()}
        if len(set(sizes.values())) > 1:
            listing = ", ".join(f"{name!r}: {count}" for name, count in sizes.items())
            raise InputError(f"{EXPECTED}, got first dimensions {listing}; give every entry one row for each input")
        return next(iter(sizes.values()))
    raise InputError(f"{EXPECTED}, got {describe(x)}")


def tensor(value: object, what: str) -> Tensor:
    """Return a tensor or an array as a tensor; raise an InputError that calls anything else `what`."""
    if isinstance(value, Tensor):
        if value.is_nested:
            raise InputError(
                f"{EXPECTED}, got a nested tensor as {what}; pad it, torch.nested.to_padded_tensor(x, 0.0), and give "
                "the model a mask, or give inputs of one size in each batch"
            )
        return value
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub":
            raise InputError(f"{EXPECTED}, got {describe(value)} as {what}; give an array of numbers")
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
    raise InputError(f"{EXPECTED}, got {describe(value)} as {what}{remedy}")
