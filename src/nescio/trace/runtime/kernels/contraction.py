# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""Norms from Gram matrices over positions, whose tiles stay in registers."""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.trace.runtime.kernels.base import precision, prepared, tl, triton

FILLED = 256
"""Programs that fill a GPU."""


def contracted(d: Tensor, gram: Tensor) -> Tensor:
    """``Σ_{t,s} ⟨d_t, d_s⟩ gram[t, s]`` [K, N] for d [K, N, G, T, O] with unit stride in O and gram [N·G, T, T].

    Both are symmetric, so half of them is enough. Up to 208 positions (144 in three products of TF32, which take more
    registers) one program holds all, and reads and rounds each number of d once; more of them go in pairs of 128.
    """
    rows, n, groups, length, width = d.shape
    many, precise = rows * n * groups, precision(d)
    sizes, wide = (rows, groups, length, width, *d.stride()[:4]), 32 if d.dtype == torch.float32 else 64
    if length > (144 if precise == "tf32x3" else 208):
        blocks = triton.cdiv(length, 128)
        pairs = blocks * (blocks + 1) // 2
        out = d.new_empty((rows, n * groups * pairs), dtype=torch.float32)
        _paired[(many * pairs,)](d, gram, out, *sizes, pairs, 128, wide, precise, num_warps=8, num_stages=1)
        return out.view(rows, n, -1).sum(2)
    parts = max(1, min(FILLED // many, width // 256))  # of the features: few programs do not fill a GPU
    out = d.new_empty((rows, n * groups * parts), dtype=torch.float32)
    tiles = _tiles(length)
    warps = 8 if tiles[0] else 4
    _contracted[(many, parts)](d, gram, out, *sizes, *tiles, wide, precise, num_warps=warps, num_stages=1)
    return out.view(rows, n, -1).sum(2)


def _tiles(length: int) -> tuple[int, int, int]:
    """Sizes of tiles that hold so many positions; the last is for a class token, or a few positions more."""
    if length <= 64:
        return 0, max(16, triton.next_power_of_2(length)), 0
    high = 128 if length > 80 else 0
    low = 64 if length > high + 16 else 0
    return high, low, 16 if length > high + low else 0


if triton is not None:

    @triton.jit
    def _rounded(x, precision: tl.constexpr):
        """The nearest in TF32: tensor cores cut digits off, so that all products would come out too small."""
        if precision == "tf32":
            near = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
            x = tl.where(x == x, near, x)  # the bits of a NaN would overflow
        return x

    @triton.jit
    def _read(d, t, o, length, width, d3):
        inside = (t[:, None] < length) & (o[None, :] < width)
        return tl.load(d + t[:, None].to(tl.int64) * d3 + o[None, :], mask=inside, other=0.0)

    @triton.jit
    def _weighed(products, gram, t, s, length):
        inside = (t[:, None] < length) & (s[None, :] < length)
        return tl.sum(products * tl.load(gram + t[:, None] * length + s[None, :], mask=inside, other=0.0))

    @prepared
    @triton.jit(do_not_specialize=["rows", "groups", "length"])
    def _contracted(
        d, gram, out, rows, groups, length, width, d0, d1, d2, d3,
        high: tl.constexpr, low: tl.constexpr, tail: tl.constexpr, wide: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        k, own = tl.program_id(0) % rows, tl.program_id(0) // rows
        d += k.to(tl.int64) * d0 + (own // groups).to(tl.int64) * d1 + (own % groups).to(tl.int64) * d2
        gram += own.to(tl.int64) * length * length
        step = tl.num_programs(1) * wide
        o = tl.program_id(1) * wide + tl.arange(0, wide)
        # a, b and c are the tiles, each multiplied with itself and with those before it. The next ones are read before
        # the products and rounded after them: then all products take them from shared memory, where they lie once
        if high:
            r = tl.arange(0, high)
            a = _rounded(_read(d, r, o, length, width, d3), precision)
            aa = tl.zeros([high, high], dtype=tl.float32)
        if low:
            s = high + tl.arange(0, low)
            b = _rounded(_read(d, s, o, length, width, d3), precision)
            bb = tl.zeros([low, low], dtype=tl.float32)
            if high:
                ba = tl.zeros([low, high], dtype=tl.float32)
        if tail:
            t = high + low + tl.arange(0, tail)
            c = _rounded(_read(d, t, o, length, width, d3), precision)
            cc = tl.zeros([tail, tail], dtype=tl.float32)
            if high:
                ac = tl.zeros([high, tail], dtype=tl.float32)
            if low:
                bc = tl.zeros([low, tail], dtype=tl.float32)
        for _ in range(tl.program_id(1) * wide, width, step):
            o += step
            if high:
                next_a = _read(d, r, o, length, width, d3)
            if low:
                next_b = _read(d, s, o, length, width, d3)
            if tail:
                next_c = _read(d, t, o, length, width, d3)
            if high:
                aa += tl.dot(a, tl.trans(a), input_precision=precision)
            if low:
                bb += tl.dot(b, tl.trans(b), input_precision=precision)
                if high:
                    ba += tl.dot(b, tl.trans(a), input_precision=precision)
            if tail:
                cc += tl.dot(c, tl.trans(c), input_precision=precision)
                if high:
                    ac += tl.dot(a, tl.trans(c), input_precision=precision)
                if low:
                    bc += tl.dot(b, tl.trans(c), input_precision=precision)
            if high:
                a = _rounded(next_a, precision)
            if low:
                b = _rounded(next_b, precision)
            if tail:
                c = _rounded(next_c, precision)
        value = 0.0
        if high:
            value += _weighed(aa, gram, r, r, length)
        if low:
            value += _weighed(bb, gram, s, s, length)
            if high:
                value += 2 * _weighed(ba, gram, s, r, length)
        if tail:
            value += _weighed(cc, gram, t, t, length)
            if high:
                value += 2 * _weighed(ac, gram, r, t, length)
            if low:
                value += 2 * _weighed(bc, gram, s, t, length)
        place = k.to(tl.int64) * (tl.num_programs(0) // rows) + own
        tl.store(out + place * tl.num_programs(1) + tl.program_id(1), value)

    @prepared
    @triton.jit(do_not_specialize=["rows", "groups", "length", "pairs"])
    def _paired(
        d, gram, out, rows, groups, length, width, d0, d1, d2, d3, pairs,
        tall: tl.constexpr, wide: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        pair, k, own = pid % pairs, pid // pairs % rows, pid // pairs // rows
        j = ((tl.sqrt(8.0 * pair.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
        i = pair - j * (j + 1) // 2
        d += k.to(tl.int64) * d0 + (own // groups).to(tl.int64) * d1 + (own % groups).to(tl.int64) * d2
        t, s = i * tall + tl.arange(0, tall), j * tall + tl.arange(0, tall)
        total = tl.zeros([tall, tall], dtype=tl.float32)
        o = tl.arange(0, wide)
        other = tl.where(i == j, 0, length)  # a tile with itself is read once
        a = _rounded(_read(d, t, o, length, width, d3), precision)
        b = tl.where(i == j, a, _rounded(_read(d, s, o, other, width, d3), precision))
        for _ in range(0, width, wide):
            o += wide
            next_a, next_b = _read(d, t, o, length, width, d3), _read(d, s, o, other, width, d3)
            total += tl.dot(a, tl.trans(b), input_precision=precision)
            a = _rounded(next_a, precision)
            b = tl.where(i == j, a, _rounded(next_b, precision))
        value = _weighed(total, gram + own.to(tl.int64) * length * length, t, s, length)
        place = k.to(tl.int64) * (tl.num_programs(0) // pairs // rows) + own
        tl.store(out + place * pairs + pair, tl.where(i == j, value, 2 * value))
