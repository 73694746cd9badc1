"""Softmax attention in a form that many cotangents go through together.

`vmap` has no rule for the backward of fused attention kernels and loops over the cotangents there. Attention without a
mask has a backward of ours (`Attention`, and `Packed` for a self-attention whose queries, keys and values come from one
projection, which spares the copies between the two): kernels on a GPU, products on a CPU (`attention_products`). Other
short attention is taken apart into matrix products and a softmax, which fold like everything else (`plain`); for long
sequences the T² memory of both would cost more than the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from nescio.trace.backward.pull import folded
from nescio.trace.backward.substitutes import attention_products, linear
from nescio.trace.runtime import autograd_names as names
from nescio.trace.runtime.gpu import kernels

LONGEST = 512
"""Longest sequence that is taken apart, or goes through products."""
WIDEST = 64
"""Widest head for the kernels."""


def short(nodes: Iterable[Any]) -> bool:
    """Whether a pass used fused attention, on short sequences only."""
    fused = [n for n in nodes if n.name().startswith(names.FUSED_ATTENTION)]
    return bool(fused) and all(max(n._saved_query.shape[-2], n._saved_key.shape[-2]) <= LONGEST for n in fused)


@contextmanager
def plain(on: bool) -> Iterator[None]:
    """Inside, attention is products and a softmax; not with ``on=False``."""
    if not on:
        yield
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield


class Attention(torch.autograd.Function):
    """``softmax(q kᵀ · scale) v`` over [B, H, T, D]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, scale=scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *parts, ctx.scale = inputs
        ctx.save_for_backward(*parts)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors

        return *folded(deltas[0], lambda g: pulled(g, q, k, v, ctx.scale)), None


def pulled(g: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, ...]:
    """The gradients by queries, keys and values, from those of the result, by a kernel where there is one."""
    if kernels(q) is None:
        return attention_products.pulled(g, q, k, v, scale)
    # heads lie beside each other in memory, as the projections before attention give them
    out = tuple(
        t.new_empty((len(g), t.shape[0], t.shape[2], t.shape[1], t.shape[3])).transpose(2, 3) for t in (q, k, v)
    )
    kernels(q).attention(_unit(g), _unit(q), _unit(k), _unit(v), scale, out)
    return out


class Packed(torch.autograd.Function):
    """Self-attention of ``qkv`` [B, T, 3·H·D] (``first``) or [T, B, 3·H·D], giving [.., .., H·D]."""

    generate_vmap_rule = True

    @staticmethod
    def forward(qkv: Tensor, heads: int, first: bool) -> Tensor:
        return attended(qkv, heads, first)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        qkv, ctx.heads, ctx.first = inputs
        ctx.save_for_backward(qkv)

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        (qkv,) = ctx.saved_tensors
        return *folded(deltas[0], lambda g: pulled_packed(g, qkv, ctx.heads, ctx.first)), None, None


def pulled_packed(g: Tensor, qkv: Tensor, heads: int, first: bool) -> tuple[Tensor]:
    """The gradients by the packed tensor, from those of the result, by a kernel where there is one."""
    q, k, v = _heads(qkv, heads, first)
    scale, module = q.shape[-1] ** -0.5, kernels(qkv)
    out = qkv.new_empty((len(g), *qkv.shape))
    parts = _heads(out, heads, first)
    delta = _unit(g).unflatten(-1, (heads, -1))
    delta = delta.permute(0, 1, 3, 2, 4) if first else delta.permute(0, 2, 3, 1, 4)
    if module is not None:
        module.attention(delta, q, k, v, scale, parts)
    else:
        for part, own in zip(parts, attention_products.pulled(delta, q, k, v, scale), strict=True):
            part.copy_(own)
    return (out,)


def attended(qkv: Tensor, heads: int, first: bool) -> Tensor:
    """Attention of queries, keys and values in one tensor, as `Packed` takes and gives it."""
    out = F.scaled_dot_product_attention(*_heads(qkv, heads, first))
    return out.permute(*((0, 2, 1, 3) if first else (2, 0, 1, 3))).flatten(2)


def _heads(qkv: Tensor, heads: int, first: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [.., B, H, T, D] as views of a packed tensor."""
    parts = qkv.unflatten(-1, (3, heads, -1))
    order = (-3, -5, -2, -4, -1) if first else (-3, -4, -2, -5, -1)
    lead = range(parts.dim() - 5)
    q, k, v = parts.permute(*lead, *order).unbind(len(lead))
    return q, k, v


def _unit(t: Tensor) -> Tensor:
    return t if t.stride(-1) == 1 else t.contiguous()


def arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Any, ...] | None:
    """The arguments of `Attention`, or None for a call that it is not made for."""
    if attn_mask is not None or dropout_p or is_causal or enable_gqa or query.dim() != 4:
        return None
    same = key.shape == value.shape and query.shape[:2] == key.shape[:2] and query.shape[3] == key.shape[3]
    if not same or not query.dtype == key.dtype == value.dtype or not any(t.requires_grad for t in (query, key, value)):
        return None
    if not _has_form(query, max(query.shape[2], key.shape[2]), query.shape[3]):
        return None
    return query, key, value, query.shape[3] ** -0.5 if scale is None else scale


class SelfAttention(NamedTuple):
    """A call of `F.multi_head_attention_forward` on x [B, T, E] (``first``) or [T, B, E], without anything special."""

    x: Tensor
    heads: int
    first: bool
    inner: tuple[Tensor, Tensor | None]
    """Weight and bias of the projection to queries, keys and values."""
    outer: tuple[Tensor, Tensor | None]
    """Weight and bias of the projection behind attention."""

    def projected(self) -> Tensor:
        """Queries, keys and values side by side, [.., .., 3·E]."""
        return _linear(self.x, *self.inner)

    def finished(self, out: Tensor) -> tuple[Tensor, None]:
        """What the function returns, from what attention gives, [.., .., E]."""
        result = _linear(out, *self.outer)
        return (result.transpose(0, 1) if self.first else result), None


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    call = linear.arguments(x, weight, bias)
    return F.linear(x, weight, bias) if call is None else linear.DataLinear.apply(*call)


def self_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    *rest: Any,
    **others: Any,
) -> SelfAttention | None:
    """A call of `F.multi_head_attention_forward` as plain self-attention; None for one that is left to PyTorch."""
    if not (query is key is value) or query.dim() != 3 or in_proj_weight is None:
        return None
    special = (bias_k, bias_v, key_padding_mask, attn_mask)
    if any(t is not None for t in special) or add_zero_attn or use_separate_proj_weight or need_weights:
        return None
    if (dropout_p and training) or any(isinstance(t, Tensor) for t in (*rest, *others.values())):
        return None
    first = query.transpose(0, 1).is_contiguous() and not query.is_contiguous()
    x = query.transpose(0, 1) if first else query
    return SelfAttention(x, num_heads, first, (in_proj_weight, in_proj_bias), (out_proj_weight, out_proj_bias))


def multi_head(*args: Any, **kwargs: Any) -> tuple[Tensor, None] | None:
    """`F.multi_head_attention_forward` for a plain self-attention; None for a call that is left to PyTorch."""
    call = self_attention(*args, **kwargs)
    if call is None or not _has_form(call.x, call.x.shape[call.first], call.x.shape[2] // call.heads):
        return None
    return call.finished(Packed.apply(call.projected(), call.heads, call.first))


def _has_form(x: Tensor, length: int, width: int) -> bool:
    """Whether there is a kernel for attention like this, or, on a CPU, products are no more memory than it has."""
    if x.device.type != "cpu":
        return kernels(x) is not None and width <= WIDEST
    digits = x.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled("cpu")
    return digits and length <= LONGEST and torch.is_grad_enabled()
