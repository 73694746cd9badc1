"""Which inputs of the reference fit the witnesses, and which give the ranks.

The place of an input follows from its content alone (a hash), so a guard does not depend on the order of its reference.
Equal inputs count once: an input that stands on both sides would rank itself as known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio.inputs import Inputs

FEW = 400  # inputs below which all give ranks, each against a fit to the others
FOLDS = 5


class Fold(NamedTuple):
    """Positions int64 of the inputs that fit, and of those that give ranks."""

    fit: Tensor
    rank: Tensor


def digests(x: Inputs, seed: int) -> list[bytes]:
    """A hash of each input of the batch, which `seed` changes; padding, where attention_mask is 0, does not."""
    seed = integer("seed", seed, at_least=-(2**63), at_most=2**63 - 1)
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


def belonging(order: Tensor, count: int, groups: Sequence[Hashable] | None) -> Tensor:
    """Who belongs together: for each of `count` inputs the number of its group, int64, −1 for those not in `order`.

    Groups are numbered as their first inputs come in `order`. Without groups each input is one of its own.
    """
    found = torch.full((count,), -1, dtype=torch.long)
    numbers: dict[Hashable, int] = {}
    for position in order.tolist():
        found[position] = numbers.setdefault(position if groups is None else groups[position], len(numbers))
    return found


def folds(order: Tensor, belongs: Tensor) -> list[Fold]:
    """The positions of distinct inputs, cut: a large reference in two halves, a small one in folds that take turns.

    Inputs of one group stay together.
    """
    own = belongs[order]
    groups = int(own.max()) + 1
    if groups >= FEW:
        return [Fold(order[own < groups // 2], order[own >= groups // 2])]
    return in_turns(order, own)


def in_turns(order: Tensor, belongs: Tensor, count: int = FOLDS) -> list[Fold]:
    """Folds of which each gives ranks once, while the others fit; belongs: the number of each one's group."""
    part = belongs % min(count, int(belongs.max()) + 1)
    return [Fold(order[part != k], order[part == k]) for k in range(int(part.max()) + 1)]


def _column(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(1) if tensor.ndim == 1 else tensor
