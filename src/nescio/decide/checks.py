"""What comes in, as checked arrays: scores, right or wrong, probabilities, labels and shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nescio._common.arrays import Values, real_numbers
from nescio.types import InputError

Floats = NDArray[np.float64]


def scores_of(values: Values, name: str = "scores", finite: bool = False, empty: bool = False) -> Floats:
    """One float64 for each input; never NaN, and on demand never infinite."""
    array = real_numbers(values, name).astype(np.float64)
    _one_dimension(array, name)
    if array.size == 0 and not empty:
        raise InputError(
            f"{name}: expected at least one score, but got none; nothing can be promised from an empty set"
        )
    bad = ~np.isfinite(array) if finite else np.isnan(array)
    if bad.any():
        what = "NaN or infinite" if finite else "NaN"
        listed = ", ".join(map(str, np.flatnonzero(bad)[:5]))
        raise InputError(
            f"{name}: expected numbers, but {int(bad.sum())} of {array.size} are {what} (at {listed}); "
            "find out why, or leave those inputs out"
        )
    return array


def truths(values: Values, name: str, count: int) -> NDArray[np.bool_]:
    """One truth value for each input, as bool or as 0 and 1."""
    array = real_numbers(values, name)
    _one_dimension(array, name)
    if array.size != count:
        raise InputError(f"{name}: expected one value for each of the {count} scores, but got {array.size}")
    if not np.isin(array, (0, 1)).all():
        raise InputError(f"{name}: expected True or False (1 or 0) for each input, but got {np.unique(array)[:5]}")
    return array.astype(np.bool_)


def probabilities_of(values: Values, name: str = "probabilities", classes: int | None = None) -> Floats:
    """Float64 [N, C] whose rows sum to one."""
    dtype = getattr(values, "dtype", None)
    if dtype in (torch.float16, torch.bfloat16) or dtype == np.float16:
        raise InputError(f"{name}: expected float32 or float64, but got {dtype}; take the softmax in float32")
    array = real_numbers(values, name).astype(np.float64)
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] < 2:
        hint = "; average over the samples first" if array.ndim == 3 else ""
        raise InputError(
            f"{name}: expected shape [N, C] with at least one input and two classes, but got {list(array.shape)}{hint}"
        )
    if classes is not None and array.shape[1] != classes:
        raise InputError(f"{name}: expected {classes} classes, but got {array.shape[1]}")
    sums = array.sum(1)
    if not (np.isfinite(array).all() and (array >= 0).all() and (np.abs(sums - 1) <= 1e-4).all()):
        raise InputError(
            f"{name}: expected numbers of at least 0 that sum to one in each row, but the smallest is "
            f"{array.min():.3g} and the sums reach from {sums.min():.6g} to {sums.max():.6g}; apply softmax to "
            f"logits first"
        )
    return array


def labels_of(values: Values, count: int, classes: int) -> NDArray[np.int64]:
    """One class number for each input."""
    array = real_numbers(values, "labels")
    _one_dimension(array, "labels")
    if array.size != count:
        raise InputError(f"labels: expected one for each of the {count} inputs, but got {array.size}")
    if array.dtype.kind == "f" and not (array == np.floor(array)).all():
        raise InputError("labels: expected whole class numbers, but got fractions or NaN")
    if array.dtype.kind == "b" or array.min() < 0 or array.max() >= classes:
        raise InputError(f"labels: expected class numbers from 0 to {classes - 1}, but got {np.unique(array)[:5]}")
    return array.astype(np.int64)


def _one_dimension(array: NDArray[Any], name: str) -> None:
    if array.ndim != 1:
        raise InputError(f"{name}: expected one number for each input, shape [N], but got shape {list(array.shape)}")
