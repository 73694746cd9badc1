"""Means over the positions of pictures, on a CPU whose tensors say that they lie on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio import trace
from nescio.trace.backward.pull import pull
from nescio.trace.backward.substitutes import folding, spatial_mean
from nescio.trace.probe import passes
from tests.trace.helpers import ready

TAKEN: dict[str, Callable[[Tensor], Tensor]] = {
    "pool": lambda x: F.adaptive_avg_pool2d(x, 1),
    "pool, a pair": lambda x: F.adaptive_avg_pool2d(input=x, output_size=(1, 1)),
    "module": nn.AdaptiveAvgPool2d(1),
    "mean": lambda x: x.mean((2, 3)),
    "mean, kept, from the end": lambda x: torch.mean(x, dim=[-2, -1], keepdim=True),
    "mean, kept by place": lambda x: x.mean((3, 2), True),
}
LEFT: dict[str, Callable[[Tensor], Tensor]] = {
    "pool to more": lambda x: F.adaptive_avg_pool2d(x, (1, 2)),
    "channels": lambda x: x.mean((1, 2)),
    "one dimension": lambda x: x.mean(3),
    "all": lambda x: x.mean(),
    "another type": lambda x: x.mean((2, 3), dtype=torch.float64),
    "rows": lambda x: x.flatten(2).mean(2),
}


@pytest.fixture
def pretended() -> Iterator[list[Tensor]]:
    """Gives the pictures that a mean of ours was taken of."""
    taken: list[Tensor] = []
    apply = spatial_mean.SpatialMean.apply

    def spy(x: Tensor, call: Any) -> Any:
        taken.append(x)
        return apply(x, call)

    call = spatial_mean.call

    def here(*args: Any) -> Any:
        with mock.patch.object(torch.Tensor, "is_cuda", True):
            return call(*args)

    with mock.patch.object(spatial_mean, "call", here), mock.patch.object(spatial_mean.SpatialMean, "apply", spy):
        yield taken


def picture(last: bool) -> Tensor:
    x = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    return (x.contiguous(memory_format=torch.channels_last) if last else x).requires_grad_()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_value_and_gradients_are_those_of_torch(name: str, last: bool, pretended: list[Tensor]) -> None:
    x, call = picture(last), (TAKEN | LEFT)[name]
    wanted = call(x)
    with folding():
        found = call(x)
    assert len(pretended) == (name in TAKEN)
    assert found.equal(wanted) and found.stride() == wanted.stride()
    g = torch.randn(3, *wanted.shape, dtype=wanted.dtype)
    for own, other in zip(g, pull(found.flatten().unsqueeze(0), [x], g.reshape(3, 1, -1))[0], strict=True):
        torch.testing.assert_close(other, torch.autograd.grad(wanted, x, own, retain_graph=True)[0])


class Squeezed(nn.Module):
    """Squeeze and excitation, and a mean at the end that a convolution stands before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.last, self.head = nn.Conv2d(4, 5, 1), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        x = self.last(x * torch.sigmoid(self.gate(F.adaptive_avg_pool2d(x, 1))))
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize("last", [False, True])
def test_the_engine_is_the_oracle(last: bool, pretended: list[Tensor]) -> None:
    torch.manual_seed(0)
    net, x = ready(Squeezed()), torch.randn(4, 2, 5, 6, dtype=torch.float64)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    for settings in ({}, {"sigma": 0.1, "samples": 2}):
        wanted = trace.reference.class_gradients(net, x, layers="tensor", **settings)
        found = trace.class_gradients(net, x, layers="tensor", **settings)
        torch.testing.assert_close(found.norms, wanted.norms, rtol=1e-9, atol=1e-12)
    assert len(pretended) >= 2
    assert all(set(plan.fast) == set(wanted.layers) for plan in passes._PLANS[net].values())
