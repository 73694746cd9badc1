# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""Kernels of one pass over the gradients: activations, norms, and copies in another order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nescio.trace.runtime.kernels.base import prepared, tl, triton


def arranged(g: Tensor, like: Tensor) -> Tensor:
    """The gradients [K, *shape] with each cotangent's part laid out in memory as ``like`` [*shape] is."""
    if g.stride()[1:] == like.stride() and g.stride(0) == like.numel():
        return g
    out = torch.empty_strided(g.shape, (like.numel(), *like.stride()), dtype=g.dtype, device=g.device)
    return out.copy_(g)


def dense(t: Tensor) -> Tensor:
    """The tensor, copied if its elements are not one block of memory."""
    order = sorted(range(t.dim()), key=lambda i: (t.stride(i), t.shape[i]), reverse=True)
    return t if t.permute(order).is_contiguous() else t.contiguous()


POSITIONS, ROWS = 1024, 256
"""Positions of a picture, and rows of a sequence, that one program goes through: by one after another alone a large
picture would leave most of a GPU idle. Parts depend on nothing but the sizes of one input.
"""
SIDE_BY_SIDE = 4
"""Cotangents that a program of `affine` takes at once where channels are last: what they share is read once for them
all. Read for each alone, even out of the cache, it takes as long as the gradients themselves.
"""


def together(like: Tensor, *sizes: int) -> int:
    """How many numbers a GPU can move at once, where all sizes are multiples of that.

    A kernel is told the sizes in these units: it is compiled once for all of them, and knows that they are aligned.
    """
    unit = 16 // like.element_size()
    return 1 if any(size % unit for size in sizes) else unit


def times(g: Tensor, d: Tensor, more: Tensor | None = None, rectified: bool = False) -> Tensor:
    """``g[k] · d`` for g [K, *shape] and d [*shape], or ``(g[k] + more[k]) · d``; with ``rectified`` d is the value of
    a rectifier and stands for its derivative.
    """
    d = dense(d)
    g = arranged(g, d)
    other = g if more is None else arranged(more, d)
    out = torch.empty_strided(g.shape, g.stride(), dtype=g.dtype, device=g.device)
    size, block = d.numel(), 1024
    _times[(triton.cdiv(size, block),)](g, other, d, out, size, len(g), more is not None, rectified, block, num_warps=8)
    return out


def affine(
    g: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    gate: Tensor | None = None,
    rectified: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """``h · γ r``, ``Σ h x̂`` and ``Σ h`` [K, B, C] with ``h = g · gate``, ``r = 1/√(v + ε)`` and ``x̂ = (x − m) r``, for
    gradients g [K, B, C, *space]. With ``rectified`` the gate is a rectifier's value, and stands for its derivative.
    """
    x = x if x.is_contiguous() or x.movedim(1, -1).is_contiguous() else x.contiguous()
    g = arranged(g, x)
    gate = gate if gate is None else arranged(gate.unsqueeze(0), x)
    weighted = weight is not None
    weight, mean, var = (x if t is None else t.contiguous() for t in (weight, mean, var))
    k, b, c = g.shape[:3]
    space = x[0, 0].numel()
    last = not x.is_contiguous()  # channels
    out = torch.empty_strided(g.shape, g.stride(), dtype=g.dtype, device=g.device)
    parts = triton.cdiv(space, POSITIONS)
    sums = g.new_empty((2, parts, k, b, c), dtype=torch.float32)
    # few sizes of tiles: each is compiled by itself
    wide = (32 if c <= 32 else 64) if last else 16
    long = 8 if last else 16 if space <= 16 else 64 if space <= 64 else 256
    some = SIDE_BY_SIDE if last else 1
    unit = together(g, c if last else space)
    sizes = (c // unit, space) if last else (c, space // unit)
    _affine[(triton.cdiv(k, some) * b * triton.cdiv(c, wide), parts)](
        g, x, x if gate is None else gate, weight, mean, var, out, sums[0], sums[1],
        eps, k, b, *sizes, weighted, gate is not None, rectified, last, unit, wide, long, some, num_warps=4,
    )  # fmt: skip
    products, total = _added(sums)
    return out, products, total


def _added(sums: Tensor) -> tuple[Tensor, Tensor]:
    """The two sums [2, parts, ..] of all parts."""
    products, total = sums.squeeze(1) if sums.shape[1] == 1 else sums.sum(1)
    return products, total


def patches(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out: Sequence[int],
) -> Tensor:
    """Patches [B, T, kernel·C] of x [B, C, H, W], channels last in memory, under the T = out[0]·out[1] positions."""
    batch, channels, height, width = x.shape
    rows_out = x.new_empty((batch, out[0] * out[1], kernel[0] * kernel[1] * channels))
    rows = batch * out[0] * out[1] * kernel[0] * kernel[1]
    wide = 4 if channels <= 4 else 64
    tall = 2048 // wide
    _patches[(triton.cdiv(rows, tall),)](
        x, rows_out, rows, channels, height, width, out[0], out[1], *kernel, *stride, *padding, *dilation, tall, wide
    )
    return rows_out


def layer_norm(
    g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, inputs: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The data gradient of layer norm over the last dimension, and ``Σ g x̂`` and ``Σ g`` [K, inputs, D] over an input's
    rows, for g [K, *rows, D], x [*rows, D] and statistics [*rows, 1]; the rows of one input are adjacent.
    """
    x, g, mean, rstd = (t.contiguous() for t in (x, g, mean, rstd))
    k, d = len(g), x.shape[-1]
    rows = x.numel() // d
    out = torch.empty_like(g)
    wide = triton.next_power_of_2(d)
    tall = max(1, min(8, 4096 // wide))
    parts = triton.cdiv(rows // inputs, ROWS)
    sums = g.new_empty((2, parts, k, inputs, d), dtype=torch.float32)
    _layer_norm[(k * inputs, parts)](
        g, x, mean, rstd, x if weight is None else weight, out, sums[0], sums[1],
        k, rows, inputs, d, weight is not None, tall, tall if wide <= 512 else 1, wide,
        num_warps=4 if wide <= 1024 else 8,
    )  # fmt: skip
    products, total = _added(sums)
    return out, products, total


def turned(d: Tensor) -> Tensor:
    """A copy [N·G, T, K·O] of d [K, N, G, T, O], whose rows of O numbers lie in one piece each."""
    k, n, g, t, o = d.shape
    out = d.new_empty((n * g, t, k * o))
    wide = 32 if o <= 32 else 64  # few sizes of tiles: each is compiled by itself
    tall = 2048 // wide
    unit = together(d, o, *d.stride()[:4])
    sizes = (size // unit for size in (o, *d.stride()[:4]))
    grid = n * g * triton.cdiv(t, tall), triton.cdiv(o, wide)
    _turned[grid](d, out, k, g, t, *sizes, unit, tall, wide, num_warps=4)
    return out


if triton is not None:

    @prepared
    @triton.jit(do_not_specialize=["size", "rows"])
    def _times(
        g, more, d, out, size, rows, two: tl.constexpr, rectified: tl.constexpr, block: tl.constexpr
    ) -> None:  # fmt: skip
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = at < size
        factor = tl.load(d + at, mask=inside, other=0.0).to(tl.float32)
        if rectified:
            factor = tl.where(factor <= 0, 0.0, 1.0)
        for _ in range(rows):
            value = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
            if two:
                value += tl.load(more + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(out + at, (value * factor).to(out.dtype.element_ty), mask=inside)
            at += size

    @prepared
    @triton.jit(do_not_specialize=["rows", "groups", "length", "width", "d0", "d1", "d2", "d3"])
    def _turned(
        d, out, rows, groups, length, width, d0, d1, d2, d3,
        unit: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr,
    ) -> None:  # fmt: skip
        width *= unit
        d0, d1 = d0.to(tl.int64) * unit, d1.to(tl.int64) * unit
        d2, d3 = d2.to(tl.int64) * unit, d3.to(tl.int64) * unit
        blocks = tl.cdiv(length, tall)
        own = tl.program_id(0) // blocks
        t = tl.program_id(0) % blocks * tall + tl.arange(0, tall)
        o = tl.program_id(1) * wide + tl.arange(0, wide)
        inside = (t[:, None] < length) & (o[None, :] < width)
        start = (own // groups) * d1 + (own % groups) * d2 + t[:, None] * d3 + o[None, :]
        end = (own.to(tl.int64) * length + t[:, None]) * rows * width + o[None, :]
        for k in range(rows):
            value = tl.load(d + start + k * d0, mask=inside, other=0.0)
            tl.store(out + end + k * width, value, mask=inside)

    @prepared
    @triton.jit(do_not_specialize=["eps", "rows", "batch", "channels", "space"])
    def _affine(
        g, x, gate, weight, mean, var, out, products, sums,
        eps, rows, batch, channels, space,
        weighted: tl.constexpr, gated: tl.constexpr, rectified: tl.constexpr, last: tl.constexpr,
        unit: tl.constexpr, wide: tl.constexpr, long: tl.constexpr, some: tl.constexpr,
    ) -> None:  # fmt: skip
        if last:
            channels *= unit
        else:
            space *= unit
        pid = tl.program_id(0)
        groups = tl.cdiv(rows, some)
        k = (pid % groups * some + tl.arange(0, some))[:, None, None]  # those of one input run side by side, too
        tiles = tl.cdiv(channels, wide)
        b = ((pid // groups) // tiles).to(tl.int64)
        c = (((pid // groups) % tiles) * wide + tl.arange(0, wide))[None, None, :]
        known = c < channels
        m = tl.load(mean + c, mask=known, other=0.0).to(tl.float32)
        r = tl.rsqrt(tl.load(var + c, mask=known, other=1.0).to(tl.float32) + eps)
        s = r
        if weighted:
            s *= tl.load(weight + c, mask=known, other=0.0).to(tl.float32)
        # channels of one position are one warp's own: adding positions up means waiting, so that is left to the end
        kept: tl.constexpr = long if last else 1
        product = tl.zeros([some, kept, wide], dtype=tl.float32)
        total = tl.zeros([some, kept, wide], dtype=tl.float32)
        size = channels * space
        own = (k.to(tl.int64) * batch + b) * size
        for start in range(tl.program_id(1) * long, space, tl.num_programs(1) * long):
            t = (start + tl.arange(0, long))[None, :, None]
            at = t * channels + c if last else t + c * space
            there = (t < space) & known
            inside = there & (k < rows)
            value = tl.load(g + own + at, mask=inside, other=0.0).to(tl.float32)
            normal = (tl.load(x + b * size + at, mask=there, other=0.0).to(tl.float32) - m) * r
            if gated:
                factor = tl.load(gate + b * size + at, mask=there, other=0.0).to(tl.float32)
                value *= tl.where(factor <= 0, 0.0, 1.0) if rectified else factor
            if last:
                product += value * normal
                total += value
            else:
                product += tl.sum(value * normal, axis=1, keep_dims=True)
                total += tl.sum(value, axis=1, keep_dims=True)
            tl.store(out + own + at, (value * s).to(out.dtype.element_ty), mask=inside)
        place = ((tl.program_id(1).to(tl.int64) * rows + k) * batch + b) * channels + c
        known &= k < rows
        tl.store(products + place, tl.sum(product, axis=1, keep_dims=True), mask=known)
        tl.store(sums + place, tl.sum(total, axis=1, keep_dims=True), mask=known)

    @prepared
    @triton.jit(
        do_not_specialize=[
            "rows", "height", "width", "tall_out", "wide_out", "tall_kernel", "wide_kernel",
            "down", "right", "pad_top", "pad_left", "apart_down", "apart_right",
        ]
    )  # fmt: skip
    def _patches(
        x, out, rows, channels, height, width, tall_out, wide_out,
        tall_kernel, wide_kernel, down, right, pad_top, pad_left, apart_down, apart_right,
        tall: tl.constexpr, wide: tl.constexpr,
    ) -> None:  # fmt: skip
        row = tl.program_id(0) * tall + tl.arange(0, tall)  # position and place in the kernel
        place = row % (tall_kernel * wide_kernel)
        position = row // (tall_kernel * wide_kernel)
        b = position // (tall_out * wide_out)
        i = position // wide_out % tall_out * down - pad_top + place // wide_kernel * apart_down
        j = position % wide_out * right - pad_left + place % wide_kernel * apart_right
        inside = (row < rows) & (i >= 0) & (i < height) & (j >= 0) & (j < width)
        start = ((b * height + i) * width + j).to(tl.int64) * channels
        end = row.to(tl.int64) * channels
        for first in range(0, channels, wide):
            c = first + tl.arange(0, wide)
            known = c[None, :] < channels
            value = tl.load(x + start[:, None] + c[None, :], mask=inside[:, None] & known, other=0.0)
            tl.store(out + end[:, None] + c[None, :], value, mask=(row[:, None] < rows) & known)

    @prepared
    @triton.jit(do_not_specialize=["cotangents", "rows", "inputs"])
    def _layer_norm(
        g, x, mean, rstd, weight, out, products, sums,
        cotangents, rows, inputs, d,
        weighted: tl.constexpr, tall: tl.constexpr, kept: tl.constexpr, wide: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        k, n = pid % cotangents, pid // cotangents
        feature = tl.arange(0, wide)
        known = feature < d
        gain = tl.full([wide], 1.0, dtype=tl.float32)
        if weighted:
            gain = tl.load(weight + feature, mask=known, other=0.0).to(tl.float32)
        # a narrow row is one warp's own: adding rows up means waiting for the others, so that is left to the end
        product = tl.zeros([kept, wide], dtype=tl.float32)
        total = tl.zeros([kept, wide], dtype=tl.float32)
        each = rows // inputs
        for start in range(tl.program_id(1) * tall, each, tl.num_programs(1) * tall):
            t = start + tl.arange(0, tall)
            row = n.to(tl.int64) * each + t
            inside = (t[:, None] < each) & known[None, :]
            at = row[:, None] * d + feature[None, :]
            m = tl.load(mean + row, mask=t < each, other=0.0).to(tl.float32)
            r = tl.load(rstd + row, mask=t < each, other=0.0).to(tl.float32)
            own = k.to(tl.int64) * rows * d + at
            value = tl.load(g + own, mask=inside, other=0.0).to(tl.float32)
            normal = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - m[:, None]) * r[:, None]
            normal = tl.where(inside, normal, 0.0)
            if kept == 1:
                product += tl.sum(value * normal, axis=0, keep_dims=True)
                total += tl.sum(value, axis=0, keep_dims=True)
            else:
                product += value * normal
                total += value
            scaled = value * gain[None, :]
            first = tl.sum(scaled, axis=1) / d
            second = tl.sum(scaled * normal, axis=1) / d
            result = (scaled - first[:, None] - normal * second[:, None]) * r[:, None]
            tl.store(out + own, result.to(out.dtype.element_ty), mask=inside)
        place = ((tl.program_id(1).to(tl.int64) * cotangents + k) * inputs + n) * d + feature
        tl.store(products + place, tl.sum(product, axis=0), mask=known)
        tl.store(sums + place, tl.sum(total, axis=0), mask=known)
