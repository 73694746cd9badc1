# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""Convolutions in which every channel has a kernel of its own, and their gradients.

cuDNN compiles a kernel of its own for every shape of them, which takes up to a second each; this one takes all shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nescio.trace.runtime.kernels.base import prepared, tl, triton


def depthwise(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    size: Sequence[int],
    back: bool,
) -> Tensor:
    """The convolution [B, C, *size] of x [B, C, H, W] with a weight [C, 1, h, w], or ``back`` the gradient at an input
    of this size, where x is that at the output; both with channels last in memory.
    """
    batch, channels = x.shape[:2]
    out = torch.empty(
        (batch, channels, *size), dtype=x.dtype, device=x.device, memory_format=torch.channels_last
    )  # fmt: skip
    rows, tall, wide = batch * size[0] * size[1], 32, 32
    taps = weight.detach().flatten(1).t().contiguous()
    shifts = [n.bit_length() - 1 for n in stride]
    plain = all(1 << shift == n for shift, n in zip(shifts, stride, strict=True))  # steps of 1 or 2: all that is usual
    _depthwise[(triton.cdiv(rows, tall), triton.cdiv(channels, wide))](
        x, taps, out, rows, channels, *x.shape[2:], *size, *weight.shape[2:], *stride, *padding, *dilation, *shifts,
        back, plain, tall, wide,
    )  # fmt: skip
    return out


def depthwise_weight(
    g: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The gradients [K, B, C, h·w] of the weight for each cotangent and input, from those at the output [K, B, C, ..]
    and x [B, C, H, W], with channels last in memory.
    """
    k, batch, channels, tall_out, wide_out = g.shape
    taps, positions, wide = kernel[0] * kernel[1], tall_out * wide_out, 32
    room = triton.next_power_of_2(taps)
    tall = max(1, 64 // room)
    tiles = triton.cdiv(channels, wide)
    parts = max(1, min(1024 // (k * batch * tiles), triton.cdiv(positions, 64)))  # few programs do not fill a GPU
    out = torch.empty((parts, k, batch, taps, channels), dtype=torch.float32, device=g.device)
    _depthwise_weight[(k * batch * tiles, parts)](
        g, x, out, k, batch, channels, *x.shape[2:], tall_out, wide_out, *kernel, *stride, *padding, *dilation,
        tall, room, wide,
    )  # fmt: skip
    return (out[0] if parts == 1 else out.sum(0)).mT


if triton is not None:

    @prepared
    @triton.jit(
        do_not_specialize=[
            "rows", "height", "width", "tall_out", "wide_out", "tall_kernel", "wide_kernel",
            "down", "right", "pad_top", "pad_left", "apart_down", "apart_right", "shift_down", "shift_right",
        ]
    )  # fmt: skip
    def _depthwise(
        x, weight, out, rows, channels, height, width, tall_out, wide_out,
        tall_kernel, wide_kernel, down, right, pad_top, pad_left, apart_down, apart_right, shift_down, shift_right,
        back: tl.constexpr, plain: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr,
    ) -> None:  # fmt: skip
        row = tl.program_id(0) * tall + tl.arange(0, tall)
        c = tl.program_id(1) * wide + tl.arange(0, wide)
        known = c < channels
        b, i, j = row // (tall_out * wide_out), row // wide_out % tall_out, row % wide_out
        total = tl.zeros([tall, wide], dtype=tl.float32)
        for u in range(tall_kernel):
            for v in range(wide_kernel):
                if back:
                    y, z = i + pad_top - u * apart_down, j + pad_left - v * apart_right
                    inside = (y >= 0) & (z >= 0)
                    if plain:  # a GPU takes long for whole numbers' division
                        inside = inside & ((y & (down - 1)) == 0) & ((z & (right - 1)) == 0)
                        y, z = y >> shift_down, z >> shift_right
                    else:
                        inside = inside & (y % down == 0) & (z % right == 0)
                        y, z = y // down, z // right
                else:
                    y, z = i * down - pad_top + u * apart_down, j * right - pad_left + v * apart_right
                    inside = (y >= 0) & (z >= 0)
                inside = inside & (y < height) & (z < width) & (row < rows)
                start = ((b * height + y) * width + z).to(tl.int64) * channels
                value = tl.load(x + start[:, None] + c[None, :], mask=inside[:, None] & known[None, :], other=0.0)
                factor = tl.load(weight + (u * wide_kernel + v) * channels + c, mask=known, other=0.0)
                total += value.to(tl.float32) * factor.to(tl.float32)[None, :]
        place = row.to(tl.int64)[:, None] * channels + c[None, :]
        tl.store(out + place, total.to(out.dtype.element_ty), mask=(row[:, None] < rows) & known[None, :])

    @prepared
    @triton.jit(
        do_not_specialize=[
            "rows", "batch", "height", "width", "tall_out", "wide_out", "tall_kernel", "wide_kernel",
            "down", "right", "pad_top", "pad_left", "apart_down", "apart_right",
        ]
    )  # fmt: skip
    def _depthwise_weight(
        g, x, out, rows, batch, channels, height, width, tall_out, wide_out,
        tall_kernel, wide_kernel, down, right, pad_top, pad_left, apart_down, apart_right,
        tall: tl.constexpr, room: tl.constexpr, wide: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        k = pid % rows  # cotangents of one input run side by side and share its x in the cache
        tiles = tl.cdiv(channels, wide)
        b = (pid // rows) // tiles
        c = ((pid // rows) % tiles) * wide + tl.arange(0, wide)
        known = c < channels
        tap = tl.arange(0, room)
        taps = tall_kernel * wide_kernel
        up = tap // wide_kernel * apart_down - pad_top
        left = tap % wide_kernel * apart_right - pad_left
        positions = tall_out * wide_out
        own = (k.to(tl.int64) * batch + b) * positions * channels
        base = b.to(tl.int64) * height * width * channels
        total = tl.zeros([tall, room, wide], dtype=tl.float32)
        for start in range(tl.program_id(1) * tall, positions, tl.num_programs(1) * tall):
            t = start + tl.arange(0, tall)
            i, j = t // wide_out, t % wide_out
            y = i[:, None] * down + up[None, :]
            z = j[:, None] * right + left[None, :]
            inside = (t[:, None] < positions) & (tap[None, :] < taps)
            inside = inside & (y >= 0) & (y < height) & (z >= 0) & (z < width)
            at = (y * width + z) * channels
            value = tl.load(
                x + base + at[:, :, None] + c[None, None, :], mask=inside[:, :, None] & known[None, None, :], other=0.0
            )
            delta = tl.load(
                g + own + t[:, None] * channels + c[None, :], mask=(t[:, None] < positions) & known[None, :], other=0.0
            )
            total += value.to(tl.float32) * delta.to(tl.float32)[:, None, :]
        sums = tl.sum(total, axis=0)
        place = ((tl.program_id(1).to(tl.int64) * rows + k) * batch + b) * taps + tap
        tl.store(out + place[:, None] * channels + c[None, :], sums, mask=(tap[:, None] < taps) & known[None, :])
