"""The mean over the positions of a picture, whose gradient is one number a channel until something else needs more.

PyTorch writes that number down at every position, for every cotangent, with channels first in memory. Where other
gradients are added to it, as in squeeze and excitation, it is read from there and from a picture with channels last.
Used on a GPU only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MEANS = (torch.mean, torch.Tensor.mean)
CALLS = {F.adaptive_avg_pool2d, *MEANS}


class SpatialMean(torch.autograd.Function):
    """``call()``, the mean of x [B, C, H, W] over its positions, [B, C, 1, 1] or [B, C]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Callable[[], Tensor]) -> Tensor:
        ctx.shape = x.shape
        return call()

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor, None]:
        height, width = ctx.shape[2:]
        share = deltas[0].reshape(*ctx.shape[:2], 1, 1) / (height * width)
        return share.expand(ctx.shape), None


def call(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """The mean, or None for a call that is left to PyTorch."""
    x = args[0] if args else kwargs.get("input")
    if not isinstance(x, Tensor) or x.dim() != 4 or not x.is_cuda or not x.is_floating_point() or not x.numel():
        return None
    if not (x.requires_grad and torch.is_grad_enabled()):
        return None
    over = _whole(*args[1:], **kwargs) if func not in MEANS else _positions(*args[1:], **kwargs)
    return SpatialMean.apply(x, lambda: func(*args, **kwargs)) if over else None


def _whole(output_size: Any = None, **others: Any) -> bool:
    """Whether pooling to this size leaves one position."""
    return output_size == 1 or (isinstance(output_size, tuple | list) and list(output_size) == [1, 1])


def _positions(dim: Any = None, keepdim: Any = False, **others: Any) -> bool:
    """Whether a mean over these dimensions is over the positions, in the type of the picture."""
    named = {key for key in others if key != "input"}
    return not named and isinstance(dim, tuple | list) and sorted(d % 4 for d in dim) == [2, 3]
