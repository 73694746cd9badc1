"""Batch norm in eval mode as what it is, an affine map: ``y = s x + t`` with ``s = γ/√(v + ε)``, ``t = β − s m``.

PyTorch's own backward of batch norm is written for training; under `vmap` it falls apart into a dozen passes over the
data. Inside `folding` the eval-mode calls of a model go through `AffineBatchNorm`, whose data gradient is
one product. Its parameters get no gradient from autograd here: their norms come from a rule, and the probe compares
that with the model's own batch norm. On a GPU the rule's one pass over the gradient makes the data gradient too and
leaves it in ``ready`` for the backward that follows; and an activation right behind is taken into it (`activated`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nescio.trace.backward.pull import folded
from nescio.trace.runtime import autograd_names as names
from nescio.trace.runtime import cudnn
from nescio.trace.runtime.gpu import kernels


class AffineBatchNorm(torch.autograd.Function):
    """``y = s x + t`` for each channel, or an activation of it with given ``value`` and derivative ``gate`` (None: a
    rectifier's); saved for the rule: x, mean and variance.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        var: Tensor,
        eps: float,
        value: Tensor | None = None,
        gate: Tensor | None = None,
    ) -> Tensor:
        if value is not None:
            return value
        usual = x.numel() and not torch._C._are_functorch_transforms_active() and not cudnn.is_looking(x.dtype)
        if usual and (module := kernels(x)) is not None:
            return laid_out(module.channel_map(x, weight, bias, mean, var, eps))
        scale, shift = scale_and_shift(weight, bias, mean, var, eps)
        return laid_out(torch.addcmul(by_channel(shift, x), x, by_channel(scale, x)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, _, mean, var, eps, value, gate = inputs
        if value is not None:
            ctx.mark_dirty(value)  # it is the result itself, not a view of it: models write into it
        ctx.eps, ctx.ready = eps, None
        ctx.joined, ctx.rectified = value is not None, value is not None and gate is None
        ctx.arguments = inputs[:6]
        ctx.save_for_backward(x, weight, mean, var, output if ctx.rectified else gate)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, var, _ = ctx.saved_tensors
        if kernels(x) is None:
            grad = deltas[0] * by_channel(scale_and_shift(weight, None, mean, var, ctx.eps)[0], x)
        else:

            def run(g: Tensor) -> tuple[Tensor]:
                ready = kept(ctx, g)
                return (pulled(ctx, g)[0] if ready is None else ready,)

            (grad,) = folded(deltas[0], run)
        return grad, None, None, None, None, None, None, None


def scale_and_shift(
    weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """``s = γ/√(v + ε)`` and ``t = β − s m`` of every channel."""
    scale = (var + eps).rsqrt() if weight is None else weight * (var + eps).rsqrt()
    return scale, -mean * scale if bias is None else bias - mean * scale


def by_channel(t: Tensor, like: Tensor) -> Tensor:
    """One number a channel, in a shape that goes with ``like`` [B, channels, *space]."""
    return t.view(1, -1, *(1,) * (like.dim() - 2))


def normalised(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """``γ (x − m)/√(v + ε) + β`` step by step, in at least single precision, so that autograd differentiates it."""
    y = (wide(x) - mean) * (wide(var) + eps).rsqrt()
    y = y if weight is None else y * by_channel(weight, x)
    return (y if bias is None else y + by_channel(bias, x)).to(x.dtype)


def wide(x: Tensor) -> Tensor:
    """The tensor in at least single precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def laid_out(y: Tensor) -> Tensor:
    """The result of a batch norm, in memory as PyTorch lays it: models call view() on it."""
    return y if y.dim() > 3 and y.stride(1) == 1 else y.contiguous()  # channels last, or first


def pulled(node: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The data gradient, ``Σ g x̂`` and ``Σ g`` [K, B, channels] by a kernel."""
    x, weight, mean, var, gate = node.saved_tensors
    return kernels(x).affine(g, x, weight, mean, var, node.eps, gate, node.rectified)


def kept(node: Any, g: Tensor) -> Tensor | None:
    """The data gradient that a rule left in ``ready``, if it was made from this very g."""
    ready, node.ready = node.ready, None
    if ready is None or (ready[0].data_ptr(), ready[0].stride()) != (g.data_ptr(), g.stride()):
        return None
    return ready[1]


def activated(y: Tensor, value: Tensor, gate: Tensor | None, inplace: bool) -> Tensor | None:
    """The activation ``value`` of a batch norm's output y, as one operation with it; None if y is none.

    With ``inplace`` y itself becomes that: whoever still holds it goes on from the activation.
    """
    node: Any = y.grad_fn
    if node is None or node.name() != names.AFFINE_BATCH_NORM or node.joined or y._is_view():
        return None
    return AffineBatchNorm.apply(*node.arguments, written(y.detach_(), value) if inplace else value, gate)


def written(t: Tensor, value: Tensor) -> Tensor:
    """The tensor with this value, which may have been written there already."""
    return t if t.data_ptr() == value.data_ptr() else t.copy_(value)


def arguments(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> tuple[Any, ...] | None:
    """The arguments of `AffineBatchNorm`, or None for a call that it is not made for."""
    plain = running_mean is not None and running_var is not None and running_mean.dtype == input.dtype
    if training or not plain or input.dim() < 2:
        return None
    if not all(t is None or t.is_leaf for t in (weight, bias, running_mean, running_var)):
        return None  # computed, maybe from the input: it hands gradients on
    return input, weight, bias, running_mean, running_var, eps
