"""Operations that move numbers about and leave them as they are, as long as the first dimension holds the inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
"""What an operation of torch is called with."""


def _getitem_keeps(args: Args, kwargs: Kwargs, ndim: int) -> bool:
    index = args[0] if isinstance(args[0], tuple) else (args[0],)
    plain = all(item is None or item is Ellipsis or isinstance(item, int | slice) for item in index[1:])
    return (
        plain and (index[0] is Ellipsis or index[0] == slice(None)) and len([i for i in index if i is not None]) <= ndim
    )


def _permute_keeps(args: Args, kwargs: Kwargs, ndim: int) -> bool:
    dims = kwargs.get("dims", args[0] if args and isinstance(args[0], tuple | list) else args)
    return bool(dims) and dims[0] % ndim == 0


def _transpose_keeps(args: Args, kwargs: Kwargs, ndim: int) -> bool:
    dims = [*args[:2], *(kwargs[k] for k in ("dim0", "dim1") if k in kwargs)]
    return all(d % ndim != 0 for d in dims)


def _dim_keeps(args: Args, kwargs: Kwargs, ndim: int) -> bool:
    dim = kwargs.get("dim", args[-1] if args and isinstance(args[-1], int) else None)
    return dim is not None and dim % ndim != 0


def _split_keeps(args: Args, kwargs: Kwargs, ndim: int) -> bool:
    dim: Any = kwargs.get("dim", args[1] if len(args) > 1 else 0)
    return bool(dim % ndim != 0)


def _keeps(args: Args, kwargs: Kwargs, ndim: int) -> bool:
    return True  # the first dimension is compared with what it was


SAME = {"contiguous", "clone", "detach", "to", "type", "float", "double", "cpu", "cuda", "requires_grad"}
"""These change where and how numbers are held, and all are in float64 here."""

SHAPES: dict[str, Callable[[Any, Any, int], bool]] = {
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "squeeze"), _keeps),
    "unsqueeze": _dim_keeps,
    "getitem": _getitem_keeps,
    "permute": _permute_keeps,
    "transpose": _transpose_keeps,
    "chunk": _split_keeps,
    "split": _split_keeps,
}
