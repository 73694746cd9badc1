# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""The data gradients of products of small matrices that many cotangents share, and of softmax before such a product."""

from __future__ import annotations

from torch import Tensor

from nescio.trace.runtime.kernels.base import precision, prepared, tl, triton

EACH = 4
"""Cotangents of a program, which share what it has read; also for fewer: one size is compiled, and not four."""


def product(g: Tensor, a: Tensor, b: Tensor, by_a: Tensor, by_b: Tensor) -> None:
    """Write ``g b`` and ``gᵀ a``, the gradients of ``a bᵀ``, to ``by_a`` [K, B, H, T, D] and ``by_b`` [K, B, H, S, D].

    Args:
        g: The gradients [K, B, H, T, S] of the product.
        a: What all cotangents share, [B, H, T, D].
        b: As a, [B, H, S, D].
        by_a: Room for the gradients by a.
        by_b: Room for those by b.
    """
    rows, batch, heads, length, reach = g.shape
    g, a, b, d = _near(g), _near(a), _near(b), a.shape[-1]
    tensors = [s for t in (g, by_a, by_b) for s in t.stride()], [s for t in (a, b) for s in t.stride()]
    _product[(batch * heads, triton.cdiv(rows, EACH))](
        g, a, b, by_a, by_b, rows, heads, length, reach, d, *tensors[0], *tensors[1],
        *map(_room, (length, reach, d)), EACH, precision(g), num_warps=4, num_stages=1,
    )  # fmt: skip


def weighted(g: Tensor, weights: Tensor, v: Tensor, by_scores: Tensor, by_v: Tensor) -> None:
    """Write the gradients of ``softmax(scores) v`` by scores and v to ``by_scores`` [K, B, H, T, S] and ``by_v`` [K, B,
    H, S, D].

    Args:
        g: The gradients [K, B, H, T, D] of the result.
        weights: softmax(scores) [B, H, T, S].
        v: What is averaged, [B, H, S, D].
        by_scores: Room for the gradients by the scores.
        by_v: Room for those by v.
    """
    rows, batch, heads, length, d = g.shape
    g, weights, v, reach = _near(g), _near(weights), _near(v), v.shape[2]
    tensors = [s for t in (g, by_scores, by_v) for s in t.stride()], [s for t in (weights, v) for s in t.stride()]
    _weighted[(batch * heads, triton.cdiv(rows, EACH))](
        g, weights, v, by_scores, by_v, rows, heads, length, reach, d, *tensors[0], *tensors[1],
        *map(_room, (length, reach, d)), EACH, precision(g), num_warps=8, num_stages=1,
    )  # fmt: skip


def _near(t: Tensor) -> Tensor:
    """The tensor, copied if steps within a matrix are too long for whole numbers of 32 bits."""
    return t if max(n * s for n, s in zip(t.shape[-2:], t.stride()[-2:], strict=True)) < 1 << 30 else t.contiguous()


def _room(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


if triton is not None:

    @triton.jit
    def _at(t, n, h, rows, columns, t1, t2, t3, t4):
        return t + n * t1 + h * t2 + (rows[:, None] * t3 + columns[None, :] * t4)

    @prepared
    @triton.jit(do_not_specialize=["rows", "heads", "length", "reach", "g0", "g1", "g2", "g3"])
    def _product(
        g, a, b, by_a, by_b, rows, heads, length, reach, d,
        g0, g1, g2, g3, g4, da0, da1, da2, da3, da4, db0, db1, db2, db3, db4,
        a1, a2, a3, a4, b1, b2, b3, b4,
        tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, each: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        n, h = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
        t, s, f = tl.arange(0, tall), tl.arange(0, wide), tl.arange(0, deep)
        upper = (t[:, None] < length) & (f[None, :] < d)
        lower = (s[:, None] < reach) & (f[None, :] < d)
        square = (t[:, None] < length) & (s[None, :] < reach)
        left = tl.load(_at(a, n, h, t, f, a1, a2, a3, a4), mask=upper, other=0.0)
        right = tl.load(_at(b, n, h, s, f, b1, b2, b3, b4), mask=lower, other=0.0)
        for i in range(each):
            c = (tl.program_id(1) * each + i).to(tl.int64)
            if c < rows:
                delta = tl.load(_at(g + c * g0, n, h, t, s, g1, g2, g3, g4), mask=square, other=0.0).to(left.dtype)
                own = tl.dot(delta, right, input_precision=precision)
                place = _at(by_a + c * da0, n, h, t, f, da1, da2, da3, da4)
                tl.store(place, own.to(by_a.dtype.element_ty), mask=upper)
                own = tl.dot(tl.trans(delta), left, input_precision=precision)
                place = _at(by_b + c * db0, n, h, s, f, db1, db2, db3, db4)
                tl.store(place, own.to(by_b.dtype.element_ty), mask=lower)

    @prepared
    @triton.jit(do_not_specialize=["rows", "heads", "length", "reach", "ds0", "ds1", "ds2", "ds3", "w1", "w2", "w3"])
    def _weighted(
        g, weights, v, by_scores, by_v, rows, heads, length, reach, d,
        g0, g1, g2, g3, g4, ds0, ds1, ds2, ds3, ds4, dv0, dv1, dv2, dv3, dv4,
        w1, w2, w3, w4, v1, v2, v3, v4,
        tall: tl.constexpr, wide: tl.constexpr, deep: tl.constexpr, each: tl.constexpr, precision: tl.constexpr,
    ) -> None:  # fmt: skip
        n, h = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
        t, s, f = tl.arange(0, tall), tl.arange(0, wide), tl.arange(0, deep)
        upper = (t[:, None] < length) & (f[None, :] < d)
        lower = (s[:, None] < reach) & (f[None, :] < d)
        square = (t[:, None] < length) & (s[None, :] < reach)
        weight = tl.load(_at(weights, n, h, t, s, w1, w2, w3, w4), mask=square, other=0.0)
        value = tl.load(_at(v, n, h, s, f, v1, v2, v3, v4), mask=lower, other=0.0)
        back = tl.trans(weight)
        for i in range(each):
            c = (tl.program_id(1) * each + i).to(tl.int64)
            if c < rows:
                delta = tl.load(_at(g + c * g0, n, h, t, f, g1, g2, g3, g4), mask=upper, other=0.0).to(value.dtype)
                own = tl.dot(back, delta, input_precision=precision)
                place = _at(by_v + c * dv0, n, h, s, f, dv1, dv2, dv3, dv4)
                tl.store(place, own.to(by_v.dtype.element_ty), mask=lower)
                inner = tl.dot(delta, tl.trans(value), input_precision=precision)
                inner = weight.to(tl.float32) * (inner - tl.sum(weight.to(tl.float32) * inner, axis=1)[:, None])
                place = _at(by_scores + c * ds0, n, h, t, s, ds1, ds2, ds3, ds4)
                tl.store(place, inner.to(by_scores.dtype.element_ty), mask=square)
