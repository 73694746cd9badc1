"""Which entries of the table of classes × layers are computed.

The squared norms ``n²[c, l]`` of one input are a table of classes × layers. Computed are the columns of the last
layers, from ``top`` on, for every class, which cost little, and some rows further down, to ``floor``: those of the
classes with the largest weight ``√p_c n²[c, top:]``. Where there are more classes than are paid for, rows are those of
the likeliest and of others, drawn in proportion to their weight. They come in levels then, many down to where a row has
cost an eighth, fewer through all layers; their number does not grow with that of the classes.
The rest is completed (`completion`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

AUTO = 40
"""Classes whose work ``classes="auto"`` does; up to as many are all computed."""
HEAVY = 3
"""Classes whose rows go down to the floor where every class has the columns that count."""
LEFT_OUT = 1e-4
"""Layers below the floor have this part of the tolerance of all weight: their squares may be so much larger."""

WORTH = 0.75
"""Layers are estimated where that takes no more than this part of the work on all of them."""
NEAR = 8
"""Rows of the first of two levels end where they have cost this part of what those to the floor do."""


@dataclass(frozen=True)
class Level:
    """Rows that are computed from layer ``floor`` on: ``heavy`` classes, and ``drawn`` ones of the others."""

    floor: int
    heavy: int
    drawn: int

    @property
    def rows(self) -> int:
        """All of them."""
        return self.heavy + self.drawn


@dataclass(frozen=True)
class Cut:
    """Every class from layer ``top`` on, and rows that go deeper, from level to level fewer.

    ``decay`` is that of the layers' weights.
    """

    top: int
    levels: tuple[Level, ...]
    decay: float

    @property
    def floor(self) -> int:
        """The first layer that is not left out."""
        return self.levels[-1].floor

    @property
    def drawn(self) -> bool:
        """Whether there are so many classes that rows stand for others."""
        return self.levels[-1].drawn > 0


def plan_cut(
    classes: int, costs: Sequence[float], budget: int | str, decay: float, tolerance: float, part: float = 1.0
) -> Cut | None:
    """The cut for a model.

    Args:
        classes: how many there are.
        costs: of each layer (`probe.costs`).
        budget: how many classes' work may be done, "auto" or "exact".
        decay: that of the layers' weights.
        tolerance: the share of the weighted sum that an estimate may be off.
        part: how many of an input's copies take part in the rows that go deeper, as a share.

    Returns:
        The cut; None: all is computed.
    """
    layers = len(costs)
    rows = budget if isinstance(budget, int) else {"exact": classes, "auto": AUTO}[budget]
    share = [sum(costs[i:]) / sum(costs) for i in range(layers)]  # of a row through all layers
    if rows < classes:  # up to half of them for the last layers of every class, the rest for rows that go deeper
        top = next((i for i in range(layers) if share[i] * classes <= rows / 2), layers)
        top = max(0, min(top, layers - 2))  # the last layer alone tells nothing of the gradient that goes below it
        left = max(rows / 2, rows - share[top] * classes)
        near = next(i for i in range(layers) if share[i] * NEAR <= 1 or i == top)
        if near == top or left < 2 * NEAR:
            return Cut(top, (_level(0, left),), decay)
        return Cut(top, (_level(near, left / 3 / share[near]), _level(0, left / 1.5)), decay)
    top = min(_below(layers, decay, 2 * tolerance), layers - 1)
    if top <= 1:
        return None
    floor, heavy = _below(layers, decay, LEFT_OUT * tolerance), min(HEAVY, classes)
    paid = share[top] * classes + part * share[floor] * heavy
    return Cut(top, (Level(floor, heavy, 0),), decay) if paid <= WORTH * classes else None


def _level(floor: int, rows: float) -> Level:
    count = max(3, round(rows))
    return Level(floor, count // 3, count - count // 3)


def _below(layers: int, decay: float, share: float) -> int:
    """How many of the first layers have no more than this share of all weight ``exp(decay·l)`` together."""
    if decay <= 0 or share <= 0:
        return 0
    least = math.exp(-decay * layers)
    return max(0, layers - math.ceil(-math.log(min(1.0, share * (1 - least) + least)) / decay))
