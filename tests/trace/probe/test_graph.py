"""The walk through autograd's graph: the uses of each parameter, their order, and what makes two passes alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio.trace.probe.graph import Graph, Use, summable

W = (4, 4)


def graph(forward: Callable[..., Tensor], *shapes: tuple[int, ...], n: int = 3) -> Graph:
    """The graph of ``forward(x, p0, p1, …)``; the parameters are called p0, p1, …"""
    parameters = {f"p{i}": torch.randn(shape, requires_grad=True) for i, shape in enumerate(shapes)}
    x = torch.randn(n, 4, requires_grad=True)
    return Graph(forward(x, *parameters.values()), parameters, (x,))


def names(g: Graph, parameter: str = "p0") -> list[tuple[str, int, tuple[str, ...]]]:
    """Each use as (operation, operand, chain of operations before it)."""
    return [(g.nodes[u.node].name(), u.slot, tuple(c[0] for c in u.chain)) for u in g.uses[parameter]]


def test_a_linear_layer() -> None:
    g = graph(lambda x, w, b: F.linear(x, w, b), W, (4,))
    assert names(g) == [("AddmmBackward0", 2, ("TBackward0",))]
    assert names(g, "p1") == [("AddmmBackward0", 0, ())]
    assert g.uses["p0"][0].shape == (4, 4)


def test_a_parameter_that_is_used_twice_has_two_uses() -> None:
    called = graph(lambda x, w: F.linear(torch.tanh(F.linear(x, w)), w), W)
    assert names(called) == [("MmBackward0", 1, ("TBackward0",))] * 2
    assert len({u.node for u in called.uses["p0"]}) == 2
    assert len({u.block for u in called.uses["p0"]}) == 1
    assert summable(called.uses["p0"])
    shared = graph(lambda x, w: (t := w.t(), torch.tanh(x @ t) @ t)[1], W)
    assert names(shared) == [("MmBackward0", 1, ("TBackward0",))] * 2


def test_a_parameter_that_is_used_both_ways_cannot_be_summed() -> None:
    assert not summable(graph(lambda x, w: torch.tanh(x @ w) @ w.t(), W).uses["p0"])
    assert not summable(graph(lambda x, w: torch.tanh(x @ w.view(4, 4)) @ w.view(4, 4), W).uses["p0"])


def test_blocks_of_a_split_parameter() -> None:
    def attention(x: Tensor, w: Tensor) -> Tensor:
        q, k, v = w.chunk(3)
        return F.linear(x, q) * F.linear(x, k) + F.linear(x, v) + F.linear(torch.tanh(x), q)

    uses = graph(attention, (12, 4)).uses["p0"]
    assert len(uses) == 4
    assert len({u.block for u in uses}) == 3
    assert {u.shape for u in uses} == {(4, 4)}
    assert summable(uses)
    twice = graph(lambda x, w: F.linear(x, w.chunk(2)[0]) + F.linear(x, w.split(4)[1]), (8, 4)).uses["p0"]
    assert not summable(twice)  # two cuts may overlap


def test_slices_and_rows() -> None:
    one = graph(lambda x, w: F.linear(x, w[1:5]), (6, 4)).uses["p0"]
    assert [u.shape for u in one] == [(4, 4)]
    assert summable(one)
    assert not summable(graph(lambda x, w: F.linear(x, w[:4]) + F.linear(x, w[2:]), (6, 4)).uses["p0"])
    row = graph(lambda x, w: x * w[2], (6, 4))
    assert names(row) == [("MulBackward0", 1, ("SelectBackward0",))]


def test_which_output_of_an_operation_is_used() -> None:
    """The second part of a split is the operand, not the first."""
    g = graph(lambda x, w: x * w.split(1)[1], (2, 4))
    assert [(c[0], c[1]) for c in g.uses["p0"][0].chain] == [("SplitBackward0", 1)]
    assert len(g.uses["p0"]) == 1


def test_a_parameter_that_is_not_used_is_not_there() -> None:
    g = graph(lambda x, w, unused: x @ w, W, W)
    assert set(g.uses) == {"p0"}
    empty = Graph(torch.randn(3, 4), {"p0": torch.randn(4, requires_grad=True)})
    assert empty.nodes == []
    assert empty.uses == {}
    assert empty.signature == ()


def test_a_parameter_that_is_the_output_has_no_use_with_a_rule() -> None:
    assert graph(lambda x, w: w.view(3, 4), (12,)).uses["p0"] == ()


def test_a_function_that_keeps_a_variable_is_no_leaf() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx: nn.Module, x: Tensor, w: Tensor) -> Tensor:
            ctx.variable = w
            return x * w

        @staticmethod
        def backward(ctx: nn.Module, g: Tensor) -> tuple[Tensor, None]:
            return g, None

    g = graph(lambda x, w: Scale.apply(x, w) + 1, (4,))
    assert names(g) == [("ScaleBackward", 1, ())]


def test_forward_order() -> None:
    g = graph(lambda x, a, b, c: F.linear(torch.tanh(F.linear(x, b) * c), a), W, W, (4,))
    assert sorted(("p0", "p1", "p2"), key=g.order) == ["p1", "p2", "p0"]
    again = graph(lambda x, a, b: F.linear(F.linear(F.linear(x, b), a), b), W, W)
    assert again.order("p1") < again.order("p0")


def test_every_node_stands_after_what_it_depends_on() -> None:
    g = graph(lambda x, a, b: (h := torch.tanh(x @ a), h * (h @ b) + h)[1], W, W)
    place = {node: i for i, node in enumerate(g.nodes)}
    assert all(place[c] < i for i, n in enumerate(g.nodes) for c, _ in n.next_functions if c is not None)
    assert len(place) == len(g.nodes)


def test_signature_is_the_same_for_the_same_operations_at_any_size() -> None:
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(x @ w).mean(1, keepdim=True) * x

    assert graph(forward, W, n=3).signature == graph(forward, W, n=7).signature
    assert hash(graph(forward, W).signature) == hash(graph(forward, W).signature)


@pytest.mark.parametrize(
    "other",
    [
        lambda x, w: torch.tanh(x @ w).mean(1, keepdim=True) * x,
        lambda x, w: torch.relu(x @ w).mean(0, keepdim=True) * x,
        lambda x, w: torch.relu(x @ w).mean(1, keepdim=True) * x + x,
        lambda x, w: torch.relu(x @ w.t()).mean(1, keepdim=True) * x,
    ],
    ids=["operation", "dimension", "more", "transposed"],
)
def test_signature_tells_passes_apart(other: Callable[..., Tensor]) -> None:
    plain = graph(lambda x, w: torch.relu(x @ w).mean(1, keepdim=True) * x, W)
    assert plain.signature != graph(other, W).signature


def test_signature_knows_which_parameter_is_where() -> None:
    one = graph(lambda x, a, b: torch.relu(x @ a) @ b, W, W)
    assert one.signature != graph(lambda x, a, b: torch.relu(x @ b) @ a, W, W).signature


def test_lowest_of_some_nodes() -> None:
    g = graph(lambda x, a, b, c: torch.tanh(torch.tanh(x @ a) @ b) + x * c, W, W, (4,))
    node = {p: g.uses[p][0].node for p in ("p0", "p1", "p2")}
    assert g.lowest(list(node.values())) == sorted([node["p0"], node["p2"]])
    assert g.lowest([node["p1"]]) == [node["p1"]]


def test_a_use_says_what_it_is() -> None:
    use = Use("w", 3, 1, (("TBackward0", 0, 2),), (4, 4), False)
    assert use.block == (("TBackward0", 0),)


@pytest.mark.parametrize("n", [1, 3])
def test_a_token_is_used_where_it_is_expanded_to_the_batch(n: int) -> None:
    parameter, x = torch.randn(1, 1, 4, requires_grad=True), torch.randn(n, 2, 4, requires_grad=True)
    logits = torch.cat([parameter.expand(n, -1, -1), x], 1).tanh().sum(1)
    g = Graph(logits, {"token": parameter}, (x,), tracked=True)
    assert names(g, "token") == [("ExpandBackward0", 0, ())] and not g.uses["token"][0].through
