"""Half-moons as scikit-learn makes them, and the places of the plane where numbers are taken.

    upper moon   (cos t, sin t),  t from 0 to π          lower moon   (1 − cos t, ½ − sin t)

each with normal noise on both coordinates. With m the middle of the training points and r the largest distance of one
of them from m, a *ring* of radius k is m + k r (cos φ, sin φ). Points *between* the moons lie about as far from the
arc of one as from that of the other, and near both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

NOISE = 0.125
TRAINING, HELD_OUT = 500, 250
WINDOW = (-3.5, 4.5), (-3.0, 3.5)
"""The part of the plane that the paper's figures show."""


@dataclass(frozen=True)
class Moons:
    """Training and held-out points, float64 [N, 2], with their moon, 0 (upper) or 1."""

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor

    def ring(self, radius: float, count: int) -> Tensor:
        """Return points on a circle around the training points, whose radius is in units of theirs."""
        middle = self.x.mean(0)
        reach = float((self.x - middle).norm(dim=1).max())
        angle = torch.arange(count, dtype=torch.float64) * (2 * math.pi / count)
        return middle + radius * reach * torch.stack([angle.cos(), angle.sin()], 1)


def half_moons(seed: int, training: int = TRAINING, held_out: int = HELD_OUT, noise: float = NOISE) -> Moons:
    """Return so many points of the half-moons, half of them on each, in random order."""
    random = torch.Generator().manual_seed(seed)
    count = training + held_out
    upper = (count + 1) // 2
    points = torch.cat([_upper(_angles(upper)), _lower(_angles(count - upper))])
    x = points + noise * torch.randn(count, 2, generator=random, dtype=torch.float64)
    y = (torch.arange(count) >= upper).long()
    order = torch.randperm(count, generator=random)
    x, y = x[order], y[order]
    return Moons(x[:training], y[:training], x[training:], y[training:])


def between(count: int = 60) -> Tensor:
    """Return places of a grid of count × count between the moons."""
    u, v = torch.linspace(-1, 2, count, dtype=torch.float64), torch.linspace(-0.5, 1, count, dtype=torch.float64)
    grid = torch.cartesian_prod(u, v)
    arc = _angles(200)
    one, other = (torch.cdist(grid, moon(arc)).amin(1) for moon in (_upper, _lower))
    return grid[((one - other).abs() < 0.1) & (torch.maximum(one, other) < 0.6)]


def _angles(count: int) -> Tensor:
    return torch.linspace(0, math.pi, count, dtype=torch.float64)


def _upper(t: Tensor) -> Tensor:
    return torch.stack([t.cos(), t.sin()], 1)


def _lower(t: Tensor) -> Tensor:
    return torch.stack([1 - t.cos(), 0.5 - t.sin()], 1)
