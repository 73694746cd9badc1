"""Handwritten digits, 8×8, from the copy that scikit-learn carries: 1797 pictures by 13 writers.

Each picture was a 32×32 bitmap; every 4×4 block became the count of its ink pixels, 0 to 16. Here a pixel is that
count / 16, so pictures are float32 ``[N, 1, 8, 8]`` in [0, 1] with ink = 1. The split is drawn at random over
pictures: a writer's hand appears in all three parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio._common.argument_checks import integer, probability
from nescio._common.lazy_imports import need
from nescio.data.pictures import to_float

ABOUT = "handwritten digits, 8×8 pixels (the copy of the UCI set that scikit-learn carries), never shown in training"


@dataclass(frozen=True)
class Split:
    """Hold pictures and their labels.

    Attributes:
        x: Pictures ``[N, 1, 8, 8]``.
        y: Labels ``[N]``.

    Examples:
        >>> nescio.data.Split(torch.zeros(2, 1, 8, 8), torch.tensor([3, 5])).y
        tensor([3, 5])
    """

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Digits:
    """Hold three parts of a set that do not overlap.

    Attributes:
        train: The part to fit a model.
        validation: The part to choose between its epochs.
        held_out: The part to test it.

    Examples:
        >>> part = nescio.data.Split(torch.zeros(2, 1, 8, 8), torch.tensor([3, 5]))
        >>> len(nescio.data.Digits(train=part, validation=part, held_out=part).train.x)
        2
    """

    train: Split
    validation: Split
    held_out: Split


def digits(held_out: int = 300, validation: float = 0.1, seed: int = 0) -> Digits:
    """Return the handwritten digits in a seeded random split.

    Args:
        held_out: How many pictures are held out, to test with.
        validation: The share of the rest to choose between epochs by.
        seed: The seed of the split.

    Returns:
        Three parts without overlap.

    Examples:
        >>> split = nescio.data.digits(held_out=100)
        >>> split.held_out.x.shape
        torch.Size([100, 1, 8, 8])
    """
    bunch = need("sklearn.datasets", "demo").load_digits()
    x = torch.from_numpy(bunch.images).float().div(16).unsqueeze(1)
    y = torch.from_numpy(bunch.target).long()
    total = len(x)
    integer("held_out", held_out, at_least=1, at_most=total - 2, hint=f"there are {total} pictures")
    probability("validation", validation)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    chosen = min(max(1, round(validation * (total - held_out))), total - held_out - 1)
    parts = torch.split(order, [held_out, chosen, total - held_out - chosen])
    test, tune, fit = (Split(x[part], y[part]) for part in parts)
    return Digits(train=fit, validation=tune, held_out=test)


def byte_digits() -> Digits:
    """Return the default split of `digits` with pixels rounded to the 256 values of a picture file, as k / 255.

    Returns:
        Three parts without overlap.

    Examples:
        >>> x = nescio.data.byte_digits().held_out.x
        >>> torch.equal(x, x.mul(255).round().div(255))
        True
    """
    split = digits()
    parts = (split.train, split.validation, split.held_out)
    return Digits(*(Split(to_float(part.x.mul(255).round().to(torch.uint8)), part.y) for part in parts))
