"""Parameters that are broadcast into element-wise operations: class tokens, positions, gains, temperatures."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.trace.helpers import SMOOTH, Then, ready, same_as_reference, slow
from tests.trace.rules.test_rules import check, real


class Raw(nn.Module):
    """A parameter in an element-wise operation with a batch in some dimension."""

    def __init__(self, shape: tuple[int, ...], operation: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.p, self.operation = nn.Parameter(torch.zeros(shape)), operation

    def forward(self, x: Tensor) -> Tensor:
        return self.operation(x, self.p)


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x + p": lambda x, p: x + p,
    "p + x": lambda x, p: p + x,
    "x + 3p": lambda x, p: torch.add(x, p, alpha=3),
    "x − p": lambda x, p: x - p,
    "x − 2p": lambda x, p: torch.sub(x, p, alpha=2),
    "p − x": lambda x, p: p - x,
    "x p": lambda x, p: x * p,
    "p x": lambda x, p: p * x,
    "merged": lambda x, p: (x.flatten(0, 1) * p).view(x.shape),
    "sequence first": lambda x, p: (x.transpose(0, 1) * p).transpose(0, 1),
    "in place": lambda x, p: x.clone().mul_(p).add_(p),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 5)], ids=str)
def test_broadcast_parameters(name: str, shape: tuple[int, ...]) -> None:
    body = Raw(shape, OPERATIONS[name])
    model, x = ready(Then(body, 15)), real(4, 3, 5)
    assert slow(model, x) == ({"body.p"} if name == "in place" else set())  # used as a factor and as a term
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1, **SMOOTH)


@pytest.mark.parametrize("shape", [(3, 5), (1, 3, 1), (3, 1)], ids=str)
def test_parameters_with_entries_for_positions(shape: tuple[int, ...]) -> None:
    check(Raw(shape, lambda x, p: x * p), real(4, 3, 5))
    check(Raw(shape, lambda x, p: x + p.expand(4 if len(x) == 4 else len(x), 3, 5)), real(4, 3, 5))


def test_class_token() -> None:
    check(Raw((1, 1, 5), lambda x, p: torch.cat([p.expand(len(x), -1, -1), x], 1)), real(4, 3, 5))


def test_bias_alone() -> None:
    check(Raw((5,), lambda x, p: F.relu(x + p)), real(4, 5))
