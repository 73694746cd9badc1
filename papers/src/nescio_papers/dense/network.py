"""The small U-Net of the study, and how it is trained."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio_papers.dense.scenes import EDGE, Scenes

BATCH, RATE = 32, 3e-3


class UNet(nn.Module):
    """Three times down and up again, bridges between, a head of 1×1: logits ``[N, 11, H, W]``.

    Args:
        classes: How many classes.
        width: Channels at full resolution.
    """

    def __init__(self, classes: int = 11, width: int = 8) -> None:
        super().__init__()
        wide = [width, 3 * width, 6 * width, 8 * width]
        self.down = nn.ModuleList([_block(3 if i == 0 else wide[i - 1], wide[i]) for i in range(3)])
        self.deep = _block(wide[2], wide[3])
        self.up = nn.ModuleList([_block(wide[i + 1] + wide[i], wide[i]) for i in range(3)])
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        bridges = []
        for block in self.down:
            x = block(x)
            bridges.append(x)
            x = F.max_pool2d(x, 2)
        x = self.deep(x)
        for i in (2, 1, 0):
            x = F.interpolate(x, bridges[i].shape[2:], mode="nearest")
            x = self.up[i](torch.cat([x, bridges[i]], 1))
        logits: Tensor = self.head(x)
        return logits


def _block(inside: int, outside: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inside, outside):
        layers += [nn.Conv2d(channels, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers)


def train(data: Scenes, epochs: int, width: int, seed: int, say: Callable[[str], object]) -> UNet:
    """Train a U-Net by cross-entropy with Adam and one cycle of learning rates.

    Args:
        data: What it learns from.
        epochs: How often it sees them.
        width: Of the network.
        seed: Of the first weights and of the order.
        say: Is told how it goes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = UNet(width=width).train().to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(network.parameters(), RATE)
        steps = epochs * (len(data) // BATCH)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
        x, y = data.floats.contiguous(memory_format=torch.channels_last), data.y
        for epoch in range(epochs):
            losses = []
            for rows in torch.randperm(len(data)).split(BATCH)[: len(data) // BATCH]:
                loss = F.cross_entropy(network(x[rows]), y[rows], ignore_index=EDGE)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                cycle.step()
                losses.append(float(loss.detach()))
            say(f"  epoch {epoch + 1} of {epochs}: loss {sum(losses) / len(losses):.4f}")
    return network.eval()
