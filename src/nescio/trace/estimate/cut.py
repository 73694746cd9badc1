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
AUTO_ROWS = 12
"""Rows that it pays for where the head needs none (`probe.linear_head`)."""
HEAVY = 3
"""Classes whose rows go down to the floor where every class has the columns that count."""
GROUPS = 4
"""Groups of an input's pairs of copies that rows below a head in closed form are dealt to, where they come out even."""
DEALT_ROWS = 24
"""Rows that ``classes="auto"`` pays for there."""
LIKELIEST = 6
"""Below a head in closed form one row in so many is of the likeliest classes; elsewhere one in three."""
LEFT_OUT = 1e-4
"""Layers below the floor have this part of the tolerance of all weight: their squares may be so much larger."""

WORTH = 0.75
"""Layers are estimated where that takes no more than this part of the work on all of them."""
NEAR = 8
"""Rows of the first of two levels end where they have cost this part of what those to the floor do."""
NEAR_HEAD = 5
"""The same below a head in closed form."""
NEAR_WORK = 1 / 3, 0.65
"""Rows of the first level do the share of the work there that their layers have of all weight, within these two."""


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
    closed: bool = False
    """Whether the layers from ``top`` on are the head, whose norms need no backward pass (`probe.linear_head`)."""

    groups: int = 1
    """Rows are dealt to so many groups of an input's copies, each to one. On the first level the likeliest class has
    one in every group; all of these count as heavy. One row more is of all groups together (`completion`).
    """

    @property
    def floor(self) -> int:
        """The first layer that is not left out."""
        return self.levels[-1].floor

    @property
    def drawn(self) -> bool:
        """Whether there are so many classes that rows stand for others."""
        return self.levels[-1].drawn > 0


def plan_cut(
    classes: int,
    costs: Sequence[float],
    budget: int | str,
    decay: float,
    tolerance: float,
    part: float = 1.0,
    head: int = 0,
    groups: int = 1,
) -> Cut | None:
    """Choose the entries to compute.

    Args:
        classes: of the model.
        costs: how much work each layer is.
        budget: how many classes' work may be done, "auto" or "exact".
        decay: of the layers' weights.
        tolerance: the relative error that leaving entries out may make; 0: none.
        part: the share of an input's copies that takes part in the rows that go deeper.
        head: how many of the last layers are known in closed form for every class.
        groups: how many groups of an input's copies the rows below such a head are dealt to.

    Returns:
        The cut; None: everything is computed.
    """
    layers = len(costs)
    rows = budget if isinstance(budget, int) else {"exact": classes, "auto": AUTO}[budget]
    share = [sum(costs[i:]) / sum(costs) for i in range(layers)]  # of a row through all layers
    if rows < classes and 0 < head < layers:
        top = layers - head
        floor = min(_below(layers, decay, LEFT_OUT * tolerance), top - 1)
        near = next((i for i in range(floor, top) if share[i] * NEAR_HEAD <= share[floor]), top - 1)
        deep = rows if isinstance(budget, int) else AUTO_ROWS if groups == 1 else DEALT_ROWS
        if near == floor:
            return Cut(top, (_level(floor, deep, LIKELIEST, groups),), decay, True, groups)
        weights = [math.exp(decay * (i - layers)) for i in range(floor, layers)]
        near_work = min(max(sum(weights[near - floor :]) / sum(weights), NEAR_WORK[0]), NEAR_WORK[1])
        first = min(near_work * deep * share[floor] / share[near], classes / 2)
        last = _level(floor, (1 - near_work) * deep, LIKELIEST, groups, first=False)
        return Cut(top, (_level(near, first, LIKELIEST, groups), last), decay, True, groups)
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


def _level(floor: int, rows: float, part: int = 3, groups: int = 1, first: bool = True) -> Level:
    again = groups - 1 if first else 0
    count = max(3, round(rows)) + again
    count += -count % groups
    heavy = max(1, (count - again) // part) + again
    return Level(floor, heavy, count - heavy)


def _below(layers: int, decay: float, share: float) -> int:
    """How many of the first layers have no more than this share of all weight ``exp(decay·l)`` together."""
    if decay <= 0 or share <= 0:
        return 0
    least = math.exp(-decay * layers)
    return max(0, layers - math.ceil(-math.log(min(1.0, share * (1 - least) + least)) / decay))
