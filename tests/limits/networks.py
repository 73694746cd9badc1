"""Small networks for the tests of this folder, and the pieces that they are on, read with hooks."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def mlp(*sizes: int, seed: int = 0, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A multilayer perceptron in float64."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers[:-1]).double().eval()


class SmallResNet(nn.Module):
    """Convolutions, batch norm, ReLU in place, a residual sum, max-pool, concatenation, functional calls, dropout."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stem, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.Conv2d(4, 4, 3, padding=1)
        self.norm_a, self.norm_b = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.relu, self.pool, self.drop = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1), nn.Dropout(0.5)
        self.head = nn.Linear(12, 3)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean)
                nn.init.uniform_(module.running_var, 0.5, 2.0)
                nn.init.uniform_(module.weight, 0.5, 2.0)
                nn.init.normal_(module.bias)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        h = self.pool(self.relu(self.norm(self.stem(x))))
        y = self.norm_b(self.b(self.relu(self.norm_a(self.a(h)))))
        y += h
        y = F.relu(y)
        z = torch.cat(
            [F.adaptive_avg_pool2d(y, 1).flatten(1), F.avg_pool2d(y, 3).view(x.size(0), -1), y.mean((2, 3))], 1
        )
        return self.head(self.drop(z))


class Wrapped(nn.Module):
    """A function between two convolutions, with a linear head."""

    def __init__(self, inner: object) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.inner, self.head = nn.Conv2d(2, 3, 3, padding=1), inner, nn.LazyLinear(3)
        self.double().eval()
        self(torch.randn(1, 2, 6, 6).double())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(self.first(x)).flatten(1))


def pattern(model: nn.Module, x: Tensor) -> Tensor:
    """Which piece of every ReLU and max-pool each input is on, ``[N, units]``, from plain PyTorch."""
    parts: list[Tensor] = []
    relu, pool = F.relu, F.max_pool2d

    def watched_relu(h: Tensor, inplace: bool = False) -> Tensor:
        parts.append((h > 0).flatten(1).long())
        return relu(h)

    def watched_pool(h: Tensor, *args: object, **kwargs: object) -> Tensor:
        kwargs.pop("return_indices", None)
        out, places = pool(h, *args, return_indices=True, **kwargs)
        # among entries that are 0 after a ReLU any may be the largest: those have no choice to change
        parts.append(torch.where(out > 0, places, -1).flatten(1))
        return out

    try:
        F.relu, F.max_pool2d = watched_relu, watched_pool
        with torch.no_grad():
            model(x)
    finally:
        F.relu, F.max_pool2d = relu, pool
    return torch.cat(parts, 1)
