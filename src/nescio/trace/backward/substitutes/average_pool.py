"""Average pooling of pictures with the right gradient, and with one that many cotangents go through together.

On a GPU, before PyTorch 2.15, the gradient of padded average pooling is that of other positions where channels are
last in memory. Without padding it is right, so `averaging` makes the zeros a part of the picture. Windows that reach
beyond the padding (`ceil_mode`), or do not count it, are divided by what they do count.

The gradient needs nothing of the picture but its size, yet under `vmap` PyTorch's own copies the picture once for every
cotangent. `DataAverage` keeps the size alone, and has channels first in memory, where the gradient is right; or it goes
through the kernel for convolutions by channel, where channels are last and all windows count alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.backward.pull import folded
from nescio.trace.runtime.gpu import kernels

FIXED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
"""Whether this PyTorch has the right gradient."""


class _Call(NamedTuple):
    """A call of `F.avg_pool2d`."""

    input: Tensor
    kernel_size: int | Sequence[int]
    stride: int | Sequence[int] | None = None
    padding: int | Sequence[int] = 0
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None


def averaging(func: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """The pooling ``func`` without padding of its own; None for a call that is left to PyTorch.

    It does not ask how the picture lies in memory: inside of vmap that cannot be told.
    """

    def call(*args: Any, **kwargs: Any) -> Tensor | None:
        input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override = _Call(*args, **kwargs)
        around = _pair(padding)
        if FIXED or not input.is_cuda or input.dim() != 4 or not any(around):
            return None
        kernel, size = _pair(kernel_size), input.shape[2:]
        step = _pair(stride) or kernel
        beyond = [_beyond(*each, ceil_mode) for each in zip(size, kernel, step, around, strict=True)]
        edges = [e for p, more in zip(reversed(around), reversed(beyond), strict=True) for e in (p, p + more)]
        padded = F.pad(input, edges)
        if divisor_override is not None or (count_include_pad and not any(beyond)):
            return func(padded, kernel, step, 0, False, True, divisor_override)
        counted = input.new_ones((1, 1, *size))
        if count_include_pad:
            counted = F.pad(counted, [p for p in reversed(around) for _ in range(2)], value=1.0)
            edges = [e for more in reversed(beyond) for e in (0, more)]
        return func(padded, kernel, step, 0, False, True, 1) / func(
            F.pad(counted, edges), kernel, step, 0, False, True, 1
        )

    return call


class DataAverage(torch.autograd.Function):
    """The average under each position of a window; saved is the geometry alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *geometry: Any) -> Tensor:
        ctx.shape, ctx.geometry = x.shape, geometry
        ctx.last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
        result: Tensor = torch.ops.aten.avg_pool2d(x, *geometry)
        return result

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        def run(g: Tensor) -> tuple[Tensor]:
            rows = g.flatten(0, 1)
            module = kernels(rows) if ctx.last and _even(*ctx.geometry) else None
            if module is not None:
                return (_by_channel(module, rows, ctx.shape, *ctx.geometry).unflatten(0, g.shape[:2]),)
            rows = rows.contiguous()
            like = rows.new_empty((len(rows), *ctx.shape[1:]))  # its size is looked at
            gradient = torch.ops.aten.avg_pool2d_backward(rows, like, *ctx.geometry)
            return (gradient.unflatten(0, g.shape[:2]),)

        return *folded(deltas[0], run), *[None] * len(ctx.geometry)


def _even(kernel: Any, step: Any, around: Sequence[int], ceil_mode: bool, counted: bool, divisor: int | None) -> bool:
    """Whether what is added up is divided by one number everywhere."""
    return not ceil_mode and (divisor is not None or counted or not any(around))


def _by_channel(
    module: Any, rows: Tensor, shape: Sequence[int], kernel: Any, step: Any, around: Any, *rest: Any
) -> Tensor:
    """The gradient at pictures of this shape: a convolution by channel with equal weights, backwards."""
    weight = rows.new_full((shape[1], 1, *kernel), 1.0 / (rest[-1] or math.prod(kernel)))
    rows = rows.contiguous(memory_format=torch.channels_last)
    result: Tensor = module.depthwise(rows, weight, step or kernel, around, (1, 1), shape[2:], True)
    return result


def arguments(*args: Any, **kwargs: Any) -> tuple[Any, ...] | None:
    """The arguments of `DataAverage`, or None for a call that it is not made for."""
    x, kernel_size, stride, padding, *rest = _Call(*args, **kwargs)
    if x.dim() != 4 or not x.is_cuda or not (x.requires_grad and torch.is_grad_enabled()):
        return None
    return x, _pair(kernel_size), _pair(stride), _pair(padding), *rest


def _pair(value: int | Sequence[int] | None) -> list[int]:
    """One number for each dimension; nothing where nothing is given."""
    if value is None or isinstance(value, int):
        return [] if value is None else [value] * 2
    return list(value) * 2 if len(value) == 1 else list(value)


def _beyond(n: int, k: int, s: int, p: int, ceil_mode: bool) -> int:
    """How far the last window reaches beyond the padding."""
    if not ceil_mode:
        return 0
    out = -(-(n + 2 * p - k) // s) + 1
    out -= (out - 1) * s >= n + p  # a window has to begin in the picture, or in front of it
    return max(0, (out - 1) * s + k - (n + 2 * p))
