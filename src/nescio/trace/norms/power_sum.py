"""Sums of powers ``Σ|x|^p``, of which norms are made."""

from __future__ import annotations

import torch
from torch import Tensor


def power_sum(x: Tensor, p: int, start: int = 2) -> Tensor:
    """``Σ|x|^p`` over all but the first ``start`` dimensions; on a CPU (x·x).sum() keeps more digits than a norm."""
    y, kind = x.flatten(start), torch.promote_types(x.dtype, torch.float32)
    if y.is_cuda and p == 2:
        return torch.linalg.vector_norm(y, dim=-1, dtype=kind).square()
    return (y * y).sum(-1, dtype=kind) if p == 2 else y.abs().sum(-1, dtype=kind)
