"""Activations under two edges; the kernels' side of it is in `tests/trace/runtime/interpreted.py`."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nescio.trace.backward.substitutes.forks import Forks
from nescio.trace.backward.substitutes.pointwise import Pointwise


def forked(forks: Forks, inplace: bool = False) -> tuple[Tensor, Tensor]:
    """An input and its rectified value, under two edges."""
    x = torch.randn(3, 4, requires_grad=True)
    start = x * 1
    return x, forks.keep(*Pointwise.apply(start, start.detach().relu(), (start.detach() > 0).float(), inplace, True))


def edges(*tensors: Any) -> list[int]:
    """Of each tensor, which output of the activation it is."""
    return [torch.autograd.graph.get_gradient_edge(t).output_nr for t in tensors]


@pytest.mark.parametrize("inplace", [False, True])
def test_who_comes_second_takes_the_other_edge(inplace: bool) -> None:
    forks = Forks()
    x, y = forked(forks, inplace)
    (first, _), (second, third) = forks.turned(F.conv2d, (y, y)), forks.turned(torch.add, (y, y))
    assert edges(first, second, third) == [0, 1, 0]
    assert second.data_ptr() == y.data_ptr()
    vectors = torch.randn(5, 3, 4)

    def back(v: Tensor) -> Tensor:
        return torch.autograd.grad(2 * first + 3 * second + 5 * third, x, v, retain_graph=True)[0]

    wanted = 10 * vectors * (x > 0)
    torch.testing.assert_close(torch.vmap(back)(vectors), wanted)
    torch.testing.assert_close(torch.stack([back(v) for v in vectors]), wanted)
    torch.testing.assert_close(torch.autograd.grad(second, x, vectors[0])[0], vectors[0] * (x > 0))


def test_what_is_written_to_stays_itself() -> None:
    forks = Forks()
    _, y = forked(forks)
    assert forks.turned(torch.add, (y, 1)) == (y, 1)
    assert forks.turned(torch.Tensor.add_, (y, 2))[0] is y
    assert edges(forks.turned(torch.Tensor.add_, (torch.ones(1), y))[1]) == [1]


def test_an_activation_that_was_written_into_has_no_other_edge() -> None:
    forks = Forks()
    _, y = forked(forks)
    forks.turned(torch.add, (y, 1))
    y += 1
    assert forks.turned(torch.add, (y, 1))[0] is y


@pytest.mark.parametrize("watch", [lambda y: y.register_hook(lambda g: g), lambda y: y.retain_grad()])
def test_a_hook_sees_all_of_the_gradient(watch: Any) -> None:
    forks = Forks()
    _, y = forked(forks)
    forks.turned(torch.add, (y, 1))
    watch(y)
    assert forks.turned(torch.add, (y, 1))[0] is y


def test_nothing_is_kept_when_the_pass_is_over() -> None:
    forks = Forks()
    _, y = forked(forks)
    gone = weakref.ref(y.grad_fn)
    forks.turned(torch.add, (y, y))
    gc.disable()
    del forks, y
    gc.enable()
    assert gone() is None
