"""Linear layers at many positions, on a CPU, whose backward goes where a gradient arrives and nowhere else.

Behind the last block of a transformer often one token alone is looked at. At every other position the gradient is zero
there, through all layers down to the last attention, and PyTorch multiplies the zeros. What is left out is all zeros.
Weights get no gradient from autograd: their norms come from a rule, and the probe compares that with the model's own
operation. Only what is pulled on through a part of the network that no input enters needs theirs (`weights_too`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.backward.pull import folded

SEEN = 8
"""Features of a gradient that are looked at first: where there is something everywhere, it is seen in these."""
_WHOLE = ContextVar("_WHOLE", default=False)


class DataLinear(torch.autograd.Function):
    """``y = x Wᵀ + b`` over [.., I]; saved for the rule: x and W."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        y = F.linear(x.contiguous(), weight, bias)  # otherwise it is a product of its own for each position
        return torch.ops.aten._unsafe_view(y, y.shape)  # no view: PyTorch 2.6 lets nobody write into one from here

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        own: list[Tensor | None] = [None, None]
        if _WHOLE.get():
            rows = deltas[0].flatten(0, -2)
            own = [rows.mT @ x.flatten(0, -2), rows.sum(0) if ctx.needs_input_grad[2] else None]
        if not ctx.needs_input_grad[0]:
            return None, *own

        def run(g: Tensor) -> tuple[Tensor]:
            rows = g.reshape(-1, g.shape[-1])
            at = reached(rows)
            if at is None:
                out = rows @ weight
            else:
                out = rows.new_zeros((len(rows), weight.shape[1])).index_copy_(0, at, rows[at] @ weight)
            return (out.view(*g.shape[:-1], -1),)

        return *folded(deltas[0], run), *own


@contextmanager
def weights_too() -> Iterator[None]:
    """Inside, a backward pass gives weights and biases their gradients as well."""
    before = _WHOLE.set(True)
    try:
        yield
    finally:
        _WHOLE.reset(before)


def reached(g: Tensor, dim: int = 0) -> Tensor | None:
    """Places along a dimension at which a gradient is not all zero; None where these are more than half of them."""
    others = tuple(i for i in range(g.dim()) if i != dim)
    if 2 * int((g[..., :SEEN] != 0).any(others).sum()) > g.shape[dim]:
        return None
    at = (g != 0).any(others).nonzero().squeeze(1)
    return at if 2 * len(at) <= g.shape[dim] else None


def arguments(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Any, ...] | None:
    """The arguments of `DataLinear`, or None for a call that it is not made for."""
    given = [t for t in (input, weight, bias) if t is not None]
    if input.is_nested or input.dim() < 3 or not torch.is_grad_enabled() or not any(t.requires_grad for t in given):
        return None
    if not all(t.device.type == "cpu" and t.layout == torch.strided and t.dtype == input.dtype for t in given):
        return None
    if input.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return None
    return (input, weight, bias) if weight.is_leaf and (bias is None or bias.is_leaf) else None
