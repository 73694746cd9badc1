"""What every metric takes: arrays, tensors on any device or lists, checked and brought to float64 in numpy.

Each function either returns an array that its metric can trust, or raises an `InputError` that says what was expected,
what came and what to do. Half precision is widened exactly: a float16 tensor counts as the numbers it holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio._common.arrays import Values, real_numbers
from nescio.types import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


def scores(values: Values, name: str) -> Floats:
    """One real number for each input, shape [N], N ≥ 1; ±∞ may occur, NaN may not."""
    array = _one_each(
        real_numbers(values, name, "real numbers, one for each input").astype(np.float64, copy=False), name, "score"
    )
    bad = np.isnan(array)
    if bad.any():
        raise InputError(
            f"{name}: expected numbers but {bad.sum()} of {array.size} scores are NaN (at {listed(bad)}); "
            "find out why, or leave those inputs out"
        )
    return array


def flags(values: Values, name: str, size: int) -> Booleans:
    """One yes or no for each of `size` inputs, as booleans or as 0 and 1."""
    array = _one_each(real_numbers(values, name, "booleans, one for each input"), name, "flag")
    bad = (array != 0) & (array != 1)  # NaN is neither
    if bad.any():
        raise InputError(
            f"{name}: expected booleans, or 0 and 1, but {bad.sum()} of {array.size} are neither "
            f"(at {listed(bad)}: {array[bad][0]}); compare first, as in predicted == labels"
        )
    return _matching(array.astype(bool), name, size)


def probabilities(values: Values, name: str = "probabilities") -> Floats:
    """One distribution over C ≥ 2 classes for each input, [N, C]: finite, none below 0, each row with the sum 1.

    A row's sum may be off by 1e-5, or by four units of round-off of the given type if that is more.
    """
    array = table(values, name, "probabilities")
    unit = 0.0
    if isinstance(values, Tensor) and values.is_floating_point():
        unit = torch.finfo(values.dtype).eps
    elif isinstance(values, np.ndarray) and values.dtype.kind == "f":
        unit = float(np.finfo(values.dtype).eps)
    tolerance = max(1e-5, 4 * unit)
    sums = array.sum(1)
    bad = np.abs(sums - 1) > tolerance
    if bad.any():
        raise InputError(
            f"{name}: expected rows that sum to 1 (within {tolerance:.1g}) but {bad.sum()} of {len(array)} do not "
            f"(row {listed(bad)}; the first sums to {sums[bad][0]:.6g}); "
            "give probabilities, not logits: logits.softmax(-1), in float32 or better"
        )
    return array


def table(values: Values, name: str, what: str) -> Floats:
    """Numbers [N, C], N ≥ 1 and C ≥ 2, finite and none below 0."""
    array = real_numbers(values, name, f"{what}, a row for each input").astype(np.float64, copy=False)
    if array.ndim == 3:
        raise InputError(
            f"{name}: expected {what} of shape [N, C] but got shape {list(array.shape)}; if these are the samples "
            f"[S, N, C] of a posterior, average them first: {name}.mean(0)"
        )
    if array.ndim != 2:
        raise InputError(
            f"{name}: expected {what} of shape [N, C], a row for each input and a column for each class, "
            f"but got shape {list(array.shape)}"
        )
    if array.shape[0] == 0:
        raise InputError(f"{name}: expected at least one row but got none; nothing can be said about an empty set")
    if array.shape[1] < 2:
        raise InputError(
            f"{name}: expected at least two classes but got shape {list(array.shape)}; "
            "give a binary classifier's two columns: [1 − p, p]"
        )
    bad: Booleans = np.any(~np.isfinite(array) | (array < 0), axis=1)
    if bad.any():
        raise InputError(
            f"{name}: expected finite numbers that are at least 0 but {bad.sum()} of {len(array)} rows hold others "
            f"(row {listed(bad)}); give {what}, not logits or logarithms, and find out where NaN comes from"
        )
    return array


def classes(values: Values, size: int, count: int, name: str = "labels") -> Integers:
    """The class of each of `size` inputs, whole numbers from 0 to count − 1."""
    array = _one_each(real_numbers(values, name, "class indices, one for each input"), name, "label")
    if array.dtype.kind not in "iu":
        raise InputError(
            f"{name}: expected class indices, whole numbers in a type of integers, but got {array.dtype}; "
            "convert them (labels.astype(int), labels.long()), one-hot rows by argmax"
        )
    bad = (array < 0) | (array >= count)
    if bad.any():
        raise InputError(
            f"{name}: expected class indices from 0 to {count - 1} (as many as probabilities has columns) but "
            f"{bad.sum()} of {array.size} are not (at {listed(bad)}: {array[bad][0]}); count classes from 0"
        )
    return _matching(array.astype(np.int64), name, size)


def _one_each(array: NDArray[Any], name: str, what: str) -> NDArray[Any]:
    if array.ndim != 1:
        raise InputError(
            f"{name}: expected one number for each input, shape [N], but got shape {list(array.shape)}; "
            "reduce or flatten it first"
        )
    if array.size == 0:
        raise InputError(f"{name}: expected at least one {what} but got none; nothing can be said about an empty set")
    return array


def _matching(array: NDArray[Any], name: str, size: int) -> NDArray[Any]:
    if array.size != size:
        raise InputError(f"{name}: expected one for each of the {size} inputs but got {array.size}")
    return array


def listed(bad: Booleans) -> str:
    """The first places of a few, for a message."""
    indices = np.flatnonzero(bad)
    return ", ".join(map(str, indices[:5])) + (", …" if indices.size > 5 else "")
