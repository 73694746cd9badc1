"""What each direction of an audit changes, and where it leaves the range of the data.

For an input x and a direction d the feature i leaves the range [low_i, high_i] of the data behind the multiple

    α_i = (high_i − x_i) / d_i  where d_i > 0,   (low_i − x_i) / d_i  where d_i < 0,   ∞ where d_i = 0

so a check of ranges refuses x + α d behind the smallest of them. Features of a table have a range each. The numbers of
pictures and other arrays share one, since there no single number means anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio.limits.directions import deviations, feature_names

SHOWN = 4
"""Features that are named of each direction."""
EVERY = "every value"
"""What the one range of an array is called."""
Ranges = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Move:
    """Hold what a direction changes, and where it leaves the range of the data.

    Attributes:
        changes: The features that change most, each in its own deviations: "age ↑", "pay ↓", and "height ↕" where that
            depends on the start.
        others: How many other features change.
        leaves: The multiple of the spread behind which some feature is outside of the range, from every start.
        first: The feature that is outside first, from most starts.
        picture: For pictures ``[channels, H, W]`` the direction from the first start, in deviations.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> table = nescio.limits.audit(model, torch.rand(5, 2), "features", names=["age", "pay"], progress=False)
        >>> table.moves["age +"].changes
        ('age ↑',)
    """

    changes: tuple[str, ...]
    others: int
    leaves: float
    first: str
    picture: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)


def changes_by_direction(
    data: Tensor, starts: Tensor, ways: Mapping[str, Tensor], names: Sequence[str] | None
) -> dict[str, Move]:
    """Return what each direction ``[K, ...]`` changes; data and starts are float64 ``[N, ...]``."""
    deviation, called = deviations(data.flatten(1)), feature_names(data, names)
    low, high = _bounds(data)
    return {way: _move(starts, d, deviation, low, high, called) for way, d in ways.items()}


def ranges(data: Tensor, names: Sequence[str] | None) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest value of each feature; of pictures and other arrays, of all their numbers."""
    if data.ndim > 2:
        return {EVERY: (float(data.min()), float(data.max()))}
    low, high = data.amin(0).tolist(), data.amax(0).tolist()
    return dict(zip(feature_names(data, names), zip(low, high, strict=True), strict=True))


def _bounds(data: Tensor) -> tuple[Tensor, Tensor]:
    if data.ndim > 2:
        return data.min(), data.max()
    return data.amin(0), data.amax(0)


def _move(starts: Tensor, d: Tensor, deviation: Tensor, low: Tensor, high: Tensor, names: Sequence[str]) -> Move:
    x, flat = starts.flatten(1), d.flatten(1)
    end = torch.where(flat > 0, high - x, low - x) / torch.where(flat == 0, 1.0, flat)
    end = end.abs()  # data lie within their own range, so this only turns −0 into 0
    leaves, first = torch.where(flat == 0, math.inf, end).min(1)
    steps = flat / deviation
    size = steps.square().mean(0).sqrt()
    order = size.argsort(descending=True, stable=True)[: min(SHOWN, int((size > 0).sum()))].tolist()
    changes = tuple(f"{names[at]} {_arrow(steps[:, at])}" for at in order)
    return Move(
        changes=changes,
        others=int((size > 0).sum()) - len(changes),
        leaves=float(leaves.max()),
        first=names[Counter(first.tolist()).most_common(1)[0][0]],
        picture=steps[0].view(d.shape[1:]).numpy() if d.ndim == 4 else None,
    )


def _arrow(steps: Tensor) -> str:
    if bool((steps >= 0).all()):
        return "↑"
    return "↓" if bool((steps <= 0).all()) else "↕"


def outward(low: float, high: float) -> tuple[float, float]:
    """Return a range in six digits that holds the given one.

    Args:
        low: The lowest value.
        high: The highest value.

    Returns:
        The range.

    Examples:
        >>> outward(0.12345678, 9.87654321)
        (0.123456, 9.87655)
    """
    down, up = Context(prec=6, rounding=ROUND_FLOOR), Context(prec=6, rounding=ROUND_CEILING)
    return float(down.create_decimal_from_float(low)), float(up.create_decimal_from_float(high))
