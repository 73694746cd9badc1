"""Layer norm over the last dimension whose backward gives the data gradient alone, by a kernel.

PyTorch's own backward copies the input and its statistics once for every cotangent. Used on a GPU only; the rule's one
pass over the gradient makes the data gradient too and leaves it in ``ready`` for the backward that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.trace.backward.pull import folded
from nescio.trace.backward.substitutes.batch_norm import kept
from nescio.trace.runtime.gpu import kernels


class DataLayerNorm(torch.autograd.Function):
    """``y = γ x̂ + β``; saved for the rule: x, γ, the mean and the inverse deviation of each row."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return torch.native_layer_norm(x, (x.shape[-1],), weight, bias, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        _, mean, rstd = output
        ctx.mark_non_differentiable(mean, rstd)
        ctx.ready = None
        ctx.save_for_backward(inputs[0], inputs[1], mean, rstd)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        def run(g: Tensor) -> tuple[Tensor]:
            ready = kept(ctx, g)
            return (pulled(ctx, g, g.shape[1])[0] if ready is None else ready,)

        return *folded(deltas[0], run), None, None, None


def pulled(node: Any, g: Tensor, inputs: int) -> tuple[Tensor, Tensor, Tensor]:
    """The data gradient, and ``Σ g x̂`` and ``Σ g`` [K, inputs, D] over the adjacent rows of each input."""
    x, weight, mean, rstd = node.saved_tensors
    return kernels(x).layer_norm(g, x, mean, rstd, weight, inputs)


def arguments(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Any, ...] | None:
    """The arguments of `DataLayerNorm`, or None for a call that it is not made for."""
    if len(normalized_shape) != 1 or input.dim() < 2 or kernels(input) is None or input.shape[-1] > 8192:
        return None
    if not all(t is None or (t.is_leaf and t.dtype == input.dtype) for t in (weight, bias)):
        return None
    return input, weight, bias, eps
