"""Operations in a form whose data gradients, many cotangents at once, are fast on a CPU; weights get none.

    max pooling        the indices of the maxima serve all cotangents, where vmap would copy them for each
    activations        the derivative is worked out once, not for each cotangent (a rectifier's is as fast as it is)
    convolutions       the gradient keeps the layout of what is saved; with few input channels, such as those of a
                       picture, it is a matrix product and a sum over the overlaps: there are too few for a convolution
    self-attention     the gradients of queries, keys and values are laid side by side, where PyTorch fills three
                       tensors of all of them with zeros and adds these up

On a GPU `backward.substitutes.folding` has kernels for these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from nescio.trace.backward.pull import folded
from nescio.trace.backward.substitutes import convolution
from nescio.trace.backward.substitutes.attention import attended, self_attention
from nescio.trace.backward.substitutes.pointwise import ACTIVATIONS
from nescio.trace.runtime.engine_gradients import engine_gradients

_CONVOLUTIONS = (F.conv2d, torch.conv2d)
_SMOOTH = ACTIVATIONS - {F.relu, torch.relu, F.relu6, F.hardtanh, F.leaky_relu}
_FEW = 8
"""Input channels that are few: as many as a vector register holds."""


class OnCPU(TorchFunctionMode):
    """Inside, the calls that have such a form go through it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        x = args[0] if args else kwargs.get("input")
        if not isinstance(x, Tensor) or x.device.type != "cpu" or not x.requires_grad or not torch.is_grad_enabled():
            return func(*args, **kwargs)
        if func in _CONVOLUTIONS and (call := convolution.arguments(*args, **kwargs)) is not None:
            return _Convolution.apply(*call)
        if func is F.max_pool2d and (window := _window(*args, **kwargs)) is not None:
            return _MaxPool.apply(x, *window)
        if func is F.multi_head_attention_forward and (own := self_attention(*args, **kwargs)) is not None:
            return own.finished(attended(own.projected(), own.heads, own.first))
        if func in _SMOOTH and not kwargs.get("inplace") and not any(isinstance(a, bool) for a in args[1:]):
            more = {name: value for name, value in kwargs.items() if name != "input"}
            return _Activation.apply(x, lambda root: func(root, *args[1:], **more))
        return func(*args, **kwargs)


class _Activation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Any) -> Tensor:
        with torch.enable_grad():
            root = x.detach().requires_grad_()
            y = call(root)
        ctx.save_for_backward(*engine_gradients([y], [root], [torch.ones_like(y)]))
        return y.detach()

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        return deltas[0] * ctx.saved_tensors[0], None


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *window: Any) -> Tensor:
        y, at = torch.ops.aten.max_pool2d_with_indices(x, *window)
        ctx.window = window
        ctx.save_for_backward(x, at)
        return y

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        x, at = ctx.saved_tensors
        back = torch.ops.aten.max_pool2d_with_indices_backward.grad_input

        def run(g: Tensor) -> tuple[Tensor]:
            gradients = _like(x, len(g))
            for one, into in zip(g, gradients, strict=True):
                back(one, x, *ctx.window, at, grad_input=into)
            return (gradients,)

        return *folded(deltas[0], run), *[None] * len(ctx.window)


def _window(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> tuple[Any, ...] | None:
    """The arguments of a pooling over pictures, or None for a call that is left to PyTorch."""
    if return_indices or input.ndim != 4:
        return None
    given = (kernel_size, kernel_size if stride is None else stride, padding, dilation)
    return *([v] * 2 if isinstance(v, int) else list(v) for v in given), ceil_mode


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
        stride, padding, dilation, groups = geometry
        ctx.geometry, ctx.shape, ctx.last = geometry, x.shape[2:], _last(x)
        ctx.save_for_backward(weight)
        return torch.ops.aten.convolution(x, weight, bias, stride, padding, dilation, False, [0, 0], groups)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        (weight,) = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.geometry
        few = groups == 1 and weight.shape[1] <= _FEW and weight[0].numel() <= 2 * len(weight)
        few = few and weight.dtype in (torch.float32, torch.float64)

        def run(g: Tensor) -> tuple[Tensor]:
            rows = g.flatten(0, 1)
            if ctx.last:
                rows = rows.contiguous(memory_format=torch.channels_last)
            if few:  # the gradient of every patch, added up where patches overlap
                patches = rows.flatten(2).transpose(1, 2) @ weight.flatten(1)
                gradient = F.fold(
                    patches.transpose(1, 2), ctx.shape, weight.shape[2:],
                    dilation=dilation, padding=padding, stride=stride,
                )  # fmt: skip
            else:
                gradient = convolution.data_gradient(rows, weight, ctx.shape, *ctx.geometry)
            return (gradient.unflatten(0, g.shape[:2]),)

        return *folded(deltas[0], run), *[None] * 6


def _last(x: Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _like(x: Tensor, count: int) -> Tensor:
    """Room for `count` tensors like x, [count, *x.shape], each in its layout."""
    layout = torch.channels_last if _last(x) else torch.contiguous_format
    room = torch.empty((count * len(x), *x.shape[1:]), dtype=x.dtype, memory_format=layout)
    return room.unflatten(0, (count, len(x)))
