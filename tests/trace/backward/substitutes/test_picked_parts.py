"""Queries, keys and values picked one by one from one tensor."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import modes
from nescio.models import Classifier
from nescio.trace.backward.substitutes import folding
from nescio.trace.probe import passes
from nescio.trace.runtime import autograd_names as names
from tests.trace.helpers import SMOOTH, ready, same_as_reference, slow


class Picked(nn.Module):
    """Attention whose queries, keys and values are picked from one projection, as ``order`` says."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2)) -> None:
        super().__init__()
        self.order = order
        self.qkv, self.head = nn.Linear(6, 12), nn.Linear(4, 3)

    def parts(self, qkv: Tensor) -> tuple[Tensor, ...]:
        return tuple(qkv[i] for i in self.order)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.nn.functional.pad(x, (0, 0, 0, 0))
        q, k, v = self.parts(self.qkv(h).reshape(len(x), 5, 3, 2, 2).permute(2, 0, 3, 1, 4))
        mixed = (q @ k.mT).softmax(-1) @ v
        return self.head(mixed.transpose(1, 2).flatten(2).tanh().mean(1))


class Written(Picked):
    """It writes into a part."""

    def parts(self, qkv: Tensor) -> tuple[Tensor, ...]:
        q = qkv[0]
        q *= 0.5
        return q, qkv[1], qkv[2]


class Changed(Picked):
    """It writes into the whole between two picks."""

    def parts(self, qkv: Tensor) -> tuple[Tensor, ...]:
        q = qkv[0] * 1.5
        qkv = qkv.clone()
        k = qkv[1] * 2
        qkv += 0.1
        return q, k, qkv[2]


def nodes(model: nn.Module, x: Tensor) -> list[str]:
    classifier = Classifier.of(model)
    with modes.preserved(classifier), modes.tracing(classifier):
        return [node.name() for node in passes.forward(classifier, x).graph.nodes]


@pytest.mark.parametrize("make", [Picked, lambda: Picked((0, 1, 1)), lambda: Picked((2, 0, 1)), Written, Changed])
@pytest.mark.parametrize("count", [1, 4])
def test_the_engine_is_the_oracle(make: Any, count: int) -> None:
    torch.manual_seed(0)
    model, x = ready(make()), torch.randn(count, 5, 6, dtype=torch.float64)
    assert slow(model, x) == set()
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1, **SMOOTH)


def test_three_picks_are_one_operation_unless_the_model_writes_into_one() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    picked = {"SelectBackward0"}
    plain, written = nodes(ready(Picked()), x), nodes(ready(Written()), x)
    assert plain.count(names.PARTS) == 1 and not picked & set(plain)
    assert names.PARTS not in written and picked & set(written)


def test_the_gradient_lies_in_memory_as_what_was_picked_from() -> None:
    whole = torch.randn(2, 5, 3, 2, 4, requires_grad=True)
    with folding():
        laid = whole.permute(2, 0, 3, 1, 4)
        parts = laid[0], laid[1], laid[2]
    weights = [torch.randn(4, *part.shape) for part in parts]
    edge = torch.autograd.graph.get_gradient_edge(laid)

    def back(*own: Tensor) -> Tensor:
        (found,) = torch.autograd.grad(parts, [edge], own, retain_graph=True)
        return found

    found = torch.func.vmap(back)(*weights)
    torch.testing.assert_close(found, torch.stack(weights, 1), rtol=0, atol=0)
    assert found.permute(0, 2, 4, 1, 3, 5).is_contiguous()
    one = back(*(w[0] for w in weights))
    torch.testing.assert_close(one, found[0], rtol=0, atol=0)


@pytest.mark.parametrize("index", [-1, True, slice(0, 1), torch.tensor(1)])
def test_other_picks_are_left_to_pytorch(index: Any) -> None:
    whole = torch.randn(3, 1, 1, 2, 2, requires_grad=True) * 2
    with folding():
        part = whole[index]
    assert part.grad_fn is not None and part.grad_fn.name() != names.PARTS
    torch.testing.assert_close(part, whole.detach()[index], check_stride=False)
