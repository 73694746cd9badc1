"""Activations that two operations take, as at a residual connection: two gradients arrive there.

Autograd adds them up, and the product with the derivative reads the sum once more. Here an activation gives its value
under two edges of the graph. Convolutions and additions that take it go to these in turn, so that the activation gets
both gradients and one pass adds and multiplies. What else takes it goes to the first edge, and autograd adds that up
there: each gradient arrives once, whoever takes which.

So what arrives at an activation's first output is not all of its gradient: this is for passes in which nobody asks for
gradients at activations. A model that does so in its own forward pass is noted (`Forks.asked`), and the pass counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

SUMS = {torch.add, torch.Tensor.add, torch.Tensor.__add__}
SUMS_IN_PLACE = {torch.Tensor.add_, torch.Tensor.__iadd__}
ASKING = {torch.autograd.grad, torch.Tensor.backward}


class Forks:
    """The activations of a forward pass that still have an edge to give."""

    def __init__(self) -> None:
        self._ways: dict[int, tuple[Tensor, Any, Tensor]] = {}
        self._taken: set[int] = set()
        self.asked = False
        """Whether the model took gradients in the pass."""

    def keep(self, y: Tensor, other: Tensor) -> Tensor:
        """The value y of an activation, whose ``other`` edge is kept for who takes it after the first."""
        self._ways[id(y)] = y, y.grad_fn, other
        return y

    def turned(self, func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands of a convolution or an addition, those that were taken before by their other edge."""
        if func in SUMS:
            return tuple(self._turn(t) for t in args)
        if func in SUMS_IN_PLACE:  # the first is written to
            return (*args[:1], *(self._turn(t) for t in args[1:]))
        return (*(self._turn(t) for t in args[:1]), *args[1:])

    def _turn(self, t: Any) -> Any:
        if id(t) not in self._ways:
            return t
        y, node, other = self._ways[id(t)]
        if id(t) not in self._taken:
            self._taken.add(id(t))
            return t
        del self._ways[id(t)]
        self._taken.discard(id(t))
        hooked = bool(y._backward_hooks) or y.retains_grad
        return t if hooked or y.grad_fn is not node else other  # hooks are for all of the gradient
