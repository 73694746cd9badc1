"""The small CNNs of the REGrad paper (supplement B.1), for square pictures of any size that their kernels fit:

Conv(32) – ReLU – Conv(32) – ReLU – MaxPool(2) – Dense(128) – ReLU – Dense(C)

and, with `hidden=2`, one more Dense(128) – ReLU before the last layer: its network for SVHN. (The paper prints that one
as Dense-ReLU-Dense-Dense-ReLU-Softmax; a ReLU on the logits is taken for a slip.)

Convolutions have stride 1 and no padding. The paper's MNIST network is `small_cnn(1, 28, 10)`, with 4×4 kernels;
for the 8×8 digits 3×3 kernels leave 2×2 positions to the dense layers. It returns logits.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from nescio.training.seeding import seeded
from nescio.types import InputError


def small_cnn(
    channels: int = 1,
    size: int = 28,
    classes: int = 10,
    kernel: int = 4,
    filters: int = 32,
    units: int = 128,
    seed: int | None = None,
    hidden: int = 1,
) -> nn.Sequential:
    """The network, with random weights: from `seed`, or from torch's global generator when it is None."""
    side = (size - 2 * (kernel - 1)) // 2
    if side < 1:
        raise InputError(
            f"expected pictures of at least {2 * kernel} × {2 * kernel} pixels for two {kernel} × {kernel} "
            f"convolutions and a pooling, but got size={size}; use a smaller kernel"
        )
    with seeded(seed):
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(channels, filters, kernel),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(filters, filters, kernel),
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
        )
        width = filters * side * side
        for place in range(1, hidden + 1):
            layers[f"dense{place}"] = nn.Linear(width, units)
            layers[f"relu{place + 2}"] = nn.ReLU()
            width = units
        layers[f"dense{hidden + 1}"] = nn.Linear(width, classes)
        return nn.Sequential(layers)
