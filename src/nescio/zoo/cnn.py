"""The small CNN of the REGrad paper (supplement B.1), for square pictures of any size that its kernels fit:

Conv(32) – ReLU – Conv(32) – ReLU – MaxPool(2) – Dense(128) – ReLU – Dense(C)

Convolutions have stride 1 and no padding. The paper's MNIST network is `small_cnn(1, 28, 10)`, with 4×4 kernels;
for the 8×8 digits 3×3 kernels leave 2×2 positions to the dense layers. It returns logits.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from nescio.types import InputError
from nescio.zoo.seeding import seeded


def small_cnn(
    channels: int = 1,
    size: int = 28,
    classes: int = 10,
    kernel: int = 4,
    filters: int = 32,
    units: int = 128,
    seed: int | None = None,
) -> nn.Sequential:
    """The network, with random weights: from `seed`, or from torch's global generator when it is None."""
    side = (size - 2 * (kernel - 1)) // 2
    if side < 1:
        raise InputError(
            f"expected pictures of at least {2 * kernel} × {2 * kernel} pixels for two {kernel} × {kernel} "
            f"convolutions and a pooling, but got size={size}; use a smaller kernel"
        )
    with seeded(seed):
        return nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(channels, filters, kernel),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(filters, filters, kernel),
                relu2=nn.ReLU(),
                pool=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                dense1=nn.Linear(filters * side * side, units),
                relu3=nn.ReLU(),
                dense2=nn.Linear(units, classes),
            )
        )
