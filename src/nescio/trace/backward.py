"""Pulling cotangents back to operations' outputs: data gradients only, all cotangents at once.

`pull` asks autograd for the gradients at given *edges* of the graph (the outputs of operations) and for nothing else, so no weight gradient is
computed and the backward pass stops at the earliest operation that was asked for. Several cotangents go through one backward pass under `vmap`,
which folds them into the batch of every operation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, vmap does not tell which operations it has to loop over."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        yield


def pull(logits: Tensor, wanted: Sequence[Any], vectors: Tensor) -> list[Tensor | None]:
    """Gradients [K, *shape] of ``Σ vectors·logits`` at each wanted tensor or edge for cotangents ``vectors`` [K, B, C]; None: no path."""
    if not wanted:
        return []
    vectors = vectors.to(logits.dtype)
    if len(vectors) == 1:
        found = torch.autograd.grad(logits, list(wanted), vectors[0], retain_graph=True, allow_unused=True)
        return [None if g is None else g.unsqueeze(0) for g in found]
    reached: list[int] = []

    def backward(v: Tensor) -> tuple[Tensor, ...]:
        found = torch.autograd.grad(logits, list(wanted), v, retain_graph=True, allow_unused=True)
        reached[:] = [i for i, g in enumerate(found) if g is not None]
        return tuple(found[i] for i in reached)

    try:
        with quiet():
            got = torch.func.vmap(backward)(vectors)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, NotImplementedError):  # an operation that vmap does not know: one cotangent at a time
        return _stack([pull(logits, wanted, v.unsqueeze(0)) for v in vectors])
    result: list[Tensor | None] = [None] * len(wanted)
    for i, g in zip(reached, got, strict=True):
        result[i] = g
    return result


def _stack(rows: list[list[Tensor | None]]) -> list[Tensor | None]:
    """[K] lists of [1, ..] gradients → one list of [K, ..]; a gradient that some cotangents lack is zero there."""
    columns = []
    for column in zip(*rows, strict=True):
        like = next((g for g in column if g is not None), None)
        columns.append(
            None if like is None else torch.cat([torch.zeros_like(like) if g is None else g for g in column])
        )
    return columns
