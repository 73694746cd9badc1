"""A small chart as SVG, in the page's own colours: points of some series, joined by lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from nescio.report.html import escape

Points = Sequence[tuple[float, float, str]]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 320, 64, 48, 16, 16
DASHES = ("", "6 4", "2 3", "8 3 2 3")


def chart(series: Mapping[str, Points], x_label: str, y_label: str, log: bool = False) -> str:
    """Points (x, y, label) of each series; with log=True the x axis is logarithmic. Empty where there is no point."""
    places = {name: [(_axis(x, log), y, label) for x, y, label in points] for name, points in series.items() if points}
    if not places:
        return ""
    xs = [x for points in places.values() for x, _, _ in points]
    ys = [y for points in places.values() for _, y, _ in points]
    x_ends, y_ends = _ends(xs), _ends(ys)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_ends[0]) / (x_ends[1] - x_ends[0])
        up = (y - y_ends[0]) / (y_ends[1] - y_ends[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP)

    own: list[float] = []  # ticks where the points are, if there are few of them and they do not touch
    for x in sorted(set(xs)):
        if not own or x - own[-1] > 0.06 * (x_ends[1] - x_ends[0]):
            own.append(x)
    ticks = own if log and len(own) <= 8 else [x_ends[0] + step / 4 * (x_ends[1] - x_ends[0]) for step in range(5)]
    parts = [_grid(ticks, y_ends, at, log)]
    for number, (name, points) in enumerate(places.items()):
        spots = [at(x, y) for x, y, _ in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        dash = f' stroke-dasharray="{DASHES[number % len(DASHES)]}"' if number % len(DASHES) else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="var(--accent)" stroke-width="2"{dash}/>')
        for (x, y), (_, value, label) in zip(spots, sorted(points), strict=True):
            hint = escape(f"{name}: {label}, {value:.4g}")
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="var(--accent)"><title>{hint}</title></circle>'
            )
        x, y = spots[-1]
        parts.append(
            f'<text x="{x - 6:.1f}" y="{y + (16 if number % 2 else -8):.1f}" text-anchor="end">{escape(name)}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="{LEFT}" y="{TOP - 4}">{escape(y_label)}</text>')
    alt = escape(f"{y_label} by {x_label}: {', '.join(places)}")
    return (
        f'<div class="plot"><div><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}" '
        f'font-size="12" fill="currentColor">{"".join(parts)}</svg></div></div>'
    )


def _grid(
    ticks: Sequence[float], y_ends: tuple[float, float], at: Callable[[float, float], tuple[float, float]], log: bool
) -> str:
    parts = []
    for step in range(5):
        y = y_ends[0] + step / 4 * (y_ends[1] - y_ends[0])
        left, height = float(LEFT), at(ticks[0], y)[1]
        parts.append(
            f'<line x1="{left}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="var(--line)"/>'
        )
        parts.append(f'<text x="{left - 6}" y="{height + 4:.1f}" text-anchor="end">{y:.4g}</text>')
    for x in ticks:
        across, bottom = at(x, y_ends[0])
        shown = 2**x if log else x
        parts.append(f'<text x="{across:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{shown:.3g}</text>')
    return "".join(parts)


def _axis(x: float, log: bool) -> float:
    return math.log2(x) if log else x


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    return low - room, high + room
