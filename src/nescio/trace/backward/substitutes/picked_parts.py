"""Queries, keys and values that are picked one by one from a tensor that holds all three, ``qkv[0], qkv[1], qkv[2]``.

PyTorch fills a tensor of the size of all of them with zeros for each of the three gradients, and adds these up. Here
the gradients are laid side by side, in memory as what they were picked from lies, so that the projection before it
takes them without a copy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nescio.trace.backward.pull import in_front

COUNT = 3


class Parts(torch.autograd.Function):
    """``t[0], t[1], t[2]`` of a tensor t [3, ..], as views of it."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> tuple[Tensor, ...]:
        ctx.stride = t.stride()
        return t.unbind(0)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> Tensor:
        return _Beside.apply(ctx.stride, *deltas)


class _Beside(torch.autograd.Function):
    """Gradients as one, inside of vmap or not."""

    @staticmethod
    def forward(stride: tuple[int, ...], *deltas: Tensor) -> Tensor:
        return _beside(stride, [g.unsqueeze(0) for g in deltas])[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing to keep."""

    @staticmethod
    def vmap(info: Any, dims: tuple[Any, ...], stride: tuple[int, ...], *deltas: Tensor) -> tuple[Tensor, int]:
        return _beside(stride, [in_front(info, dim, g) for dim, g in zip(dims[1:], deltas, strict=True)]), 0


def _beside(stride: tuple[int, ...], deltas: list[Tensor]) -> Tensor:
    """[K, 3, ..] from three [K, ..], in memory as a tensor [3, ..] of this stride, once for each k."""
    first = deltas[0]
    shape = (COUNT, *first.shape[1:])
    out = first.new_empty_strided((len(first), *shape), (first[0].numel() * COUNT, *stride))
    for i, g in enumerate(deltas):
        out[:, i].copy_(g)
    return out


class Picker:
    """Answers ``t[i]`` of one tensor after another, all picks of one tensor by one operation."""

    def __init__(self) -> None:
        self._of: tuple[Tensor, int] | None = None
        self._parts: tuple[Tensor, ...] = ()

    def pick(self, t: Any, i: Any) -> Tensor | None:
        """``t[i]``, or None for a call that is left to PyTorch."""
        if type(i) is not int or not 0 <= i < COUNT or type(t) is not Tensor or t.dim() != 5 or len(t) != COUNT:
            return None
        if not (torch.is_grad_enabled() and t.requires_grad) or t.is_leaf or not _whole(t):
            return None
        if self._of is None or self._of[0] is not t or self._of[1] != t._version:
            self._of, self._parts = (t, t._version), Parts.apply(t)
        return self._parts[i]


def _whole(t: Tensor) -> bool:
    """Whether the elements are one block of memory, each once."""
    order = sorted(range(t.dim()), key=t.stride, reverse=True)
    return t.permute(order).is_contiguous()
