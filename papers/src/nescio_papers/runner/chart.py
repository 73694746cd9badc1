"""A small chart as SVG, in the page's own colours: points of some series, joined by lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nescio._common.formatting import number
from nescio.report.render import render_macro

Points = Sequence[tuple[float, float, str]]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 320, 64, 48, 16, 16
DASHES = ("", "6 4", "2 3", "8 3 2 3")
TICKS = 8
"""Ticks stand where the points are, where there are no more than these."""


@dataclass(frozen=True)
class Point:
    """A point of the chart, in pixels, and what it stands for."""

    x: float
    y: float
    label: str


@dataclass(frozen=True)
class Series:
    """Points joined by a line."""

    name: str
    points: Sequence[Point]
    dashes: str


@dataclass(frozen=True)
class Chart:
    """What is on a chart: grid lines and ticks as (place in pixels, value), and the series."""

    alt: str
    x_label: str
    y_label: str
    rows: Sequence[tuple[float, str]]
    columns: Sequence[tuple[float, str]]
    series: Sequence[Series]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def chart(series: Mapping[str, Points], x_label: str, y_label: str, log: bool = False) -> str:
    """Return a chart as SVG.

    Args:
        series: Points (x, y, label) of each series.
        x_label: What x is.
        y_label: What y is.
        log: Whether the x axis is logarithmic.

    Returns:
        The SVG; empty where there is no point.
    """
    content = chart_content(series, x_label, y_label, log)
    return "" if content is None else render_macro("chart.html.j2", "chart", content, package=__package__ or "")


def chart_content(series: Mapping[str, Points], x_label: str, y_label: str, log: bool = False) -> Chart | None:
    """Return what is on a chart; None where there is no point. The arguments are those of `chart`."""
    values = {name: [(_axis(x, log), y, label) for x, y, label in points] for name, points in series.items() if points}
    if not values:
        return None
    xs = [x for points in values.values() for x, _, _ in points]
    x_ends, y_ends = _ends(xs), _ends([y for points in values.values() for _, y, _ in points])
    across = _scale(x_ends, LEFT, WIDTH - RIGHT)
    upward = _scale(y_ends, HEIGHT - BOTTOM, TOP)
    steps = [step / 4 for step in range(5)]
    ticks = _apart(sorted(set(xs)), 0.06 * (x_ends[1] - x_ends[0]))
    if not log or len(ticks) > TICKS:
        ticks = [x_ends[0] + step * (x_ends[1] - x_ends[0]) for step in steps]
    levels = [y_ends[0] + step * (y_ends[1] - y_ends[0]) for step in steps]
    drawn = [
        Series(
            name,
            [Point(across(x), upward(y), f"{label}, {y:.4g}") for x, y, label in sorted(points)],
            DASHES[place % len(DASHES)],
        )
        for place, (name, points) in enumerate(values.items())
    ]
    return Chart(
        alt=f"{y_label} by {x_label}: {', '.join(values)}",
        x_label=x_label,
        y_label=y_label,
        rows=[(upward(y), f"{y:.4g}") for y in levels],
        columns=[(across(x), f"{number(2**x if log else x)}") for x in ticks],
        series=drawn,
    )


def _scale(ends: tuple[float, float], first: float, last: float) -> Callable[[float], float]:
    """The way from values to pixels, to a tenth."""
    low, high = ends
    return lambda value: round(first + (value - low) / (high - low) * (last - first), 1)


def _apart(values: Sequence[float], distance: float) -> list[float]:
    """Those of rising values that lie more than a distance behind the one before."""
    kept: list[float] = []
    for value in values:
        if not kept or value - kept[-1] > distance:
            kept.append(value)
    return kept


def _axis(x: float, log: bool) -> float:
    return math.log2(x) if log else x


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    return low - room, high + room
