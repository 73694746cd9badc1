# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""The data gradients of softmax attention: in one tile up to 128 positions, beyond that tile by tile."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.runtime.kernels.base import INTERPRETED, precision, prepared, tl, triton


def longest(like: Tensor) -> int:
    """The longest sequence that `attention` takes in one tile: in float32 128 positions need 192 KiB of shared memory
    (in TF32 128 KiB), 64 need 64 KiB.
    """
    return 128 if INTERPRETED or like.dtype != torch.float32 or _roomy(like.device.index) else 64


@functools.cache
def _roomy(device: int) -> bool:
    return torch.cuda.get_device_capability(device)[0] in (9, 10)  # 227 KiB; 163 KiB on an A100, elsewhere 99 KiB


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
    each = 4  # also for fewer: one size of a program is compiled, and not four
    strides = [s for t in (g, *out) for s in t.stride()[:4]] + [s for t in (q, k, v) for s in t.stride()[:3]]
    _attention[(batch * heads, triton.cdiv(rows, each))](
        g, q, k, v, *out, scale, rows, heads, length, reach, d, *strides,
        tall, wide, deep, each, precision(g), num_warps=8, num_stages=1,
    )  # fmt: skip


def _in_tiles(g: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float, out: tuple[Tensor, ...]) -> None:
    """As `attention`, for any number of positions: the weights are made again from ``log Σ exp`` of their scores.

    The mean that softmax takes off the gradient of a row of weights is ⟨g, y⟩ with the result y, which all cotangents
    share: it is made once more. A program takes 64 queries (or keys) and goes along the keys (or queries) in steps of
    64, or of 32 in float32, for which registers and shared memory are short.
    """
    rows, batch, heads, length, d = g.shape
    reach, many = k.shape[2], batch * heads
    y = F.scaled_dot_product_attention(q, k, v, scale=scale)
    y = y if y.stride(-1) == 1 else y.contiguous()
    step = 32 if g.dtype == torch.float32 else 64
    sums = g.new_empty((many, length), dtype=torch.float32)
    inner = g.new_empty((rows, many, length), dtype=torch.float32)
    sizes = (scale, rows, heads, length, reach, d)
    near = [s for t in (q, k, v) for s in t.stride()[:3]]
    fixed = {
        "deep": max(16, triton.next_power_of_2(d)), "precision": precision(g), "num_warps": 4, "num_stages": 2
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

    @prepared
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

    @prepared
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

    @prepared
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

    @prepared
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
