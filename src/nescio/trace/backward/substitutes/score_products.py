"""Attention that a model writes out: ``q kᵀ``, what is added to it, softmax, and the mean of the values.

PyTorch's backward of a product copies the other factor once for every cotangent, and lays the gradients of queries,
keys and values out anew. Used on a GPU only, where a kernel of ours reads what the cotangents share once, and for
windows of few positions. Softmax and the product behind it go back in one step; what was added to the scores, such as
a bias for each distance, gets its gradient from autograd as ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.backward.pull import folded
from nescio.trace.runtime import autograd_names as names
from nescio.trace.runtime.gpu import kernels

MOST = 64
"""Positions, and features of a head, that a tile holds."""
SOFTMAX = (F.softmax, torch.softmax, torch.Tensor.softmax)
PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm, torch.Tensor.bmm)

CALLS = {*SOFTMAX, *PRODUCTS, torch.einsum}


class Scores(torch.autograd.Function):
    """``a bᵀ`` over the last two dimensions, for a [.., T, D] and b [.., S, D]."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.matmul(a, b.mT)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        return folded(deltas[0], lambda g: pulled(g, *ctx.saved_tensors))


class RowsSoftmax(torch.autograd.Function):
    """Softmax over the last dimension; ``source`` is what it was taken of, ``version`` that of the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.softmax(-1)
        ctx.source, ctx.version = x, y._version
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        (y,) = ctx.saved_tensors
        return folded(deltas[0], lambda g: (y * (g - (y * g).sum(-1, keepdim=True)),))


class Weighted(torch.autograd.Function):
    """``weights v`` for weights = softmax(scores) [.., T, S] and v [.., S, D], with its gradients by scores and v."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(weights, v)
        return torch.matmul(weights, v)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        by_scores, by_v = folded(deltas[0], lambda g: pulled_weighted(g, *ctx.saved_tensors))
        return by_scores, None, by_v


def pulled(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """The gradients of ``a bᵀ`` by a and b, from those of the result [K, .., T, S], by a kernel."""
    lead = a.shape[:-2]
    g, a, b = _gathered(g, 1), _gathered(a, 0), _gathered(b, 0)
    out = _room(len(g), a), _room(len(g), b)
    kernels(a).product(g, a, b, *out)
    return tuple(t.unflatten(1, lead[:-1]) if len(lead) > 1 else t.squeeze(2) for t in out)


def pulled_weighted(g: Tensor, weights: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """The gradients of ``softmax(scores) v`` by scores and v, from those of the result [K, .., T, D], by a kernel."""
    lead = v.shape[:-2]
    g, weights, v = _gathered(g, 1), _gathered(weights, 0), _gathered(v, 0)
    out = g.new_empty((len(g), *weights.shape)), _room(len(g), v)
    kernels(v).weighted(g, weights, v, *out)
    return tuple(t.unflatten(1, lead[:-1]) if len(lead) > 1 else t.squeeze(2) for t in out)


def _gathered(t: Tensor, first: int) -> Tensor:
    """[.., B, H, T, D] with all but one of the leading dimensions, after the ``first``, as one; a view where it can."""
    return t.flatten(first, -4) if t.dim() - first > 3 else t.unsqueeze(-3)


def _room(rows: int, like: Tensor) -> Tensor:
    """Room for gradients [rows, B, H, T, D], in memory as ``like`` [B, H, T, D] lies: heads or positions first."""
    b, h, t, d = like.shape
    if like.stride(1) < like.stride(2):
        return like.new_empty((rows, b, t, h, d)).transpose(2, 3)
    return like.new_empty((rows, b, h, t, d))


def call(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """The value of a product or a softmax, or None for a call that is left to PyTorch."""
    if not torch.is_grad_enabled():
        return None
    if func in SOFTMAX:
        return _softmax(*args, **kwargs)
    if kwargs or not (pair := _factors(func, args)):
        return None
    left, right = pair  # [.., T, D] and [.., D, S]
    plain = left.dim() == right.dim() >= 3 and left.shape[:-2] == right.shape[:-2] and left.dtype == right.dtype
    if not plain or max(*left.shape[-2:], right.shape[-1]) > MOST or kernels(left, right) is None:
        return None
    if not math.prod(left.shape) or not (left.requires_grad or right.requires_grad):
        return None
    node: Any = left.grad_fn
    if node is not None and node.name() == names.ROWS_SOFTMAX and left._version == node.version and not left._is_view():
        return Weighted.apply(node.source, left.detach(), right)
    return Scores.apply(left, right.mT)


def _softmax(input: Any, dim: Any = None, *rest: Any, dtype: Any = None, **more: Any) -> Tensor | None:
    """Softmax of rows that a tile holds, over the last dimension."""
    if not isinstance(input, Tensor) or dtype is not None or any(type(r) is not int for r in rest):
        return None
    if not input.requires_grad or input.dim() < 3 or dim not in (-1, input.dim() - 1):
        return None
    if max(input.shape[-2:]) > MOST or not math.prod(input.shape) or kernels(input) is None:
        return None
    return RowsSoftmax.apply(input)


def _factors(func: Callable[..., Any], args: Sequence[Any]) -> tuple[Tensor, Tensor] | None:
    """The factors [.., T, D] and [.., D, S] of a product; None for anything else."""
    if func in PRODUCTS and len(args) == 2 and all(isinstance(t, Tensor) for t in args):
        return args[0], args[1]
    if func is not torch.einsum or len(args) != 3 or not all(isinstance(t, Tensor) for t in args[1:]):
        return None
    equation = str(args[0]).replace(" ", "")
    before, arrow, out = equation.partition("->")
    a, _, b = before.partition(",")
    different = len(set(a)) == len(a) and len(set(b)) == len(b) and len(a) == len(b) == len(out) >= 3
    if not arrow or not different or not equation.replace(",", "").replace("->", "").isalpha():
        return None
    if not a[:-2] == b[:-2] == out[:-2] or out[-2] != a[-2]:
        return None
    if (a[-1], out[-1]) == (b[-1], b[-2]):
        return args[1], args[2].mT
    return (args[1], args[2]) if (a[-1], out[-1]) == (b[-2], b[-1]) else None
