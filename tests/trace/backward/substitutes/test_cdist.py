"""Heads of distances: PyTorch's backward of `cdist` is wrong under vmap, ours is not."""

import math

import pytest
import torch
from torch import Tensor, nn

from nescio import trace
from nescio.trace.backward.substitutes.corrected import CorrectedOps


class Prototypes(nn.Module):
    def __init__(self, p: float) -> None:
        super().__init__()
        self.features = nn.Linear(5, 4)
        self.prototypes = nn.Parameter(torch.randn(3, 4))
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return -torch.cdist(self.features(x).tanh(), self.prototypes, p=self.p)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("count", [1, 4, 30])
def test_norms_behind_distances_are_those_of_the_loop(p: float, count: int) -> None:
    torch.manual_seed(0)
    model, x = Prototypes(p).double(), torch.randn(count, 5, dtype=torch.float64)
    found, wanted = trace.class_gradients(model, x).norms, trace.reference.class_gradients(model, x).norms
    assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_two_equal_points_have_a_gradient_of_zero_there() -> None:
    x = torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[0.0, 0, 0, 0], [1, 2, 0, 0]], dtype=torch.float64)
    with CorrectedOps():
        found = torch.cdist(x, y)
    (ours,) = torch.autograd.grad(found.sum(), x)
    (wanted,) = torch.autograd.grad(torch.cdist(x, y).sum(), x)
    assert torch.allclose(ours, wanted) and bool(ours.isfinite().all())
