# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""Batch norm in eval mode, forward: a multiple and a shift for each channel, made from its parameters on the way."""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.trace.runtime.kernels.base import prepared, tl, triton
from nescio.trace.runtime.kernels.single_pass import together

TILE = 4096
"""Numbers that one program goes through."""


def channel_map(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """``s x + t`` with ``s = γ/√(v + ε)`` and ``t = β − s m`` by channel, for x [B, C, *space] that is not empty; in
    memory as x lies, where that is channels first or last.
    """
    x = x if x.is_contiguous() or x.movedim(1, -1).is_contiguous() else x.contiguous()
    weighted, biased = weight is not None, bias is not None
    weight, bias, mean, var = (x if t is None else t.contiguous() for t in (weight, bias, mean, var))
    out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    b, c = x.shape[:2]
    space = x[0, 0].numel()
    last = space == 1 or not x.is_contiguous()  # channels
    rows, columns = (b * space, c) if last else (b * c, space)
    unit, wide = together(x, columns), 16 if columns <= 16 else 64
    tall = TILE // wide
    _channel_map[(triton.cdiv(rows, tall) * triton.cdiv(columns, wide),)](
        x, weight, bias, mean, var, out,
        eps, rows, columns // unit, c, weighted, biased, last, unit, tall, wide, num_warps=4,
    )  # fmt: skip
    return out


if triton is not None:

    @prepared
    @triton.jit(do_not_specialize=["eps", "rows", "columns", "channels"])
    def _channel_map(
        x, weight, bias, mean, var, out, eps, rows, columns, channels,
        weighted: tl.constexpr, biased: tl.constexpr, last: tl.constexpr,
        unit: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr,
    ) -> None:  # fmt: skip
        columns *= unit
        across = tl.cdiv(columns, wide)
        row = ((tl.program_id(0) // across).to(tl.int64) * tall + tl.arange(0, tall))[:, None]
        column = (tl.program_id(0) % across * wide + tl.arange(0, wide))[None, :]
        inside = (row < rows) & (column < columns)
        if last:
            c, known = column, column < columns
        else:
            c, known = row % channels, row < rows
        s = tl.rsqrt(tl.load(var + c, mask=known, other=1.0).to(tl.float32) + eps)
        if weighted:
            s *= tl.load(weight + c, mask=known, other=0.0).to(tl.float32)
        t = -tl.load(mean + c, mask=known, other=0.0).to(tl.float32) * s
        if biased:
            t += tl.load(bias + c, mask=known, other=0.0).to(tl.float32)
        value = tl.load(x + row * columns + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + row * columns + column, (value * s + t).to(out.dtype.element_ty), mask=inside)
