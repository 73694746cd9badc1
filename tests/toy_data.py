"""Small data that several tests train on."""

from __future__ import annotations

import torch
from torch import Tensor


def blobs(
    count: int = 120, seed: int = 0, spread: float = 0.4, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Points ``[count, 2]`` of three classes that hardly overlap, and their labels."""
    y = torch.arange(count) % 3
    noise = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return noise * spread + torch.eye(3, dtype=dtype)[y][:, :2] * 3, y
