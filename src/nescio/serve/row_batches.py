"""Batches from rows that came by themselves: rows of one shape, filled up to a fixed number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs

Shape = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
"""The name, shape and type of each tensor of a row."""


def stacked(rows: Sequence[Inputs], count: int) -> Inputs:
    """Join rows of one shape to a batch, filled up to `count` with copies of the last."""
    full = [*rows, *([rows[-1]] * (count - len(rows)))]
    first = full[0]
    if isinstance(first, Tensor):
        return torch.stack([row for row in full if isinstance(row, Tensor)])
    return {name: torch.stack([row[name] for row in full if isinstance(row, Mapping)]) for name in first}


def shape_of(row: Inputs) -> Shape:
    """Return what rows must have in common to go into one batch."""
    names = [""] if isinstance(row, Tensor) else list(row)
    return tuple((name, tuple(t.shape), t.dtype) for name, t in zip(names, inputs.tensors(row), strict=True))
