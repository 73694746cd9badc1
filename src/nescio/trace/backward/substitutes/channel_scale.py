"""Pictures times one number for each input and channel, as squeeze and excitation multiplies them.

PyTorch's backward goes over the gradient once for the pictures, and twice more for the numbers. Used on a GPU only,
where a kernel of ours does all of it at once for pictures with channels last in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.trace.backward.pull import folded
from nescio.trace.runtime.gpu import kernels

CALLS = {torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__}


class ChannelScale(torch.autograd.Function):
    """``x · scale`` for x [B, C, H, W] and scale [B, C, 1, 1]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        x, scale = ctx.saved_tensors

        def run(g: Tensor) -> tuple[Tensor, ...]:
            by_x, by_scale = kernels(x).scaled(g, x, scale.flatten(1))
            return by_x, by_scale.to(g.dtype)[..., None, None]

        return folded(deltas[0], run)


def call(args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """The product, or None for a call that is left to PyTorch."""
    if kwargs or len(args) != 2 or not all(isinstance(t, Tensor) and t.dim() == 4 for t in args):
        return None
    if not torch.is_grad_enabled() or not all(t.requires_grad and not t.is_leaf for t in args):
        return None
    x, scale = args if args[0].shape[2:].numel() > 1 else reversed(args)
    shape = (*x.shape[:2], 1, 1)
    # of one input the numbers may come from parameters alone, which have a rule for PyTorch's own product
    if scale.shape != shape or x.shape == shape or len(x) == 1 or x.dtype != scale.dtype or not x.numel():
        return None
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return ChannelScale.apply(x, scale) if last and kernels(x, scale) is not None else None
