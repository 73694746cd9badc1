"""ResNet-18 (He et al. 2016): four stages of two residual blocks, x ↦ ReLU(shortcut(x) + BN(W₂ ReLU(BN(W₁ x)))).

Two stems: "cifar" (one 3×3 convolution, no pooling) for 32×32 pictures, and "imagenet" (7×7 with stride 2, then
pooling). Modules carry the customary names (conv1, layer1.0.conv1, …, fc), so common checkpoints load.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from nescio.types import InputError
from nescio.zoo.seeding import seeded

Stem = Literal["cifar", "imagenet"]


class Block(nn.Module):
    """The basic residual block; a 1×1 convolution carries the shortcut where the shape changes."""

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inward, outward, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outward)
        self.conv2 = nn.Conv2d(outward, outward, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outward)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inward != outward:
            self.downsample = nn.Sequential(
                nn.Conv2d(inward, outward, 1, stride=stride, bias=False), nn.BatchNorm2d(outward)
            )

    def forward(self, x: Tensor) -> Tensor:
        """[N, inward, H, W] → [N, outward, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inner + shortcut)


class ResNet18(nn.Module):
    """ResNet-18 that returns logits."""

    def __init__(self, classes: int = 10, channels: int = 3, stem: Stem = "cifar") -> None:
        super().__init__()
        if stem == "cifar":
            self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        elif stem == "imagenet":
            self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        else:
            raise InputError(f"expected stem='cifar' or 'imagenet', but got {stem!r}")
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if stem == "cifar" else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """[N, channels, H, W] → logits [N, classes]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(classes: int = 10, channels: int = 3, stem: Stem = "cifar", seed: int | None = None) -> ResNet18:
    """ResNet-18 with random weights: from `seed`, or from torch's global generator when it is None."""
    with seeded(seed):
        return ResNet18(classes, channels, stem)


def resnet18_cifar(classes: int = 10, seed: int | None = None) -> ResNet18:
    """ResNet-18 for 32×32 colour pictures."""
    return resnet18(classes, stem="cifar", seed=seed)
