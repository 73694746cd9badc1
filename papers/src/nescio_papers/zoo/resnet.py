"""Residual networks (He et al. 2016): four stages of blocks x ↦ ReLU(shortcut(x) + F(x)).

ResNet-18 has two blocks a stage, F(x) = BN(W₂ ReLU(BN(W₁ x))) with 3×3 convolutions; ResNet-152 has 3, 8, 36 and 3 with
F(x) = BN(W₃ ReLU(BN(W₂ ReLU(BN(W₁ x))))), of which W₁ and W₃ are 1×1 and narrow and widen the features fourfold.
Two stems: "cifar" (one 3×3 convolution, no pooling) for 32×32 pictures, and "imagenet" (7×7 with stride 2, then
pooling). Modules carry the customary names (conv1, layer1.0.conv1, …, fc), so common checkpoints load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor, nn

from nescio.training.seeding import seeded
from nescio.types import InputError

Stem = Literal["cifar", "imagenet"]


class Block(nn.Module):
    """The basic residual block; a 1×1 convolution carries the shortcut where the shape changes."""

    widening: ClassVar[int] = 1

    def __init__(self, inward: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inward, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inward, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inward, H, W] → [N, width, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(inner + shortcut)


class Bottleneck(nn.Module):
    """The block of deep networks: narrowed, convolved, widened."""

    widening: ClassVar[int] = 4

    def __init__(self, inward: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inward, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inward, 4 * width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """[N, inward, H, W] → [N, 4 · width, H / stride, W / stride]."""
        shortcut = x if self.downsample is None else self.downsample(x)
        inner = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(inner)) + shortcut)


def _shortcut(inward: int, outward: int, stride: int) -> nn.Module | None:
    if stride == 1 and inward == outward:
        return None
    return nn.Sequential(nn.Conv2d(inward, outward, 1, stride=stride, bias=False), nn.BatchNorm2d(outward))


class ResNet(nn.Module):
    """A residual network that returns logits, with so many blocks of one kind in each of four stages."""

    def __init__(
        self,
        block: type[Block] | type[Bottleneck],
        counts: Sequence[int],
        classes: int = 10,
        channels: int = 3,
        stem: Stem = "cifar",
    ) -> None:
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
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            _stage(block, 64 if place == 0 else block.widening * 64 * 2 ** (place - 1), 64 * 2**place, count, place)
            for place, count in enumerate(counts)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.widening, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [N, classes] of pictures [N, channels, H, W]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _stage(block: type[Block] | type[Bottleneck], inward: int, width: int, count: int, place: int) -> nn.Sequential:
    first = block(inward, width, 1 if place == 0 else 2)
    return nn.Sequential(first, *(block(block.widening * width, width, 1) for _ in range(count - 1)))


class ResNet18(ResNet):
    """ResNet-18 that returns logits."""

    def __init__(self, classes: int = 10, channels: int = 3, stem: Stem = "cifar") -> None:
        super().__init__(Block, (2, 2, 2, 2), classes, channels, stem)


def resnet18(classes: int = 10, channels: int = 3, stem: Stem = "cifar", seed: int | None = None) -> ResNet18:
    """Build ResNet-18 with random weights.

    Args:
        classes: Number of classes.
        channels: Channels of a picture.
        stem: "cifar" for 32×32 pictures, "imagenet" for large ones.
        seed: Seed of the weights; None draws them from torch's global generator.
    """
    with seeded(seed):
        return ResNet18(classes, channels, stem)


def resnet18_cifar(classes: int = 10, seed: int | None = None) -> ResNet18:
    """Build ResNet-18 for 32×32 colour pictures; `seed` as for `resnet18`."""
    return resnet18(classes, stem="cifar", seed=seed)


def resnet152_cifar(classes: int = 100, seed: int | None = None) -> ResNet:
    """Build ResNet-152 for 32×32 colour pictures; `seed` as for `resnet18`."""
    with seeded(seed):
        return ResNet(Bottleneck, (3, 8, 36, 3), classes)
