"""Small models with references for them, in float64 so that nothing hangs on the order of a sum."""

import torch
from torch import nn

FEW = "ignore:the reference has:UserWarning"
"""For tests with a small reference."""


def mlp(width: int = 6, classes: int = 3) -> nn.Sequential:
    """A network of vectors with fixed weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        net = nn.Sequential(nn.Linear(width, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, classes))
    return net.double()


def conv(channels: int = 3) -> nn.Sequential:
    """A network of pictures with fixed weights and a batch norm whose statistics a forward pass could change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        net = nn.Sequential(
            nn.Conv2d(channels, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, 3),
        )  # fmt: skip
    return net.double()


def vectors(count: int, seed: int = 0, width: int = 6) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pictures(count: int, seed: int = 0, side: int = 12) -> torch.Tensor:
    """Smooth pictures in [0, 1]."""
    rough = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return nn.functional.interpolate(rough, (side, side), mode="bilinear")
