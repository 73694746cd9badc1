"""Rules: how an operation turns its saved input and the gradient at its output into the gradient of an operand.

A rule is a pure function ``(context, delta) -> Form | None`` registered for the autograd name of an operation and the
slot of the operand. ``delta`` is [K, *output shape]. None means that this particular call is not covered, and the
general path is taken. ``batch`` names the dimensions of the output in which the batch may lie.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nescio.models.batch_axis import Layout
from nescio.trace.norms import Form


@dataclass(frozen=True)
class Context:
    """One use of a parameter by an operation, as a rule sees it."""

    node: Any
    """The autograd node, which holds what the operation saved."""
    shape: tuple[int, ...]
    """Shape of the operand."""
    layout: Layout
    """Where the batch is in the operation's output."""
    shared: dict[str, Any] = field(default_factory=dict)
    """What the rules of one operation's several operands share for one output gradient."""

    def saved(self, name: str) -> Any:
        """What the operation saved under this name; half precision comes as float32."""
        value = getattr(self.node, f"_saved_{name}")
        return full(value) if isinstance(value, torch.Tensor) else value


Rule = Callable[[Context, Tensor], Form | None]
Batch = Callable[[Any, int], Sequence[int]]


@dataclass(frozen=True)
class Entry:
    """A registered rule and the dimensions in which its output may have the batch.

    ``exact``: its form is the operand's gradient entry by entry, and not only up to their order.
    """

    rule: Rule
    batch: Batch
    exact: bool


_REGISTRY: dict[tuple[str, int], Entry] = {}


def first(node: Any, dims: int) -> Sequence[int]:
    """The batch is dimension 0."""
    return (0,)


def any_dim(node: Any, dims: int) -> Sequence[int]:
    """The batch may be any dimension."""
    return range(dims)


def rule(*operands: tuple[str, int], batch: Batch = first, exact: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for (operation, slot) pairs."""

    def add(function: Rule) -> Rule:
        for operand in operands:
            _REGISTRY[operand] = Entry(function, batch, exact)
        return function

    return add


def find(operation: str, slot: int) -> Entry | None:
    """The rule for an operand of an operation, or None."""
    return _REGISTRY.get((operation, slot))


def full(t: Tensor) -> Tensor:
    """The tensor in at least single precision: sums of squares overflow and lose digits in less."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def operand(t: Tensor) -> Tensor:
    """The tensor for a matrix product: bfloat16 on a GPU stays as it is, for `norms` adds products up in float32."""
    return t if t.is_cuda and t.dtype == torch.bfloat16 else full(t)


def added(t: Tensor, dims: tuple[int, ...] | int) -> Tensor:
    """The sum over some dimensions in at least single precision, without a copy of the tensor in it."""
    return t.sum(dims, dtype=torch.float32) if t.dtype in (torch.float16, torch.bfloat16) else t.sum(dims)


def of_each_input(c: Context, t: Tensor) -> Tensor:
    """[K, N·m, ..] → [K, N, ..]: what belongs to one input is added up."""
    rows = c.layout.front(t, 1)
    return rows.squeeze(2) if rows.shape[2] == 1 else rows.sum(2)  # a sum of one is a copy, in a kernel of its own


from nescio.trace.rules import convolution, elementwise, embedding, matmul, normalisation  # noqa: E402, F401 (they register themselves)
