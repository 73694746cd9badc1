"""What is done to a batch: its tensors changed, its inputs chosen, joined, moved or repeated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from nescio.inputs.conversion import Index, Inputs, describe, tensors
from nescio.types import InputError


def apply(x: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """Change every tensor of a batch.

    Args:
        x: The batch.
        change: What makes a new tensor of each.

    Returns:
        A new batch, with the same entries.

    Examples:
        >>> nescio.inputs.apply({"a": torch.ones(2)}, lambda value: -value)
        {'a': tensor([-1., -1.])}
    """
    return change(x) if isinstance(x, Tensor) else {name: change(value) for name, value in x.items()}


def is_floating(x: Inputs) -> bool:
    """Return whether any tensor of the batch holds floating-point numbers.

    Args:
        x: The batch.

    Returns:
        False where all numbers are whole, as those of tokens.

    Examples:
        >>> nescio.inputs.is_floating(torch.tensor([[101, 7, 102]]))
        False
    """
    return any(value.is_floating_point() for value in tensors(x))


def take(x: Inputs, index: Index) -> Inputs:
    """Return the inputs at some positions.

    Args:
        x: The batch.
        index: The positions: a slice, a list or a tensor of whole numbers.

    Returns:
        A batch of these inputs, in the order of the positions.

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
    """Join batches in order; the opposite of `take` by slices.

    Args:
        parts: The batches: all tensors, or all mappings with the same entries.

    Returns:
        One batch.

    Raises:
        InputError: If there are none, or if they differ in kind, shape or type.

    Examples:
        >>> nescio.inputs.concatenate([torch.tensor([1, 2]), torch.tensor([3])])
        tensor([1, 2, 3])
    """
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
    """Bring a batch to a device, and its floating-point numbers to a type.

    Args:
        x: The batch.
        device: The device; None leaves it where it is.
        dtype: The type of floating-point numbers; None leaves it. Whole numbers keep theirs.

    Returns:
        A batch on that device.

    Examples:
        >>> nescio.inputs.to({"x": torch.ones(2), "token": torch.tensor([1, 2])}, "cpu", torch.float64)
        {'x': tensor([1., 1.], dtype=torch.float64), 'token': tensor([1, 2])}
    """

    def moved(value: Tensor) -> Tensor:
        return value.to(device=device, dtype=dtype if value.is_floating_point() else None)

    return apply(x, moved)


def repeat(x: Inputs, copies: int) -> Inputs:
    """Repeat every input, its copies adjacent: [a, b] becomes [a, a, b, b].

    Args:
        x: The batch ``[N, ...]``.
        copies: How often each input is there afterwards.

    Returns:
        A batch ``[N · copies, ...]``.

    Examples:
        >>> nescio.inputs.repeat(torch.tensor([1, 2]), 2)
        tensor([1, 1, 2, 2])
    """
    if copies < 0:
        raise InputError(f"expected a number of copies >= 0, got {copies}")
    return apply(x, lambda value: value.repeat_interleave(copies, dim=0))


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
