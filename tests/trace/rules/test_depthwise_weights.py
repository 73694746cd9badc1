"""The weight's gradient where every channel has a kernel of its own: against autograd, one input at a time."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from nescio import trace
from nescio.trace.rules import depthwise_weights
from tests.trace import helpers

FORWARD = {False: (F.conv1d, F.conv2d, F.conv3d), True: (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)}


def wanted(run: Any, x: Tensor, weight: Tensor, g: Tensor) -> Tensor:
    """[K, B, *shape of the weight] from a graph of each input's own."""
    rows = []
    for b in range(len(x)):
        y = run(x[b : b + 1])
        own = [torch.autograd.grad(y, weight, d[b : b + 1], retain_graph=True)[0] for d in g]
        rows.append(torch.stack(own))
    return torch.stack(rows, 1)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_gradient_is_that_of_autograd(data: st.DataObject) -> None:
    dims = data.draw(st.integers(1, 3))
    transposed = data.draw(st.booleans())
    groups, many = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 2))

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(low, high)) for _ in range(dims))

    kernel, stride, dilation = each(1, 5), each(1, 3), each(1, 2)
    padding = tuple(data.draw(st.integers(0, (k - 1) * d // 2)) for k, d in zip(kernel, dilation, strict=True))
    size = tuple((k - 1) * d + 1 + data.draw(st.integers(0, 4)) for k, d in zip(kernel, dilation, strict=True))
    dtype = data.draw(st.sampled_from([torch.float64, torch.float32]))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    inward = groups * many if transposed else groups
    x = torch.randn(2, inward, *size, dtype=dtype)
    weight = torch.randn(groups * many, 1, *kernel, dtype=dtype).requires_grad_()

    def run(y: Tensor) -> Tensor:
        call = FORWARD[transposed][dims - 1]
        return call(y, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)

    g = torch.randn(2, *run(x).shape, dtype=dtype)
    ours = depthwise_weights.gradient(g, x, weight.shape, stride, padding, dilation, transposed)
    close = 1e-10 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(ours.flatten(2), wanted(run, x, weight, g).flatten(2), atol=close, rtol=close)


@pytest.mark.parametrize("there", [True, False])
def test_with_and_without_the_library(there: bool) -> None:
    x, weight = torch.randn(3, 4, 6, 5), torch.randn(4, 1, 3, 3).requires_grad_()
    g = torch.randn(2, 3, 4, 6, 5)
    with mock.patch.object(torch.backends.mkldnn, "is_available", lambda: there):
        ours = depthwise_weights.gradient(g, x, weight.shape, (1, 1), (1, 1), (1, 1))
    truth = wanted(lambda y: F.conv2d(y, weight, padding=1, groups=4), x, weight, g)
    torch.testing.assert_close(ours.flatten(2), truth.flatten(2), atol=1e-5, rtol=1e-5)


class Shared(nn.Module):
    """One weight by channel, used at two sizes, plainly and transposed."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 1, 3, 3))
        self.head = nn.Linear(3, 2)
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(F.conv2d(x, self.weight, padding=1, groups=3))
        again = F.conv_transpose2d if self.transposed else F.conv2d
        y = torch.tanh(again(y, self.weight, stride=2, groups=3))
        return self.head(y.mean((2, 3)))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("config", [{}, {"norm": 1}, helpers.SMOOTH])
def test_a_weight_that_is_used_twice(transposed: bool, config: dict[str, Any]) -> None:
    model, x = helpers.ready(Shared(transposed)).double(), torch.randn(3, 3, 7, 6, dtype=torch.float64)
    ours = trace.class_gradients(model, x, layers="tensor", **config)
    oracle = trace.reference.class_gradients(model, x, layers="tensor", **config)
    torch.testing.assert_close(ours.norms, oracle.norms, rtol=1e-8, atol=1e-10)


def test_no_patches_are_made() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(), nn.Linear(4 * 9, 2)).double()
    x = torch.randn(3, 4, 5, 5, dtype=torch.float64)
    with mock.patch("nescio.trace.rules.convolution.unfold", side_effect=AssertionError("unfolded")):
        ours = trace.class_gradients(model, x, layers="tensor")
    oracle = trace.reference.class_gradients(model, x, layers="tensor")
    torch.testing.assert_close(ours.norms, oracle.norms, rtol=1e-8, atol=1e-10)
