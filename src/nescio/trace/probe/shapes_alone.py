"""Operations on tensors without memory, of which only the shape is wanted.

PyTorch tells the shapes of some in Python, and loads its compiler to do so: two to three seconds, for what a few lines
say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

POINTWISE = {
    torch.mul, torch.add, torch.sub, torch.clamp, torch.square, torch.abs,
    Tensor.mul, Tensor.__mul__, Tensor.__rmul__, Tensor.add, Tensor.__add__, Tensor.sub, Tensor.__sub__,
    Tensor.clamp, Tensor.square, Tensor.abs,
}  # fmt: skip
SUMS = {torch.sum, Tensor.sum, torch.linalg.vector_norm}


class ShapesAlone(TorchFunctionMode):
    """Inside, products, sums and pointwise operations of tensors on the device "meta" are told by their shapes."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        x = args[0] if args else None
        if not isinstance(x, Tensor) or not x.is_meta:
            return func(*args, **kwargs)
        if func is torch.bmm:
            return x.new_empty((*x.shape[:-1], args[1].shape[-1]), dtype=kwargs.get("out_dtype", x.dtype))
        if func in SUMS and not kwargs.get("keepdim"):
            dims = kwargs.get("dim", args[1] if len(args) > 1 and func is not torch.linalg.vector_norm else None)
            return x.new_empty(_without(x.shape, dims), dtype=kwargs.get("dtype") or x.dtype)
        if func in POINTWISE:
            operands = [t for t in args if isinstance(t, Tensor)]
            kind = functools.reduce(torch.promote_types, (t.dtype for t in operands))
            return x.new_empty(_broadcast([t.shape for t in operands]), dtype=kind)
        return func(*args, **kwargs)


def _without(shape: Sequence[int], dims: int | Sequence[int] | None) -> list[int]:
    """The shape without some dimensions, or without any."""
    if dims is None:
        return []
    gone = {dim % len(shape) for dim in ([dims] if isinstance(dims, int) else dims)}
    return [size for dim, size in enumerate(shape) if dim not in gone]


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    """The shape that these have together."""
    columns = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return [next((size for size in column if size != 1), 1) for column in columns][::-1]
