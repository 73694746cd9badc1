"""Rows that move between inputs: which operations do that, and that no rule is trusted below or above them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio.trace.probe.graph import Graph
from tests.trace.helpers import close, plan, ready, same_as_reference, slow

N = 3
ORDER = torch.tensor([2, 0, 1])


def moved(forward: Callable[[Tensor, Tensor], Tensor], n: int = N) -> bool:
    """Whether the use of the weight in ``forward(x [n, 5, 4], w [4, 4])`` is one that rows move below or above."""
    x, w = torch.randn(n, 5, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    return Graph(forward(x, w), {"w": w}, (x,)).uses["w"][0].moved


MOVES = {
    "sorted before": lambda x, w: x[ORDER] @ w,
    "sorted after": lambda x, w: (x @ w)[ORDER],
    "sorted and back": lambda x, w: (x[ORDER] @ w).index_select(0, ORDER.argsort()),
    "sequence first": lambda x, w: (x.transpose(0, 1)[:, ORDER] @ w).transpose(0, 1),
    "masked": lambda x, w: (x @ w)[torch.tensor([True, False, True])],
    "masked rows": lambda x, w: (x @ w).masked_select(x > 0),
    "added to rows": lambda x, w: torch.zeros(N, 5, 4).index_add(0, ORDER, x @ w),
    "put into rows": lambda x, w: torch.zeros(N, 5, 4).index_put((ORDER,), x @ w),
    "scattered": lambda x, w: torch.zeros(N, 5, 4).scatter(0, ORDER.view(3, 1, 1).expand(3, 5, 4), x @ w),
    "sort over the batch": lambda x, w: (x @ w).sort(0).values,
    "gather over the batch": lambda x, w: (x @ w).gather(0, ORDER.view(3, 1, 1).expand(3, 5, 4)),
    "rows of a merged batch": lambda x, w: (x.flatten(0, 1) @ w)[torch.arange(15).flip(0)],
    "a batch as a table": lambda x, w: F.embedding(ORDER, (x @ w)[:, 0]),
    "a table made of parameters": lambda x, w: F.embedding(torch.tensor([0, 1, 1]), torch.tanh(w * 2) * 3) + x[:, 0],
}
STAYS = {
    "plain": lambda x, w: x @ w,
    "one position of each": lambda x, w: (x @ w)[torch.arange(N), ORDER],
    "several of each": lambda x, w: (x @ w)[torch.arange(N).view(3, 1), torch.zeros(3, 2, dtype=torch.long)],
    "gather over positions": lambda x, w: (x @ w).gather(1, torch.zeros(3, 2, 4, dtype=torch.long)),
    "some positions": lambda x, w: (x @ w)[:, torch.tensor([0, 4])],
    "top features": lambda x, w: (x @ w).topk(2).values,
    "sorted features": lambda x, w: (x @ w).sort(-1).values,
    "first position": lambda x, w: (x @ w)[:, 0],
}


@pytest.mark.parametrize("name", MOVES)
def test_moves_are_seen(name: str) -> None:
    assert moved(MOVES[name])


@pytest.mark.parametrize("name", STAYS)
def test_what_stays_within_an_input_is_no_move(name: str) -> None:
    assert not moved(STAYS[name])


def test_one_input_has_nowhere_to_go() -> None:
    assert not moved(lambda x, w: (x @ w)[torch.tensor([0])], n=1)


class SortedByLength(nn.Module):
    """Tokens are sorted by their first one, as whole numbers: only the way back is in the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        order = x[:, 0].argsort(stable=True)
        h = torch.tanh(self.mix(self.table(x[order]).mean(1)))
        return self.head(h[order.argsort()])


class Gained(nn.Module):
    """Rows of (table × gain): the gain's gradient is found in rows that the data choose."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.gain = nn.Parameter(torch.randn(12, 4)), nn.Parameter(torch.randn(1, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(F.embedding(x, self.table * self.gain).mean(1)))


class Indexed(nn.Module):
    """Rows of a table by an index, then sorted by what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Parameter(torch.randn(10, 4)), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table[x].mean(1)
        order = h[:, 0].argsort()
        return self.head(torch.tanh(self.mix(h[order]))[order.argsort()])


class LastToken(nn.Module):
    """As language models classify: the position before the padding, one of each input."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(10, 4, padding_idx=0), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.head(torch.tanh(self.mix(self.table(x))))
        return h[torch.arange(len(x)), (x != 0).sum(1) - 1]


def test_a_batch_sorted_inside_is_not_mixed_up() -> None:
    model, x = ready(SortedByLength()), torch.randint(0, 10, (6, 4))
    x[:, 0] = torch.tensor([0, 1, 2, 5, 4, 3])
    assert plan(model, x[:3]).fast  # the first three are in order
    same_as_reference(model, x)


def test_rows_of_a_computed_table() -> None:
    model, x = ready(Gained()), torch.randint(0, 12, (4, 3))
    x[:3] = torch.tensor([[0, 1, 2], [4, 5, 6], [8, 9, 10]])  # each of the first three has a third of its own
    same_as_reference(model, x)


def test_rows_sorted_by_value() -> None:
    same_as_reference(ready(Indexed()), torch.randint(0, 10, (6, 4)))


@pytest.mark.parametrize("n", [2, 5, 6])
def test_the_last_token_of_each_input_is_fast(n: int) -> None:
    model, x = ready(LastToken()), torch.randint(1, 10, (n, 6))
    x[1, 3:] = 0
    same_as_reference(model, x)
    assert slow(model, x) == set()


def test_a_plan_is_left_where_the_rows_of_another_batch_move() -> None:
    """``h[:, picked]`` over 4 positions is safe for 3 inputs and cannot be told from a move of 4."""

    class Picked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix, self.head = nn.Linear(5, 4), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.mix(x))[:, torch.tensor([0, 2])].flatten(1))

    model, x = ready(Picked()), torch.randn(4, 4, 5, dtype=torch.float64)
    three = same_as_reference(model, x[:3])
    assert "mix.weight" in plan(model, x[:3]).fast
    close(same_as_reference(model, x)[:3], three)
