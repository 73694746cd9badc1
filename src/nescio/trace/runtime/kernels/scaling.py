# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""Pictures times one number for each input and channel: both gradients in one pass over that of the product."""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.trace.runtime.kernels.base import prepared, tl, triton
from nescio.trace.runtime.kernels.single_pass import POSITIONS, arranged, together


def scaled(g: Tensor, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """``g · scale`` in memory as x lies, and ``Σ g x`` over positions [K, B, C] in float32.

    Args:
        g: The gradients [K, B, C, H, W] of the product.
        x: The pictures [B, C, H, W], with channels last in memory.
        scale: The numbers [B, C].
    """
    g, scale = arranged(g, x), scale.contiguous()
    k, b, c = g.shape[:3]
    space = x[0, 0].numel()
    out = torch.empty_strided(g.shape, g.stride(), dtype=g.dtype, device=g.device)
    parts = triton.cdiv(space, POSITIONS)
    sums = g.new_empty((parts, k, b, c), dtype=torch.float32)
    wide, unit = 32 if c <= 32 else 64, together(g, c)
    _scaled[(k * b * triton.cdiv(c, wide), parts)](
        g, x, scale, out, sums, k, b, c // unit, space, unit, wide, 16, num_warps=2
    )
    return out, sums[0] if parts == 1 else sums.sum(0)


if triton is not None:

    @prepared
    @triton.jit(do_not_specialize=["rows", "batch", "channels", "space"])
    def _scaled(
        g, x, scale, out, sums, rows, batch, channels, space,
        unit: tl.constexpr, wide: tl.constexpr, long: tl.constexpr,
    ) -> None:  # fmt: skip
        channels *= unit
        pid = tl.program_id(0)
        k = pid % rows  # cotangents of one input run side by side and share its x in the cache
        tiles = tl.cdiv(channels, wide)
        b = (pid // rows) // tiles
        c = ((pid // rows) % tiles) * wide + tl.arange(0, wide)
        known = c < channels
        factor = tl.load(scale + b.to(tl.int64) * channels + c, mask=known, other=0.0).to(tl.float32)
        total = tl.zeros([long, wide], dtype=tl.float32)
        size = channels * space
        own, base = (k.to(tl.int64) * batch + b) * size, b.to(tl.int64) * size
        for start in range(tl.program_id(1) * long, space, tl.num_programs(1) * long):
            t = start + tl.arange(0, long)
            at = t[:, None] * channels + c[None, :]
            inside = (t[:, None] < space) & known[None, :]
            value = tl.load(g + own + at, mask=inside, other=0.0).to(tl.float32)
            total += value * tl.load(x + base + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(out + own + at, (value * factor[None, :]).to(out.dtype.element_ty), mask=inside)
        place = ((tl.program_id(1).to(tl.int64) * rows + k) * batch + b) * channels + c
        tl.store(sums + place, tl.sum(total, axis=0), mask=known)
