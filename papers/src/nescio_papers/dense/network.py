"""The networks of the study of pixels: a small U-Net, and an FCN of torchvision."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nescio._common.lazy_imports import need

CLASSES = 11
LARGER = 4


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


class FCN(nn.Module):
    """torchvision's FCN head on the first two stages of its ResNet18: logits ``[N, 11, H, W]``.

    The picture is made four times as large first, since a ResNet halves it three times before the end of its second
    stage: of 64 pixels 32 are left, and the logits are resized.

    Args:
        classes: How many classes.
        larger: How many times larger the picture is made.
    """

    def __init__(self, classes: int = CLASSES, larger: int = LARGER) -> None:
        super().__init__()
        self.larger = larger
        resnet: Any = need("torchvision.models", "bench").resnet18(weights=None)
        head: Any = need("torchvision.models.segmentation.fcn", "bench").FCNHead
        self.body = nn.Sequential(resnet.conv1, resnet.bn1, resnet.relu, resnet.maxpool, resnet.layer1)
        self.deep = resnet.layer2
        self.head = head(128, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits."""
        large = F.interpolate(x, scale_factor=self.larger, mode="bilinear")
        return F.interpolate(self.head(self.deep(self.body(large))), x.shape[2:], mode="bilinear")


def made(kind: str, width: int) -> nn.Module:
    """Return a network with first weights: "unet" of this width, or "fcn", where a width below four makes it faster."""
    return UNet(CLASSES, width) if kind == "unet" else FCN(CLASSES, min(LARGER, width))
