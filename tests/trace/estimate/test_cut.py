"""Which entries are computed: layers of little weight are cut, and of many classes as much as is paid for."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from nescio.trace.estimate.cut import AUTO_ROWS, DEALT_ROWS, LIKELIEST, Cut, Level, plan_cut
from tests.trace.estimate.helpers import DECAY


def test_nothing_is_cut_unless_asked() -> None:
    assert plan_cut(10, [1.0] * 40, "exact", 0.3, 0.0) is None
    assert plan_cut(10, [1.0] * 40, "exact", 0.0, 0.02) is None
    assert plan_cut(10, [1.0] * 4, "exact", 0.3, 0.02) is None
    assert plan_cut(40, [1.0] * 40, "auto", 0.0, 0.0) is None
    assert plan_cut(10, [1.0] * 40, 10, 0.0, 0.0) is None


@given(layers=st.integers(2, 300), decay=st.floats(0.01, 2.0), tolerance=st.floats(1e-6, 0.5))
def test_layers_that_are_cut_have_little_weight(layers: int, decay: float, tolerance: float) -> None:
    cut = plan_cut(10, [1.0] * layers, "exact", decay, tolerance)
    if cut is None:
        return
    weights = [math.exp(decay * (i - layers)) for i in range(layers)]
    assert 0 <= cut.floor <= cut.top < layers
    assert sum(weights[: cut.top]) <= 2 * tolerance * sum(weights) * (1 + 1e-9)
    assert sum(weights[: cut.floor]) <= 1e-4 * tolerance * sum(weights) * (1 + 1e-9)


def test_layers_are_estimated_where_it_saves_work() -> None:
    """Of 40 layers 11 count, so 10 classes cost 3 rows, and 3 rows go further down; of 3 classes that is all."""
    assert plan_cut(10, [1.0] * 40, "exact", DECAY, 0.02) is not None
    assert plan_cut(3, [1.0] * 40, "exact", DECAY, 0.02) is None
    assert plan_cut(3, [1.0] * 40, "exact", DECAY, 0.02, part=0.25) is not None  # on a pair of eight copies


@given(classes=st.integers(4, 2000), budget=st.integers(3, 500), layers=st.integers(1, 60))
def test_many_classes_cost_what_is_paid_for(classes: int, budget: int, layers: int) -> None:
    costs = [float(1 + i % 7) for i in range(layers)]
    cut = plan_cut(classes, costs, budget, 0.0, 0.0)
    if budget >= classes:
        assert cut is None
        return
    assert cut is not None and cut.floor == 0 and cut.drawn
    assert all(level.heavy >= 1 and level.drawn >= 2 and level.rows < classes for level in cut.levels)
    floors, rows = [level.floor for level in cut.levels], [level.rows for level in cut.levels]
    assert sorted({cut.top, *floors}, reverse=True) == [cut.top, *floors] or cut.top == 0
    assert rows == sorted(rows, reverse=True) and len(rows) == len(set(rows))

    def price(first: int) -> float:
        return sum(costs[first:]) / sum(costs)

    last = price(cut.top) * classes
    assert cut.top >= layers - 2 or last <= budget / 2
    if cut.top < layers - 2 and rows[-1] > 3:
        assert last + sum(level.rows * price(level.floor) for level in cut.levels) <= budget + 2


def test_of_many_layers_rows_come_in_two_levels() -> None:
    levels = Level(87, 25, 51), Level(0, 6, 13)  # 20 + 76 · 12/99 + 19 = 48
    assert plan_cut(1000, [1.0] * 99, 48, 0.0, 0.0) == Cut(97, levels, 0.0)
    assert plan_cut(1000, [1.0] * 99, 48, DECAY, 0.02) == Cut(97, levels, DECAY)  # none is left out


@given(classes=st.integers(200, 2000), layers=st.integers(20, 150), tolerance=st.sampled_from([0.0, 0.02]))
def test_below_a_head_the_work_is_that_of_so_many_rows_to_the_floor(
    classes: int, layers: int, tolerance: float
) -> None:
    costs = [float(1 + i % 7) for i in range(layers)]
    cut = plan_cut(classes, costs, "auto", DECAY, tolerance, head=1)
    assert cut is not None and cut.closed and cut.top == layers - 1

    def price(first: int) -> float:
        return sum(costs[first:]) / sum(costs)

    work = sum(level.rows * price(level.floor) for level in cut.levels) / price(cut.floor)
    assert AUTO_ROWS - 1.5 <= work <= AUTO_ROWS + 1.5
    assert all(level.heavy == max(1, level.rows // LIKELIEST) for level in cut.levels)


@given(classes=st.integers(200, 2000), layers=st.integers(20, 150), groups=st.sampled_from([2, 4]))
def test_rows_are_as_many_for_each_group_of_copies(classes: int, layers: int, groups: int) -> None:
    cut = plan_cut(classes, [1.0] * layers, "auto", DECAY, 0.02, head=1, groups=groups)
    assert cut is not None and cut.closed and cut.groups == groups
    assert all(level.rows % groups == 0 and level.drawn > 1 for level in cut.levels)
    assert cut.levels[0].heavy >= groups  # the likeliest class in each of them
    paid = plan_cut(classes, [1.0] * layers, DEALT_ROWS, DECAY, 0.02, head=1)
    assert paid is not None
    for dealt, level in zip(cut.levels, paid.levels, strict=True):
        assert level.floor == dealt.floor and level.rows <= dealt.rows < level.rows + 2 * groups
