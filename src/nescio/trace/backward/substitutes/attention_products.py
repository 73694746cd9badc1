"""The gradients of softmax attention on a CPU, in matrix products that many cotangents share.

The attention weights are worked out once for all cotangents, and not kept from the forward pass. Where a gradient
arrives at few positions, as at a class token, only these queries have weights.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.trace.backward.substitutes.linear import reached


def pulled(g: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by queries, keys and values [B, H, T, D], from those of the result [K, B, H, T, D]."""
    whole, at = (len(g), *q.shape), reached(g, 3)
    if at is not None:
        g, q = g[:, :, :, at], q[:, :, at]
    weights = torch.matmul(q * scale, k.mT).softmax(-1)
    count, width = len(g), g.shape[-1]
    rows = g.movedim(0, 2)  # [B, H, K, T, D]
    inner = torch.matmul(rows.flatten(2, 3), v.mT).unflatten(2, (count, -1))
    inner -= _along(inner, weights.unsqueeze(2))
    inner *= weights.unsqueeze(2) * scale
    by_query = torch.matmul(inner.flatten(2, 3), k).unflatten(2, (count, -1)).movedim(2, 0)
    by_key = torch.matmul(inner.mT, q.unsqueeze(2)).movedim(2, 0)
    # all cotangents lie beside each other: one product with the weights
    beside = rows.movedim(2, 3).flatten(3)
    by_value = torch.matmul(weights.mT, beside).unflatten(3, (count, width)).movedim(3, 0)
    if at is not None:
        by_query = g.new_zeros(whole).index_copy_(3, at, by_query)
    return by_query, by_key, by_value


def _along(a: Tensor, b: Tensor) -> Tensor:
    """``Σ a b`` over the last dimension, which stays."""
    return (a * b).sum(-1, keepdim=True)
