"""Pulling cotangents back through the graph: data gradients only, many cotangents at once.

`pull` asks autograd for gradients at given tensors or *edges* of the graph and for nothing else, so no weight
gradient is computed and the backward pass stops at the earliest thing that was asked for. `visit` does the same for
the outputs of operations, but hands each gradient to a reader as soon as it is there and then lets it go, so that the
gradients of one layer, not of all, are in memory at a time.

Several cotangents go through one backward pass under `vmap`, which folds them into the batch of every operation.
`folded` takes the folded tensor out of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.utils.checkpoint import CheckpointError

from nescio._common.memory import exhausted
from nescio.trace.runtime.engine_gradients import engine_gradients

Run = Callable[..., tuple[Tensor, ...]]


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, vmap does not tell which operations it has to loop over."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


class NotFolded(RuntimeError):
    """vmap cannot follow an operation of the graph."""


def pull(logits: Tensor, wanted: Sequence[Any], vectors: Tensor, fold: bool = False) -> list[Tensor | None]:
    """Gradients [K, *shape] of ``Σ vectors·logits`` at each wanted tensor or edge for cotangents ``vectors`` [K, B,
    C]; None: no path.

    Where vmap cannot follow, the cotangents are taken one at a time, or `NotFolded` is raised with ``fold``.
    """
    if not wanted:
        return []
    vectors = vectors.to(logits.dtype)
    if len(vectors) == 1:
        found = engine_gradients([logits], wanted, [vectors[0]], retain=True)
        return [None if g is None else g.unsqueeze(0) for g in found]
    reached: list[int] = []

    def backward(v: Tensor) -> tuple[Tensor, ...]:
        found = engine_gradients([logits], wanted, [v], retain=True)
        reached[:] = [i for i, g in enumerate(found) if g is not None]
        return tuple(g for g in found if g is not None)

    try:
        with quiet():
            folded_gradients = torch.func.vmap(backward)(vectors)
    except (RuntimeError, NotImplementedError, KeyError) as error:  # KeyError: an operation unknown to vmap
        if exhausted(error) or isinstance(error, CheckpointError):
            raise
        if fold:
            raise NotFolded(str(error)) from error
        return pull_each(logits, wanted, vectors)
    result: list[Tensor | None] = [None] * len(wanted)
    for i, g in zip(reached, folded_gradients, strict=True):
        result[i] = g
    return result


def pull_each(logits: Tensor, wanted: Sequence[Any], vectors: Tensor) -> list[Tensor | None]:
    """As `pull`, one cotangent after another."""
    return _stack([pull(logits, wanted, v.unsqueeze(0)) for v in vectors])


class _Folded(torch.autograd.Function):
    """Runs a function on gradients with their cotangents as dimension 0, inside of vmap or not."""

    @staticmethod
    def forward(run: Run, *g: Tensor) -> tuple[Tensor, ...]:
        return tuple(t[0] for t in run(*(each.unsqueeze(0) for each in g)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Nothing to keep."""

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], run: Run, *g: Tensor) -> tuple[tuple[Tensor, ...], Any]:
        out = run(*(in_front(info, dim, each) for dim, each in zip(dims[1:], g, strict=True)))
        return out, (0,) * len(out)


def folded(g: Tensor, run: Run, *more: Tensor) -> tuple[Tensor, ...]:
    """``run(g, *more)`` with the K cotangents that vmap hides in front: it takes and gives tensors [K, ..]."""
    return _Folded.apply(run, g, *more)


class _Handed(torch.autograd.Function):
    """Hands a gradient, with its cotangents as dimension 0, to a reader, inside of vmap or not."""

    @staticmethod
    def forward(g: Tensor, read: Callable[[int, Tensor], None], i: int) -> Tensor:
        read(i, g.unsqueeze(0))
        return g.new_empty(())  # nobody looks at it

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing to keep."""

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, Any, Any], g: Tensor, read: Any, i: int) -> tuple[Tensor, int]:
        read(i, in_front(info, dims[0], g))
        return g.new_empty(info.batch_size), 0


def in_front(info: Any, dim: int | None, g: Tensor) -> Tensor:
    """The gradient with the cotangents that vmap hides as dimension 0."""
    return g.expand(info.batch_size, *g.shape) if dim is None else g.movedim(dim, 0)


def visit(
    logits: Tensor,
    nodes: Mapping[int, Any],
    lowest: Sequence[int],
    vectors: Tensor,
    read: Callable[[int, Tensor], None],
) -> None:
    """Call ``read(i, gradient [K, *shape])`` for the output of each node i that the cotangents [K, B, C] reach.

    ``lowest`` are those nodes below which no other one lies: only they are asked for, the others are met on the way
    to them.
    """
    if not nodes:
        return
    vectors = vectors.to(logits.dtype)
    ends = [GradientEdge(nodes[i], 0) for i in lowest]

    def hand(i: int) -> Callable[[tuple[Tensor | None, ...]], None]:
        def hook(gradients: tuple[Tensor | None, ...]) -> None:
            if gradients[0] is not None:
                _Handed.apply(gradients[0], read, i)

        return hook

    handles = [node.register_prehook(hand(i)) for i, node in nodes.items() if i not in lowest]
    try:
        for i, g in zip(lowest, pull(logits, ends, vectors, fold=True), strict=True):
            if g is not None:
                read(i, g)
    finally:
        for handle in handles:
            handle.remove()
        for node in nodes.values():
            if getattr(node, "ready", None) is not None:  # left by a rule for a backward that did not come
                node.ready = None


def _stack(rows: list[list[Tensor | None]]) -> list[Tensor | None]:
    """[K] lists of [1, ..] gradients → one list of [K, ..]; a gradient that some cotangents lack is zero there."""
    columns = []
    for column in zip(*rows, strict=True):
        like = next((g for g in column if g is not None), None)
        columns.append(
            None if like is None else torch.cat([torch.zeros_like(like) if g is None else g for g in column])
        )
    return columns
