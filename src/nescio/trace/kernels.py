# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""GPU kernels for gradients of many cotangents that share one operand, in Triton.

In a backward pass of K cotangents each gradient has K times the rows of what the forward pass saved. PyTorch's own
kernels either copy the saved tensor K times or read it through slow broadcasting; these read each gradient once, write
the next one once, and take what the rules need (sums over positions) on the way:

* `times`           g[k] · d: every element-wise activation, whose derivative d all cotangents share;
* `affine`          g[k] · s by channel with Σ g x̂ and Σ g over positions: batch norm as an affine map;
* `layer_norm`      the data gradient of layer norm, with the same two sums for each input;
* `patches`         the patches of a picture under a convolution's positions, side by side;
* `contracted`      ⟨d dᵀ, a aᵀ⟩ for each gradient d, without ever writing d dᵀ;
* `attention`       the data gradients of softmax attention with heads of at most 64: up to 128 positions in one tile,
                    more of them tile by tile.

Triton comes with PyTorch's CUDA builds. Where it is missing (`ready` is False) every caller has a form in plain PyTorch
operations. Each kernel keeps its sums in float32. Sizes are not specialised on, so that each kernel is compiled once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.modes import tf32_products

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of PyTorch, or a system that Triton does not know
    triton = None

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Triton's interpreter runs the kernels on CPU tensors: slow, for tests."""
_KINDS = (torch.float32, torch.float16, torch.bfloat16)


def ready(*tensors: Tensor) -> bool:
    """Whether the kernels can take these tensors."""
    return (
        triton is not None
        and all(t.dtype in _KINDS and (t.is_cuda or INTERPRETED) for t in tensors)
        and (INTERPRETED or _capable(tensors[0].device.index))
    )


@functools.cache
def _capable(device: int) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


def longest(like: Tensor) -> int:
    """The longest sequence that `attention` takes in one tile: in float32 128 positions need 192 KiB of shared memory
    (in TF32 128 KiB), 64 need 64 KiB.
    """
    return 128 if INTERPRETED or like.dtype != torch.float32 or _roomy(like.device.index) else 64


@functools.cache
def _roomy(device: int) -> bool:
    return torch.cuda.get_device_capability(device)[0] in (9, 10)  # 227 KiB; 163 KiB on an A100, elsewhere 99 KiB


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


def times(g: Tensor, d: Tensor) -> Tensor:
    """``g[k] · d`` for g [K, *shape] and d [*shape]."""
    d = dense(d)
    g = arranged(g, d)
    out = torch.empty_strided(g.shape, g.stride(), dtype=g.dtype, device=g.device)
    size, block = d.numel(), 1024
    _times[(triton.cdiv(size, block),)](g, d, out, size, len(g), block, num_warps=8)
    return out


def affine(
    g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, scale: Tensor, gate: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """``h · scale``, ``Σ h x̂`` and ``Σ h`` [K, B, C] with ``h = g · gate`` and ``x̂ = (x − mean) rstd``, for g [K, B, C,
    *space], x and gate [B, C, *space].
    """
    x = x if x.is_contiguous() or x.movedim(1, -1).is_contiguous() else x.contiguous()
    g = arranged(g, x)
    gate = gate if gate is None else arranged(gate.unsqueeze(0), x)
    k, b, c = g.shape[:3]
    space = x[0, 0].numel()
    last = not x.is_contiguous()  # channels
    out = torch.empty_strided(g.shape, g.stride(), dtype=g.dtype, device=g.device)
    sums = g.new_empty((2, k, b, c), dtype=torch.float32)
    wide = min(triton.next_power_of_2(c), 64 if last else 16)
    long = min(max(triton.next_power_of_2(space), 4), 16 if last else 256)
    step, feature = (c, 1) if last else (1, space)
    _affine[(k * b * triton.cdiv(c, wide),)](
        g, x, x if gate is None else gate, mean, rstd, scale, out, sums[0], sums[1],
        k, b, c, space, step, feature, gate is not None, wide, long, num_warps=2 if last else 4,
    )  # fmt: skip
    return out, sums[0], sums[1]


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
    found = x.new_empty((batch, out[0] * out[1], kernel[0] * kernel[1] * channels))
    rows = batch * out[0] * out[1] * kernel[0] * kernel[1]
    wide = min(triton.next_power_of_2(channels), 256)
    tall = max(1, 2048 // wide)
    _patches[(triton.cdiv(rows, tall),)](
        x, found, rows, channels, height, width, out[0], out[1], *kernel, *stride, *padding, *dilation, tall, wide
    )
    return found


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
    sums = g.new_empty((2, k, inputs, d), dtype=torch.float32)
    _layer_norm[(k * inputs,)](
        g, x, mean, rstd, x if weight is None else weight, out, sums[0], sums[1],
        k, rows, inputs, d, weight is not None, tall, tall if wide <= 512 else 1, wide,
        num_warps=4 if wide <= 1024 else 8,
    )  # fmt: skip
    return out, sums[0], sums[1]


def contracted(d: Tensor, gram: Tensor) -> Tensor:
    """``Σ_{t,s} ⟨d_t, d_s⟩ gram[t, s]`` [K, N] for d [K, N, G, T, O] with unit stride in O and gram [N·G, T, T].

    Both are symmetric, so half of the tiles of positions is enough. Up to 16 positions beyond a multiple of 64 (a class
    token) have narrow tiles of their own.
    """
    rows, n, groups, length, width = d.shape
    tall = min(64, max(16, triton.next_power_of_2(length)))
    tail = 16 if length > 64 and 0 < length % 64 <= 16 else 0
    blocks = length // tall if tail else triton.cdiv(length, tall)
    pairs = blocks * (blocks + 1) // 2
    out = d.new_empty((rows, n * groups, pairs), dtype=torch.float32)
    _contracted[(rows * n * groups * pairs,)](
        d, gram, out, rows, groups, length, width, pairs, blocks * tall, *d.stride()[:4],
        tall, tail, 32 if d.dtype == torch.float32 else 64, _precision(d), num_warps=4, num_stages=3,
    )  # fmt: skip
    return out.view(rows, n, groups * pairs).sum(2)


def _precision(like: Tensor) -> str:
    return "ieee" if like.dtype != torch.float32 else "tf32" if tf32_products() else "tf32x3"


def attention(g: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, out: tuple[Tensor, ...]) -> None:
    """Write the gradients of ``softmax(q kᵀ · scale) v`` by q, k and v to ``out``, each [K, B, H, T, D], for the
    gradients g [K, B, H, T, D] of the result; all with unit stride in D.
    """
    rows, batch, heads, length, d = g.shape
    reach = k.shape[2]
    if max(length, reach) > longest(g):
        _in_tiles(g, q, k, v, scale, out)
        return
    tall, wide, deep = (max(16, triton.next_power_of_2(n)) for n in (length, reach, d))
    each = max(1, min(rows, 4))
    strides = [s for t in (g, *out) for s in t.stride()[:4]] + [s for t in (q, k, v) for s in t.stride()[:3]]
    _attention[(batch * heads, triton.cdiv(rows, each))](
        g, q, k, v, *out, scale, rows, heads, length, reach, d, *strides,
        tall, wide, deep, each, _precision(g), num_warps=8, num_stages=1,
    )  # fmt: skip


def _in_tiles(g: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, out: tuple[Tensor, ...]) -> None:
    """As `attention`, for any number of positions: the weights are made again from ``log Σ exp`` of their scores.

    The mean that softmax takes off the gradient of a row of weights is ⟨g, y⟩ with the result y, which all cotangents
    share: it is made once more. A program takes 64 queries (or keys) and goes along the keys (or queries) in steps of
    64, or of 32 in float32, for which registers and shared memory are short.
    """
    rows, batch, heads, length, d = g.shape
    reach, many, precision = k.shape[2], batch * heads, _precision(g)
    y = F.scaled_dot_product_attention(q, k, v, scale=scale)
    y = y if y.stride(-1) == 1 else y.contiguous()
    step = 32 if g.dtype == torch.float32 else 64
    sums = g.new_empty((many, length), dtype=torch.float32)
    inner = g.new_empty((rows, many, length), dtype=torch.float32)
    sizes = (scale, rows, heads, length, reach, d)
    near = [s for t in (q, k, v) for s in t.stride()[:3]]
    fixed = {
        "deep": max(16, triton.next_power_of_2(d)), "precision": precision, "num_warps": 4, "num_stages": 2
    }  # fmt: skip
    _scores[(many * triton.cdiv(length, 64),)](
        q, k, sums, scale, heads, length, reach, d, *near[:6], tall=64, wide=step, **fixed
    )
    _queries[(rows * many * triton.cdiv(length, 64),)](
        g, q, k, v, y, sums, inner, out[0], *sizes,
        *g.stride()[:4], *out[0].stride()[:4], *near, *y.stride()[:3], tall=64, wide=step, **fixed,
    )  # fmt: skip
    _keys[(rows * many * triton.cdiv(reach, 64),)](
        g, q, k, v, sums, inner, out[1], out[2], *sizes,
        *g.stride()[:4], *out[1].stride()[:4], *out[2].stride()[:4], *near, tall=step, wide=64, **fixed,
    )  # fmt: skip


if triton is not None:

    @triton.jit(do_not_specialize=["size", "rows"])
    def _times(g, d, out, size, rows, block: tl.constexpr) -> None:
        at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = at < size
        factor = tl.load(d + at, mask=inside, other=0.0).to(tl.float32)
        for _ in range(rows):
            value = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(out + at, (value * factor).to(out.dtype.element_ty), mask=inside)
            at += size

    @triton.jit(do_not_specialize=["rows", "batch", "space"])
    def _affine(
        g, x, gate, mean, rstd, scale, out, products, sums,
        rows, batch, channels, space, step, feature,
        gated: tl.constexpr, wide: tl.constexpr, long: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        k = pid % rows  # cotangents of one input run side by side and share its x in the cache
        tiles = tl.cdiv(channels, wide)
        b = (pid // rows) // tiles
        c = ((pid // rows) % tiles) * wide + tl.arange(0, wide)
        known = c < channels
        m = tl.load(mean + c, mask=known, other=0.0).to(tl.float32)
        r = tl.load(rstd + c, mask=known, other=0.0).to(tl.float32)
        s = tl.load(scale + c, mask=known, other=0.0).to(tl.float32)
        product = tl.zeros([wide], dtype=tl.float32)
        total = tl.zeros([wide], dtype=tl.float32)
        size = channels * space
        own = (k.to(tl.int64) * batch + b) * size
        for start in range(0, space, long):
            t = start + tl.arange(0, long)
            at = t[:, None] * step + c[None, :] * feature
            inside = (t[:, None] < space) & known[None, :]
            value = tl.load(g + own + at, mask=inside, other=0.0).to(tl.float32)
            normal = (tl.load(x + b.to(tl.int64) * size + at, mask=inside, other=0.0).to(tl.float32) - m) * r
            if gated:
                value *= tl.load(gate + b.to(tl.int64) * size + at, mask=inside, other=0.0).to(tl.float32)
            product += tl.sum(value * normal, axis=0)
            total += tl.sum(value, axis=0)
            tl.store(out + own + at, (value * s[None, :]).to(out.dtype.element_ty), mask=inside)
        place = (k.to(tl.int64) * batch + b) * channels + c
        tl.store(products + place, product, mask=known)
        tl.store(sums + place, total, mask=known)

    @triton.jit(do_not_specialize=["rows"])
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
        for start in range(0, each, tall):
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
        place = (k.to(tl.int64) * inputs + n) * d + feature
        tl.store(products + place, tl.sum(product, axis=0), mask=known)
        tl.store(sums + place, tl.sum(total, axis=0), mask=known)

    @triton.jit
    def _rounded(x, precision: tl.constexpr):
        """The nearest in TF32: tensor cores cut digits off, so that all products would come out too small."""
        if precision == "tf32":
            near = ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
            x = tl.where(x == x, near, x)  # the bits of a NaN would overflow
        return x

    @triton.jit(do_not_specialize=["rows", "groups", "length", "pairs", "edge"])
    def _contracted(
        d, gram, out, rows, groups, length, width, pairs, edge, d0, d1, d2, d3,
        tall: tl.constexpr, tail: tl.constexpr, wide: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        pair, k, own = pid % pairs, pid // pairs % rows, pid // pairs // rows
        j = ((tl.sqrt(8.0 * pair.to(tl.float32) + 1.0) - 1.0) * 0.5).to(tl.int32)
        i = pair - j * (j + 1) // 2
        t, s = i * tall + tl.arange(0, tall), j * tall + tl.arange(0, tall)
        base = d + k.to(tl.int64) * d0 + (own // groups).to(tl.int64) * d1 + (own % groups).to(tl.int64) * d2
        first, second = base + t[:, None].to(tl.int64) * d3, base + s[:, None].to(tl.int64) * d3
        total = tl.zeros([tall, tall], dtype=tl.float32)
        if tail:
            r = edge + tl.arange(0, tail)
            third = base + r[:, None].to(tl.int64) * d3
            beside = tl.zeros([tall, tail], dtype=tl.float32)
            last = tl.zeros([tail, tail], dtype=tl.float32)
        for start in range(0, width, wide):
            o = start + tl.arange(0, wide)
            known = o[None, :] < width
            a = tl.load(first + o[None, :], mask=(t[:, None] < length) & known, other=0.0)
            b = tl.load(second + o[None, :], mask=(s[:, None] < length) & known, other=0.0)
            a, b = _rounded(a, precision), _rounded(b, precision)
            total += tl.dot(a, tl.trans(b), input_precision=precision)
            if tail:
                c = tl.load(third + o[None, :], mask=(r[:, None] < length) & known, other=0.0)
                c = _rounded(c, precision)
                beside += tl.dot(a, tl.trans(c), input_precision=precision)
                last += tl.dot(c, tl.trans(c), input_precision=precision)
        gram += own.to(tl.int64) * length * length
        inside = (t[:, None] < length) & (s[None, :] < length)
        value = tl.sum(total * tl.load(gram + t[:, None] * length + s[None, :], mask=inside, other=0.0))
        value = tl.where(i == j, value, 2 * value)
        if tail:
            inside = (t[:, None] < length) & (r[None, :] < length)
            more = tl.sum(beside * tl.load(gram + t[:, None] * length + r[None, :], mask=inside, other=0.0))
            value += tl.where(i == j, 2 * more, 0.0)
            inside = (r[:, None] < length) & (r[None, :] < length)
            more = tl.sum(last * tl.load(gram + r[:, None] * length + r[None, :], mask=inside, other=0.0))
            value += tl.where(pair == 0, more, 0.0)
        tl.store(out + (k.to(tl.int64) * (tl.num_programs(0) // pairs // rows) + own) * pairs + pair, value)

    @triton.jit(do_not_specialize=["rows", "heads", "length", "reach"])
    def _attention(
        g, q, k, v, dq, dk, dv,
        scale, rows, heads, length, reach, d,
        g0, g1, g2, g3, dq0, dq1, dq2, dq3,
        dk0, dk1, dk2, dk3, dv0, dv1, dv2, dv3,
        q1, q2, q3, k1, k2, k3, v1, v2, v3,
        tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, each: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        n, h = (pid // heads).to(tl.int64), (pid % heads).to(tl.int64)
        t, s, f = tl.arange(0, tall), tl.arange(0, wide), tl.arange(0, deep)
        upper = (t[:, None] < length) & (f[None, :] < d)
        lower = (s[:, None] < reach) & (f[None, :] < d)
        query = tl.load(q + n * q1 + h * q2 + t[:, None] * q3 + f[None, :], mask=upper, other=0.0)
        key = tl.load(k + n * k1 + h * k2 + s[:, None] * k3 + f[None, :], mask=lower, other=0.0)
        value = tl.load(v + n * v1 + h * v2 + s[:, None] * v3 + f[None, :], mask=lower, other=0.0)
        weights = tl.dot(query, tl.trans(key), input_precision=precision) * scale
        weights = tl.where(s[None, :] < reach, weights, float("-inf"))
        weights = tl.exp(weights - tl.max(weights, axis=1)[:, None])
        weights = weights / tl.sum(weights, axis=1)[:, None]
        back = tl.trans(weights).to(query.dtype)
        for i in range(each):
            c = (tl.program_id(1) * each + i).to(tl.int64)
            if c < rows:
                delta = tl.load(g + c * g0 + n * g1 + h * g2 + t[:, None] * g3 + f[None, :], mask=upper, other=0.0).to(
                    query.dtype
                )
                own = tl.dot(back, delta, input_precision=precision)
                tl.store(
                    dv + c * dv0 + n * dv1 + h * dv2 + s[:, None] * dv3 + f[None, :],
                    own.to(dv.dtype.element_ty), mask=lower,
                )  # fmt: skip
                inner = tl.dot(delta, tl.trans(value), input_precision=precision)
                inner = weights * (inner - tl.sum(weights * inner, axis=1)[:, None]) * scale
                inner = inner.to(query.dtype)
                own = tl.dot(inner, key, input_precision=precision)
                tl.store(
                    dq + c * dq0 + n * dq1 + h * dq2 + t[:, None] * dq3 + f[None, :],
                    own.to(dq.dtype.element_ty), mask=upper,
                )  # fmt: skip
                own = tl.dot(tl.trans(inner), query, input_precision=precision)
                tl.store(
                    dk + c * dk0 + n * dk1 + h * dk2 + s[:, None] * dk3 + f[None, :],
                    own.to(dk.dtype.element_ty), mask=lower,
                )  # fmt: skip

    @triton.jit(do_not_specialize=["heads", "length", "reach"])
    def _scores(
        q, k, sums, scale, heads, length, reach, d, q1, q2, q3, k1, k2, k3,
        tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        tiles = tl.cdiv(length, tall)
        own = tl.program_id(0) // tiles
        n, h = (own // heads).to(tl.int64), (own % heads).to(tl.int64)
        t, f = (tl.program_id(0) % tiles) * tall + tl.arange(0, tall), tl.arange(0, deep)
        known = f[None, :] < d
        upper = (t[:, None] < length) & known
        query = tl.load(q + n * q1 + h * q2 + t[:, None] * q3 + f[None, :], mask=upper, other=0.0)
        most = tl.full([tall], float("-inf"), dtype=tl.float32)
        total = tl.zeros([tall], dtype=tl.float32)
        for start in range(0, reach, wide):
            s = start + tl.arange(0, wide)
            lower = (s[:, None] < reach) & known
            key = tl.load(k + n * k1 + h * k2 + s[:, None] * k3 + f[None, :], mask=lower, other=0.0)
            score = tl.dot(query, tl.trans(key), input_precision=precision) * scale
            score = tl.where(s[None, :] < reach, score, float("-inf"))
            more = tl.maximum(most, tl.max(score, axis=1))
            total = total * tl.exp(most - more) + tl.sum(tl.exp(score - more[:, None]), axis=1)
            most = more
        tl.store(sums + own.to(tl.int64) * length + t, most + tl.log(total), mask=t < length)

    @triton.jit(do_not_specialize=["rows", "heads", "length", "reach"])
    def _queries(
        g, q, k, v, y, sums, inner, dq,
        scale, rows, heads, length, reach, d,
        g0, g1, g2, g3, dq0, dq1, dq2, dq3,
        q1, q2, q3, k1, k2, k3, v1, v2, v3, y1, y2, y3,
        tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        c = (pid % rows).to(tl.int64)  # cotangents of one head run side by side and share what is theirs in the cache
        tiles = tl.cdiv(length, tall)
        own = pid // rows // tiles
        n, h = (own // heads).to(tl.int64), (own % heads).to(tl.int64)
        t, f = (pid // rows % tiles) * tall + tl.arange(0, tall), tl.arange(0, deep)
        known = f[None, :] < d
        upper = (t[:, None] < length) & known
        query = tl.load(q + n * q1 + h * q2 + t[:, None] * q3 + f[None, :], mask=upper, other=0.0)
        delta = tl.load(g + c * g0 + n * g1 + h * g2 + t[:, None] * g3 + f[None, :], mask=upper, other=0.0)
        result = tl.load(y + n * y1 + h * y2 + t[:, None] * y3 + f[None, :], mask=upper, other=0.0)
        mean = tl.sum(delta.to(tl.float32) * result.to(tl.float32), axis=1)
        place = own.to(tl.int64) * length + t
        tl.store(inner + c * (tl.num_programs(0) // rows // tiles) * length + place, mean, mask=t < length)
        norm = tl.load(sums + place, mask=t < length, other=0.0)
        delta = delta.to(query.dtype)
        total = tl.zeros([tall, deep], dtype=tl.float32)
        for start in range(0, reach, wide):
            s = start + tl.arange(0, wide)
            lower = (s[:, None] < reach) & known
            key = tl.load(k + n * k1 + h * k2 + s[:, None] * k3 + f[None, :], mask=lower, other=0.0)
            value = tl.load(v + n * v1 + h * v2 + s[:, None] * v3 + f[None, :], mask=lower, other=0.0)
            weight = tl.exp(tl.dot(query, tl.trans(key), input_precision=precision) * scale - norm[:, None])
            part = tl.dot(delta, tl.trans(value), input_precision=precision)
            part = tl.where(s[None, :] < reach, weight * (part - mean[:, None]), 0.0).to(query.dtype)
            total += tl.dot(part, key, input_precision=precision)
        tl.store(
            dq + c * dq0 + n * dq1 + h * dq2 + t[:, None] * dq3 + f[None, :],
            (total * scale).to(dq.dtype.element_ty), mask=upper,
        )  # fmt: skip

    @triton.jit(do_not_specialize=["rows", "heads", "length", "reach"])
    def _keys(
        g, q, k, v, sums, inner, dk, dv,
        scale, rows, heads, length, reach, d,
        g0, g1, g2, g3, dk0, dk1, dk2, dk3, dv0, dv1, dv2, dv3,
        q1, q2, q3, k1, k2, k3, v1, v2, v3,
        tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        pid = tl.program_id(0)
        c = (pid % rows).to(tl.int64)
        tiles = tl.cdiv(reach, wide)
        own = pid // rows // tiles
        n, h = (own // heads).to(tl.int64), (own % heads).to(tl.int64)
        s, f = (pid // rows % tiles) * wide + tl.arange(0, wide), tl.arange(0, deep)
        known = f[None, :] < d
        lower = (s[:, None] < reach) & known
        key = tl.load(k + n * k1 + h * k2 + s[:, None] * k3 + f[None, :], mask=lower, other=0.0)
        value = tl.load(v + n * v1 + h * v2 + s[:, None] * v3 + f[None, :], mask=lower, other=0.0)
        first = tl.zeros([wide, deep], dtype=tl.float32)
        second = tl.zeros([wide, deep], dtype=tl.float32)
        many = tl.num_programs(0) // rows // tiles
        for start in range(0, length, tall):
            t = start + tl.arange(0, tall)
            upper = (t[:, None] < length) & known
            query = tl.load(q + n * q1 + h * q2 + t[:, None] * q3 + f[None, :], mask=upper, other=0.0)
            delta = tl.load(g + c * g0 + n * g1 + h * g2 + t[:, None] * g3 + f[None, :], mask=upper, other=0.0)
            delta = delta.to(query.dtype)
            place = own.to(tl.int64) * length + t
            norm = tl.load(sums + place, mask=t < length, other=float("inf"))
            mean = tl.load(inner + c * many * length + place, mask=t < length, other=0.0)
            weight = tl.exp(tl.dot(key, tl.trans(query), input_precision=precision) * scale - norm[None, :])
            second += tl.dot(weight.to(query.dtype), delta, input_precision=precision)
            part = tl.dot(value, tl.trans(delta), input_precision=precision)
            part = (weight * (part - mean[None, :])).to(query.dtype)
            first += tl.dot(part, query, input_precision=precision)
        tl.store(
            dk + c * dk0 + n * dk1 + h * dk2 + s[:, None] * dk3 + f[None, :],
            (first * scale).to(dk.dtype.element_ty), mask=lower,
        )  # fmt: skip
        tl.store(
            dv + c * dv0 + n * dv1 + h * dv2 + s[:, None] * dv3 + f[None, :],
            second.to(dv.dtype.element_ty), mask=lower,
        )  # fmt: skip
