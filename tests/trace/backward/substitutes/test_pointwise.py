"""Activations by their derivative, on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from nescio.trace.backward.substitutes import folding, pointwise
from nescio.trace.runtime import autograd_names as names
from tests.trace.helpers import SMOOTH, Then, ready, same_as_reference, slow


class Activated(nn.Module):
    def __init__(self, call: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.call, self.first, self.second = call, nn.Linear(4, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.call(self.first(x)))


CALLS: list[Any] = [
    nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.SiLU(inplace=True), nn.Mish(), nn.Hardswish(), nn.ELU(0.5), nn.SELU(),
    nn.CELU(2.0), nn.Softplus(2.0, 1.0), torch.tanh, F.sigmoid,
]  # fmt: skip


METHODS = {F.tanh, F.sigmoid}
"""They call a method of the tensor."""


@pytest.mark.parametrize("call", CALLS, ids=lambda call: getattr(call, "__name__", str(call)))
def test_the_engine_is_the_oracle(call: Any) -> None:
    torch.manual_seed(0)
    model, x = ready(Then(Activated(call), 15)), torch.randn(4, 3, 4, dtype=torch.float64)
    assert slow(model, x) == set()
    same_as_reference(model, x, **SMOOTH)


@pytest.mark.parametrize(
    "func",
    sorted(pointwise.ACTIVATIONS - METHODS, key=lambda func: (func.__name__, str(func.__module__))),
    ids=lambda func: func.__name__,
)
def test_smooth_ones_and_no_others_go_by_their_derivative(func: Any) -> None:
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    with folding():
        y = func(x)
    assert y.grad_fn is not None and (y.grad_fn.name() == names.POINTWISE) == (func in pointwise.SMOOTH)
    torch.testing.assert_close(*(torch.autograd.grad(out.sum(), x)[0] for out in (y, func(x))), rtol=1e-13, atol=0)


def test_a_model_may_checkpoint_them() -> None:
    class Again(Activated):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=False)

    torch.manual_seed(0)
    same_as_reference(ready(Then(Again(F.gelu), 15)), torch.randn(4, 3, 4, dtype=torch.float64))


def test_many_cotangents_and_a_model_with_vmap_inside() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, requires_grad=True)
    vectors = torch.randn(5, 2, 3)
    with folding():
        y, mapped = F.gelu(x), torch.vmap(F.gelu)(x)
    torch.testing.assert_close(mapped, y)

    def back(v: Tensor) -> Tensor:
        return torch.autograd.grad(y, x, v, retain_graph=True)[0]

    torch.testing.assert_close(torch.vmap(back)(vectors), torch.stack([back(v) for v in vectors]))
