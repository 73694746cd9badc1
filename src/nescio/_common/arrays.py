"""Numbers that a user gives, as an array."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nescio.types import InputError

Values: TypeAlias = ArrayLike | Tensor
"""Numbers as users give them: arrays, tensors, lists."""


def real_numbers(values: Values, name: str, what: str = "real numbers") -> NDArray[Any]:
    """Convert an array, a tensor on any device, or a list to an array of booleans, integers or float64.

    Args:
        values: The numbers, of any shape.
        name: The argument's name, for the message.
        what: What was expected, for the message.

    Returns:
        The array. It may be the caller's own memory, so nothing may write to it.

    Raises:
        InputError: If the values are no real numbers.

    Examples:
        >>> real_numbers(torch.tensor([0.5, 1.0], dtype=torch.bfloat16), "scores")
        array([0.5, 1. ])
    """
    if isinstance(values, Tensor):
        values = values.detach().to("cpu")
        values = (values.double() if values.is_floating_point() else values).numpy()
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError("complex numbers have no order")
        if array.dtype.kind in "biu":
            return array
        if array.dtype.kind not in "fO":
            raise TypeError(f"{array.dtype} is not a type of numbers")
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: expected {what}, but got {values!r:.80} ({error})") from error
