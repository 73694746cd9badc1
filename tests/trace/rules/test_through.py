"""Parameters that go through a part of the network which no input enters before they meet one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nescio
from nescio import trace
from tests.trace.helpers import SMOOTH, close, ready, same_as_reference, slow


class Biased(nn.Module):
    """Attention over four positions of an input, in two windows, with a bias that ``table`` makes."""

    def __init__(self) -> None:
        super().__init__()
        self.qk, self.head = nn.Linear(3, 4), nn.Linear(3, 3)
        self.build()

    def build(self) -> None:
        raise NotImplementedError

    def table(self) -> Tensor:
        """[2, 2, 2]: heads and pairs of positions."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        h = x.view(-1, 2, 3)  # windows
        q = self.qk(h).unflatten(2, (2, 2)).transpose(1, 2)
        attention = (q @ q.transpose(2, 3) + self.table().unsqueeze(0)).softmax(-1)
        mixed = (attention @ h.unsqueeze(1)).tanh().sum(1).view(len(x), 4, 3)
        return self.head(mixed.mean(1))


class Looked(Biased):
    def build(self) -> None:
        self.bias_table = nn.Parameter(torch.randn(5, 2))
        self.index: Tensor
        self.register_buffer("index", torch.tensor([[2, 1], [1, 4]]))

    def table(self) -> Tensor:
        return self.bias_table[self.index.view(-1)].view(2, 2, 2).permute(2, 0, 1).contiguous()


class Attribute(Looked):
    """The index is neither parameter nor buffer."""

    def build(self) -> None:
        self.bias_table = nn.Parameter(torch.randn(2, 5))
        self.index = torch.tensor([2, 1, 1, 4])

    def table(self) -> Tensor:
        return self.bias_table[:, self.index].view(2, 2, 2)


class Selected(Looked):
    def table(self) -> Tensor:
        return self.bias_table.index_select(0, self.index.view(-1)).view(2, 2, 2).permute(2, 0, 1)


class Embedded(Looked):
    def table(self) -> Tensor:
        return F.embedding(self.index, self.bias_table, padding_idx=4).permute(2, 0, 1)


class Made(Biased):
    """A small network makes the table from coordinates; a scale goes through a clamp and an exponential."""

    def build(self) -> None:
        self.maker = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2, bias=False))
        self.scale = nn.Parameter(torch.randn(2, 1, 1))
        self.register_buffer("coordinates", torch.randn(2, 2, 2))

    def table(self) -> Tensor:
        made = 3 * torch.sigmoid(self.maker(self.coordinates).permute(2, 0, 1))
        return made * self.scale.clamp(max=0.5).exp()


class Joined(nn.Module):
    """A bias of two parameters and something fixed, as queries, keys and values have it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.q, self.v = (nn.Parameter(torch.randn(*s)) for s in ((6, 4), (2,), (2,)))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.linear(x, self.weight, torch.cat([self.q, torch.zeros_like(self.q), self.v])).tanh())


KINDS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    k.__name__: (k, 4 if k is Joined else 12) for k in (Looked, Attribute, Selected, Embedded, Made, Joined)
}


def made(kind: str, count: int = 4) -> tuple[Any, Tensor]:
    torch.manual_seed(1)
    make_it, width = KINDS[kind]
    return ready(make_it()), torch.randn(count, width, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_they_have_a_rule(kind: str, count: int) -> None:
    model, x = made(kind, count)
    assert not slow(model, x)
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1)
    same_as_reference(model, x, **SMOOTH)


def test_they_have_one_where_only_the_last_layers_are_followed() -> None:
    """A pass that begins at the first wanted parameter sees no input."""
    model, x = made("Looked")
    wanted = trace.reference.class_gradients(model, x, layers="tensor", select=["bias_table", "head.*"])
    ours = trace.class_gradients(model, x, layers="tensor", select=["bias_table", "head.*"], chunk=3)
    close(ours.norms, wanted.norms)
    assert nescio.score(model, x, "gradnorm").shape == (4,)


def test_an_index_that_comes_from_the_input_is_none_of_the_models() -> None:
    class Routed(Looked):
        def table(self) -> Tensor:
            picked = (self.kept[:, :4] > 0).long() + self.index.view(-1).clamp(max=3)  # one row of indices an input
            return self.bias_table[picked].view(-1, 2, 2, 2).permute(0, 3, 1, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.kept = x
            attention = (x.view(-1, 1, 2, 6)[..., :2] + self.table()).softmax(-1)
            return self.head(attention.flatten(1)[:, :3])

    torch.manual_seed(0)
    model, x = ready(Routed()), torch.randn(5, 12, dtype=torch.float64)
    same_as_reference(model, x, select=["bias_table", "head.*"])


def test_an_index_that_is_repeated_for_each_input() -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.first, self.head = nn.Embedding(4, 5), nn.Linear(6, 5), nn.Linear(5, 3)
            self.kinds: Tensor
            self.register_buffer("kinds", torch.tensor([[1, 3]]))

        def forward(self, x: Tensor) -> Tensor:
            kinds = self.table(self.kinds.expand(len(x), 2))
            return self.head((self.first(x).unsqueeze(1) + kinds).tanh().mean(1))

    torch.manual_seed(0)
    model, x = ready(Repeated()), torch.randn(4, 6, dtype=torch.float64)
    assert not slow(model, x)
    same_as_reference(model, x)
