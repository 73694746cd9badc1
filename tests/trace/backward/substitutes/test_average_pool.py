"""Padded average pooling, whose gradient PyTorch gets wrong on a GPU: tensors are made to say that they are there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio import trace
from nescio.trace import reference
from nescio.trace.backward.pull import pull
from nescio.trace.backward.substitutes import average_pool, folding
from nescio.trace.backward.substitutes.average_pool import arguments
from nescio.trace.backward.substitutes.corrected import CorrectedOps
from tests.trace.helpers import ready

CALLS: list[dict[str, Any]] = [
    {"kernel_size": k, "stride": s, "padding": p, "ceil_mode": c, "count_include_pad": i, "divisor_override": d}
    for (k, p), s, c, i, d in product(
        [(2, 1), (3, 1), ((3, 2), (1, 0)), ([4], [2])], [None, 1, 2, (3, 2)], [False, True], [False, True], [None, 5]
    )
]


@pytest.fixture
def broken() -> Iterator[None]:
    """As if tensors were on a GPU, with a PyTorch that gets it wrong there."""
    with mock.patch.object(torch.Tensor, "is_cuda", True), mock.patch.object(average_pool, "FIXED", False):
        yield


def paddings(y: Tensor) -> list[tuple[int, ...]]:
    """Of all average pooling that autograd will go through."""
    found, todo = [], [y.grad_fn]
    while todo:
        node: Any = todo.pop()
        if node is not None:
            found += [tuple(node._saved_padding)] if node.name() == "AvgPool2DBackward0" else []
            todo += [child for child, _ in node.next_functions]
    return found


@pytest.mark.parametrize("size", [(5, 5), (6, 7), (8, 5)])
def test_values_and_gradients_are_those_without_padding_beforehand(size: tuple[int, int], broken: None) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size, dtype=torch.float64).requires_grad_()
    for call in CALLS:
        wanted = F.avg_pool2d(x, **call)
        with CorrectedOps():
            found = F.avg_pool2d(x, **call)
            inner = torch.ops.aten.avg_pool2d.default(x, *(v if v is not None else [] for v in list(call.values())[:3]))
        assert paddings(found) == paddings(inner) == [(0, 0)], call
        g = torch.randn_like(wanted)
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
        pulled = [torch.autograd.grad(y, x, g)[0] for y in (found, wanted)]
        torch.testing.assert_close(*pulled, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
def test_it_lies_in_memory_as_pytorch_lays_it(order: torch.memory_format, broken: None) -> None:
    x = torch.randn(2, 3, 6, 6).contiguous(memory_format=order)
    wanted = F.avg_pool2d(x, 3, 2, 1)
    with CorrectedOps():
        assert F.avg_pool2d(x, 3, 2, 1).stride() == wanted.stride()


def test_without_padding_and_on_a_cpu_nothing_changes() -> None:
    x = torch.randn(2, 3, 6, 6).requires_grad_()
    with mock.patch.object(average_pool, "FIXED", False), CorrectedOps():
        assert paddings(F.avg_pool2d(x, 3, 2, 1)) == [(1, 1)]
        with mock.patch.object(torch.Tensor, "is_cuda", True):
            y = F.avg_pool2d(x, 3, 2)
    assert y.grad_fn is not None and y.grad_fn.name() == "AvgPool2DBackward0"


def test_many_cotangents_at_once_and_nothing_is_kept_of_the_picture() -> None:
    torch.manual_seed(0)
    for order, call in product([torch.contiguous_format, torch.channels_last], CALLS):
        x = torch.randn(2, 3, 6, 7, dtype=torch.float64).contiguous(memory_format=order).requires_grad_()
        wanted = F.avg_pool2d(x, **call)
        with mock.patch.object(torch.Tensor, "is_cuda", True), folding():
            found = F.avg_pool2d(x, **call)
        node: Any = found.grad_fn
        assert node.name() == "DataAverageBackward" and not node.saved_tensors
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()
        g = torch.randn(4, *wanted.shape, dtype=torch.float64)
        each = [torch.autograd.grad(wanted, x, row, retain_graph=True)[0] for row in g]
        torch.testing.assert_close(pull(found, [x], g)[0], torch.stack(each), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(pull(found, [x], g[:1])[0], each[0][None], rtol=1e-12, atol=1e-12)


def test_a_network_whose_pooling_many_cotangents_go_through() -> None:
    torch.manual_seed(0)
    model, x = ready(Shortcut()), torch.randn(4, 3, 7, 7, dtype=torch.float64)
    wanted = reference.class_gradients(model, x, layers="tensor").norms
    calls = []

    def always(x: Tensor, *geometry: Any) -> Any:
        calls.append(geometry)
        with mock.patch.object(torch.Tensor, "is_cuda", True):
            return arguments(x, *geometry)

    with mock.patch.object(average_pool, "arguments", always):
        found = trace.class_gradients(model, x, layers="tensor").norms
    assert calls
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-10)


class Shortcut(nn.Module):
    """Pooling beside a convolution, as in MaxViT, behind a stem whose gradient goes through both."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, 2, 1)
        self.pool, self.head = nn.AvgPool2d(3, 2, 1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).tanh()
        logits: Tensor = self.head((self.pool(x) + self.conv(x)).tanh().mean((2, 3)))
        return logits


def wrong(grad: Tensor, x: Tensor, *geometry: Any) -> Tensor:
    """PyTorch's kernel for channels that are last takes a position of the picture for one of the padded picture."""
    kernel, stride, padding, *rest = geometry
    right = torch.ops.aten.avg_pool2d_backward(grad, x, kernel, stride, padding, *rest)
    return torch.roll(right, (padding[0], padding[1]), (2, 3)) if any(padding) and last(x) else right


def last(x: Tensor) -> bool:
    return x.stride(1) == 1


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *geometry: Any) -> Tensor:
        ctx.geometry = geometry
        ctx.save_for_backward(x)
        result: Tensor = torch.ops.aten.avg_pool2d(x, *geometry)
        return result

    @staticmethod
    def backward(ctx: Any, *deltas: Tensor) -> tuple[Tensor | None, ...]:
        return wrong(deltas[0], ctx.saved_tensors[0], *ctx.geometry), *[None] * len(ctx.geometry)


def test_norms_are_right_where_pytorch_is_not() -> None:
    """With a pooling that is wrong as it is on a GPU, the engine and the oracle agree with the right one."""
    torch.manual_seed(0)
    model, x = ready(Shortcut()), torch.randn(4, 3, 7, 7, dtype=torch.float64)
    x = x.contiguous(memory_format=torch.channels_last)
    wanted = reference.class_gradients(model, x, layers="tensor").norms

    def pool(x: Tensor, k: Any, s: Any, p: Any, c: bool = False, i: bool = True, d: int | None = None) -> Tensor:
        k, s, p = ([v, v] if isinstance(v, int) else list(v) for v in (k, s, p))
        result: Tensor = Wrong.apply(x, k, s, p, c, i, d)
        return result

    alone = average_pool.averaging(pool)

    def corrected(*args: Any) -> Tensor:
        with mock.patch.object(average_pool, "FIXED", False), mock.patch.object(torch.Tensor, "is_cuda", True):
            result = alone(*args)
        assert result is not None
        return result

    def norms(way: Any, call: Any) -> Tensor:
        with mock.patch.object(F, "avg_pool2d", lambda x, k, s, p, *_: call(x, k, s, p)):
            result: Tensor = way.class_gradients(model, x, layers="tensor").norms
        return result

    assert not torch.allclose(norms(reference, pool), wanted, rtol=1e-3)
    for way in (reference, trace):
        torch.testing.assert_close(norms(way, corrected), wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_every_layer_has_a_rule_on_a_gpu() -> None:
    from nescio.trace.probe import passes

    torch.manual_seed(0)
    model, x = Shortcut().cuda(), torch.randn(4, 3, 16, 16, device="cuda")
    ours = trace.class_gradients(model, x, layers="tensor")
    for plan in passes._PLANS[model].values():
        assert set(plan.fast) == set(ours.layers)
    wanted = reference.class_gradients(model.cpu().double(), x.cpu().double(), layers="tensor").norms
    torch.testing.assert_close(ours.norms.double().cpu(), wanted.double(), rtol=1e-3, atol=1e-5)
