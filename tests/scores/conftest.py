"""A small network with everything that a careless method would change, and a plain oracle for gradient scores."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn


class SmallNet(nn.Module):
    """Convolution, batch-norm, in-place ReLU, dropout, two linear layers; 3 classes, inputs [N, 1, 6, 6]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.norm = nn.BatchNorm2d(3)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.hidden = nn.Linear(48, 7)
        self.head = nn.Linear(7, 3)
        self.before_head: Callable[[Tensor], Tensor] = lambda h: h

    def forward(self, x: Tensor) -> Tensor:
        h = self.drop(self.act(self.norm(self.conv(x))).flatten(1))
        return self.head(self.before_head(torch.tanh(self.hidden(h))))


@pytest.fixture
def make() -> Callable[..., SmallNet]:
    def make(dtype: torch.dtype = torch.float64) -> SmallNet:
        torch.manual_seed(3)
        model = SmallNet()
        with torch.no_grad():
            model.norm.running_mean.normal_()
            model.norm.running_var.uniform_(0.5, 2.0)
            model.head.weight.mul_(4.0)
        return model.to(dtype)  # in training mode, as users leave it

    return make


@pytest.fixture
def model(make: Callable[..., SmallNet]) -> SmallNet:
    return make()


@pytest.fixture
def x() -> Tensor:
    return torch.rand(11, 1, 6, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


LAYERS = ("conv", "norm", "hidden", "head")


@pytest.fixture
def oracle() -> Callable[..., Any]:
    """For each input: p [C] and for each class a list with one flat gradient for each layer, by plain autograd."""

    def gradients(model: SmallNet, x: Tensor, noise: Tensor | None = None) -> list[tuple[Tensor, list[list[Tensor]]]]:
        model.eval()
        found = []
        for one in x:
            copies = one[None] if noise is None else torch.cat([one[None], one + noise])
            log_p = model(copies).log_softmax(1)
            by_class = []
            for c in range(log_p.shape[1]):
                layers = []
                for name in LAYERS:
                    own = list(getattr(model, name).parameters())
                    grads = torch.autograd.grad(log_p[:, c].mean(), own, retain_graph=True)
                    layers.append(torch.cat([g.flatten() for g in grads]))
                by_class.append(layers)
            found.append((log_p[0].detach().exp(), by_class))
        return found

    return gradients
