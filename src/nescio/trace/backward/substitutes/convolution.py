"""Convolution whose backward gives the data gradient alone: the transposed convolution of the output gradient.

PyTorch's own backward of a convolution takes the input too, and under `vmap` copies it once for every cotangent,
though the data gradient does not depend on it. The parameters get no gradient from autograd here: their norms come
from a rule, and the probe compares that with the model's own convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.trace.backward.pull import folded
from nescio.trace.runtime import cudnn
from nescio.trace.runtime.gpu import kernels


class DataConvolution(torch.autograd.Function):
    """``y = W ⋆ x + b``; saved for the rule: x, W and the geometry (stride, padding, dilation, groups)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Tensor:
        own = _depthwise(x, weight, groups)
        if own is not None and not cudnn.is_looking(x.dtype):
            reach = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
            size = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in reach]
            y: Tensor = own(x, weight, stride, padding, dilation, size, False)
            return y if bias is None else y.add_(bias.view(-1, 1, 1))
        none = [0] * (x.dim() - 2)
        with cudnn.spared(x.dtype, groups if own is None else 1):  # PyTorch takes all channels at once, too
            y = torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, False, none, groups)
        return y.contiguous(memory_format=torch.channels_last) if _last(x) else y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, *geometry = inputs
        ctx.geometry = geometry
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors

        own = _depthwise(x, weight, ctx.geometry[-1])

        def transposed(delta: Tensor) -> Tensor:
            if own is not None:
                result: Tensor = own(delta, weight, *ctx.geometry[:-1], x.shape[2:], True)
                return result
            with cudnn.spared(x.dtype, ctx.geometry[-1]):
                return data_gradient(delta, weight, x.shape[2:], *ctx.geometry)

        def run(g: Tensor) -> tuple[Tensor]:
            rows = g.flatten(0, 1)
            if own is not None or _last(x):
                rows = rows.contiguous(memory_format=torch.channels_last)
            return (transposed(rows).unflatten(0, g.shape[:2]),)

        grad = folded(deltas[0], run)[0] if own or (x.is_cuda and x.dim() == 4) else transposed(deltas[0])
        return grad, None, None, None, None, None, None


def _last(x: Tensor) -> bool:
    """Whether channels are last in memory, of pictures on a GPU."""
    return x.is_cuda and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def channels_last(x: Any) -> Any:
    """The picture with channels last in memory, where there are kernels for these."""
    if not isinstance(x, Tensor) or x.dim() != 4 or kernels(x) is None:
        return x
    return x.contiguous(memory_format=torch.channels_last)


def _depthwise(x: Tensor, weight: Tensor, groups: int) -> Any:
    """The GPU kernel for these, where every channel has a kernel of its own and channels are last; else None."""
    if (
        x.dim() != 4
        or not 1 < groups == x.shape[1] == weight.shape[0]
        or not x.is_contiguous(memory_format=torch.channels_last)
    ):
        return None
    kernel = kernels(x, weight)
    return None if kernel is None else kernel.depthwise


def data_gradient(
    delta: Tensor, weight: Tensor, size: Sequence[int], stride: Any, padding: Any, dilation: Any, groups: int
) -> Tensor:
    """The gradient at an input of this ``size`` in space: the transposed convolution of that at the output."""
    reach = zip(size, delta.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    more = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1) for n, m, k, s, p, d in reach]
    return torch.ops.aten.convolution(delta, weight, None, stride, padding, dilation, True, more, groups)


def arguments(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Any, ...] | None:
    """The arguments of `DataConvolution`, or None for a call that it is not made for."""
    dims = weight.dim() - 2
    plain = input.dim() == weight.dim() and not isinstance(padding, str) and input.dtype == weight.dtype
    if not plain or torch.is_autocast_enabled(input.device.type):
        return None
    if not all(t is None or t.is_leaf for t in (weight, bias)):
        return None  # computed, maybe from the input: it hands gradients on
    each = ([v] * dims if isinstance(v, int) else list(v) for v in (stride, padding, dilation))
    lists = [v * dims if len(v) == 1 else v for v in each]
    return input, weight, bias, *lists, groups
