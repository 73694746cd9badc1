"""Gaussian blur of pictures, exact for every σ: rows and columns times matrices of normalised Gaussian weights.

y = B_σ x B_σᵀ,   (B_σ)_{ij} ∝ exp(−(i − j)²/2σ²),   each row adding up to one, also at the edge
"""

from __future__ import annotations

import torch
from torch import Tensor


def blurred(x: Tensor, sigma: float, channels: int | None = 1) -> Tensor:
    """Pictures ``[N, channels, H, W]`` blurred; channels says where they are, None that there are none."""
    if sigma <= 0.0:
        return x
    last = x if channels is None else x.movedim(channels, 1)
    high, wide = (_weights(size, sigma).to(x) for size in last.shape[-2:])
    smooth = high @ last @ wide.T
    return smooth if channels is None else smooth.movedim(1, channels)


def _weights(size: int, sigma: float) -> Tensor:
    at = torch.arange(size, dtype=torch.float64)
    return (-(at[:, None] - at).square() / (2.0 * sigma**2)).softmax(1)
