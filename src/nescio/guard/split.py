"""Which inputs of the reference fit the witnesses, and which give the ranks.

The content of an input alone (its hash) decides where it goes, so a guard does not depend on the order of its
reference. Equal inputs count once: an input on both sides would rank itself as known.
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
    """Return a hash of each input. It depends on `seed`, and not on padding, where attention_mask is 0."""
    seed = integer("seed", seed, at_least=-(2**63), at_most=2**63 - 1)
    rows = [tensor.detach().cpu().contiguous() for tensor in inputs.tensors(inputs.apply(x, _column))]
    mask = x.get("attention_mask") if isinstance(x, Mapping) else None
    real = None if mask is None else mask.detach().cpu() != 0
    key = seed.to_bytes(8, "little", signed=True)
    hashes = []
    for index in range(inputs.size(x)):
        digest = hashlib.blake2b(key=key, digest_size=16)
        for row in rows:
            own = row[index]
            if real is not None and row.shape[: real.ndim] == real.shape:
                own = own[real[index]]
            digest.update(own.flatten().view(torch.uint8).numpy().data)
        hashes.append(digest.digest())
    return hashes


def distinct(hashes: Sequence[bytes]) -> Tensor:
    """Return the position of the first input with each hash, in the order of the hashes, int64."""
    first: dict[bytes, int] = {}
    for position, one in enumerate(hashes):
        first.setdefault(one, position)
    return torch.tensor([first[one] for one in sorted(first)], dtype=torch.long)


def group_numbers(order: Tensor, count: int, groups: Sequence[Hashable] | None) -> Tensor:
    """Return the number of each input's group, int64 ``[count]``, −1 for inputs that are not in `order`.

    Groups are numbered in the order of their first inputs in `order`. Without groups each input is a group of its own.
    """
    group_of = torch.full((count,), -1, dtype=torch.long)
    numbers: dict[Hashable, int] = {}
    for position in order.tolist():
        group_of[position] = numbers.setdefault(position if groups is None else groups[position], len(numbers))
    return group_of


def folds(order: Tensor, group_of: Tensor) -> list[Fold]:
    """Cut the positions of distinct inputs: a large reference into two halves, a small one into folds that take turns.

    Inputs of one group stay together.
    """
    groups = group_of[order]
    count = int(groups.max()) + 1
    if count >= FEW:
        return [Fold(order[groups < count // 2], order[groups >= count // 2])]
    return in_turns(order, groups)


def in_turns(order: Tensor, groups: Tensor, count: int = FOLDS) -> list[Fold]:
    """Return folds, each of which gives ranks once while the others fit; groups: the number of each one's group."""
    part = groups % min(count, int(groups.max()) + 1)
    return [Fold(order[part != k], order[part == k]) for k in range(int(part.max()) + 1)]


def _column(tensor: Tensor) -> Tensor:
    """Numbers ``[N]`` as ``[N, 1]``: a row of bytes for each input."""
    return tensor.unsqueeze(1) if tensor.ndim == 1 else tensor
