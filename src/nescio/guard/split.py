"""Which inputs of the reference fit the witnesses, and which give the ranks.

The place of an input follows from its content alone (a hash), so a guard does not depend on the order of its reference.
Equal inputs count once: an input that stands on both sides would rank itself as known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.types import InputError

FEW = 400  # inputs below which all give ranks, each against a fit to the others
FOLDS = 5


class Fold(NamedTuple):
    """Positions int64 of the inputs that fit, and of those that give ranks."""

    fit: Tensor
    rank: Tensor


def digests(x: Inputs, seed: int) -> list[bytes]:
    """A hash of each input of the batch, which `seed` changes; padding, where attention_mask is 0, does not."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**63:
        raise InputError(f"expected seed to be a whole number of 64 bits, got {seed!r}")
    rows = [tensor.detach().cpu().contiguous() for tensor in inputs.tensors(inputs.apply(x, _column))]
    mask = x.get("attention_mask") if isinstance(x, Mapping) else None
    real = None if mask is None else mask.detach().cpu() != 0
    key = seed.to_bytes(8, "little", signed=True)
    found = []
    for index in range(inputs.size(x)):
        total = hashlib.blake2b(key=key, digest_size=16)
        for row in rows:
            own = row[index]
            if real is not None and row.shape[: real.ndim] == real.shape:
                own = own[real[index]]
            total.update(own.flatten().view(torch.uint8).numpy().tobytes())
        found.append(total.digest())
    return found


def distinct(found: Sequence[bytes]) -> Tensor:
    """The positions of the first input of each content, in the order of their hashes."""
    first: dict[bytes, int] = {}
    for position, one in enumerate(found):
        first.setdefault(one, position)
    return torch.tensor([first[one] for one in sorted(first)], dtype=torch.long)


def folds(order: Tensor) -> list[Fold]:
    """The positions of distinct inputs, cut: a large reference in two halves, a small one in folds that take turns."""
    if len(order) >= FEW:
        half = len(order) // 2
        return [Fold(order[:half], order[half:])]
    return in_turns(order)


def in_turns(order: Tensor, count: int = FOLDS) -> list[Fold]:
    """Folds of which each gives ranks once, while the others fit."""
    count = min(count, len(order))
    part = torch.arange(len(order)) % count
    return [Fold(order[part != k], order[part == k]) for k in range(count)]


def _column(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(1) if tensor.ndim == 1 else tensor
