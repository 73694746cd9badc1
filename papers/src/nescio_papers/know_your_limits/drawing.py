"""Pictures over the plane of a classifier's inputs, and numbers far away from it.

`surfaces` has a panel for each model (row) and measure (column), with one colour scale for a column, so that rows can
be compared. `regions` has polygons, each in the colour of its linear map: the hue is the direction in which the logits
differ most, pale where they differ little. `numbers` is a table in colours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio._common.arrays import Values
from nescio._common.lazy_imports import need
from nescio.evaluate.metric_inputs import Floats
from nescio.plots.style import COLOURS, INK, panels
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOUBT, SLOPE = "Purples", "YlGn"  # light: little, dark: much
POINTS = (COLOURS[1], COLOURS[0])  # of the two classes
Limits = tuple[float, float]
Panels = Mapping[str, Mapping[str, Values | str | None]]


def surfaces(
    rows: Panels,
    xlim: Limits,
    ylim: Limits,
    limits: Mapping[str, Limits],
    *,
    points: Values | None = None,
    classes: Values | None = None,
    log: bool = False,
    colours: str = DOUBT,
    side: float = 1.7,
) -> Figure:
    """Values [n, n] by row and column, ``values[i, j]`` at (x_j, y_i), over the window xlim × ylim.

    In the place of values a word may stand, which is written there; None leaves the place empty. limits: lowest and
    highest colour of each column. points [N, 2] with their classes 0 and 1 are drawn on top. log=True takes the
    logarithm of what is shown: limits are above 0 then.
    """
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    if not names:
        raise InputError("rows: expected at least one row with one panel, but got none")
    if missing := [name for name in names if name not in limits]:
        raise InputError(f"limits: expected two numbers for each column, but {', '.join(missing)} has none")
    tall = side * (ylim[1] - ylim[0]) / (xlim[1] - xlim[0])
    left, top, gap, bottom = 0.3, 0.25, 0.06, 0.42
    width, height = left + len(names) * (side + gap), top + len(rows) * (tall + gap) + bottom
    # one pair of axes, in inches, for all panels: many are slow to draw
    figure, (ax,) = panels(width, height)
    figure.set_layout_engine("none")
    figure.suppressComposite = True
    figure.set_dpi(110)
    ax.set_position((0, 0, 1, 1))
    dots: list[tuple[Floats, Any]] = []
    words: Any = {"ha": "center", "va": "center", "fontsize": 8, "color": INK}
    for row, (label, own) in enumerate(rows.items()):
        y = height - top - row * (tall + gap) - tall
        ax.text(left / 2, y + tall / 2, label, rotation=90, **words)
        for column, name in enumerate(names):
            x, shown = left + column * (side + gap), own.get(name)
            if isinstance(shown, str):
                ax.text(x + side / 2, y + tall / 2, shown, **words)
            elif shown is not None:
                place = (x, x + side, y, y + tall)
                norm = _norm(limits[name], log)
                ax.imshow(_plane(shown), origin="lower", extent=place, norm=norm, cmap=colours, interpolation="none")
                if points is not None:
                    there = (_plane(points) - (xlim[0], ylim[0])) * side / (xlim[1] - xlim[0]) + (x, y)
                    dots.append((there, classes))
    if dots:
        every = np.concatenate([there for there, _ in dots])
        kind = None if classes is None else np.concatenate([np.asarray(classes, dtype=int)] * len(dots))
        _scatter(ax, every, kind, 1.2)
    for column, name in enumerate(names):
        x = left + column * (side + gap)
        ax.text(x + side / 2, height - top / 2, name, **words)
        strip = (x + 0.2 * side, x + 0.8 * side, 0.24, 0.33)
        ax.imshow(np.linspace(0, 1, 64)[None], extent=strip, vmin=0, vmax=1, cmap=colours, interpolation="none")
        for value, at in zip(limits[name], strip[:2], strict=True):
            ax.text(at, 0.12, f"{value:.3g}", **{**words, "fontsize": 7})
    ax.set(xlim=(0, width), ylim=(0, height), aspect="auto")
    ax.set_axis_off()
    return figure


def _norm(limits: Limits, log: bool) -> Any:
    norms = need("matplotlib.colors", "demo")
    return norms.LogNorm(*limits, clip=True) if log else norms.Normalize(*limits)


def _plane(values: Any) -> Floats:
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)
    if array.ndim != 2 or not np.isfinite(array).all():
        raise InputError(f"expected finite numbers in two dimensions, but got shape {list(array.shape)}")
    return array


@dataclass(frozen=True)
class Regions:
    """What one panel of `regions` shows.

    polygons: corners [K, 2] of each region; slopes [R, 2]: the gradient of the difference of two logits in it.
    boundary: pieces [2, 2] of the line where the classes are equally likely. rays: each a path [B, 2] whose first point
    is its start, whose last is its end in the window, and all between are breakpoints.
    """

    polygons: Sequence[Floats]
    slopes: Floats
    boundary: Sequence[Floats] = ()
    rays: Sequence[Floats] = ()
    points: Floats | None = None
    classes: Any = None
    title: str = ""


def hues(slopes: Values) -> Floats:
    """Colours [R, 3] of linear maps: the hue is the direction of the slope [R, 2], pale where it is small."""
    s = _plane(slopes)
    angle = (np.arctan2(s[:, 1], s[:, 0]) / (2 * math.pi)) % 1.0
    size = np.linalg.norm(s, axis=1)
    typical = float(np.median(size[size > 0])) if (size > 0).any() else 1.0
    strength = 0.75 * size / (size + typical)
    cyclic = need("matplotlib", "demo").colormaps["hsv"](angle)[:, :3]
    found: Floats = 1 - strength[:, None] * (1 - cyclic)
    return found


def regions(
    rows: Sequence[Sequence[Regions]], windows: Sequence[tuple[Limits, Limits]], *, side: float = 2.6, dpi: int = 130
) -> Figure:
    """Rows of panels; `windows` has the part of the plane for each column."""
    columns = len(windows)
    if not rows or any(len(row) != columns for row in rows):
        raise InputError(f"rows: expected rows of {columns} panels, one for each window")
    (x, y) = windows[0]
    tall = side * (y[1] - y[0]) / (x[1] - x[0]) + 0.3
    figure, every = panels(0.2 + side * columns, 0.1 + tall * len(rows), len(rows), columns)
    figure.set_dpi(dpi)
    collections = need("matplotlib.collections", "demo")
    for number, ax in enumerate(every):
        shown = rows[number // columns][number % columns]
        xlim, ylim = windows[number % columns]
        ax.set(xticks=[], yticks=[], xlim=xlim, ylim=ylim, aspect="equal")
        ax.spines[:].set_visible(False)
        thin = 0.35 if len(shown.polygons) < 600 else 0.15
        ax.add_collection(
            collections.PolyCollection(
                list(shown.polygons),
                facecolors=hues(shown.slopes),
                edgecolors="#20242c80",
                linewidths=thin,
                rasterized=True,
            )
        )
        if shown.points is not None:
            _scatter(ax, shown.points, shown.classes)
        for path in shown.rays:
            ax.plot(path[:, 0], path[:, 1], color="black", linewidth=0.8, rasterized=True)
            ax.scatter(
                path[1:-1, 0], path[1:-1, 1], 5, color="white", edgecolor="black", linewidth=0.5, zorder=4,
                rasterized=True,
            )  # fmt: skip
        ax.add_collection(collections.LineCollection(list(shown.boundary), colors="black", linewidths=1.6))
        ax.set_title(shown.title, fontsize="small", color=INK)
    return figure


def _scatter(ax: Axes, points: Floats, classes: Any, area: float = 1.5) -> None:
    kind = np.zeros(len(points), dtype=int) if classes is None else np.asarray(classes, dtype=int)
    for one, colour in enumerate(POINTS):
        own = points[kind == one]
        ax.scatter(own[:, 0], own[:, 1], area, color=colour, linewidth=0, alpha=0.8, rasterized=True)


def numbers(
    values: Values,
    rows: Sequence[str],
    columns: Sequence[str],
    highest: Sequence[float],
    *,
    digits: int = 2,
    colours: str = DOUBT,
) -> Figure:
    """A table [R, C] of numbers, each on its colour between 0 and the highest of its column; NaN leaves it empty."""
    table = np.asarray(values, dtype=np.float64)
    if table.shape != (len(rows), len(columns)) or len(highest) != len(columns):
        raise InputError(f"values: expected shape [{len(rows)}, {len(columns)}], but got {list(table.shape)}")
    figure, (ax,) = panels(2.2 + 0.62 * len(columns), 0.9 + 0.3 * len(rows))
    share = np.clip(table / np.asarray(highest, dtype=np.float64), 0, 1)
    ax.imshow(share, cmap=colours, vmin=0, vmax=1.25, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            dark = share[row, column] > 0.6
            colour = "white" if dark else "black"
            ax.text(column, row, f"{value:.{digits}f}", ha="center", va="center", fontsize=8, color=colour)
    ax.set_xticks(range(len(columns)), columns, fontsize=8)
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.spines[:].set_visible(False)
    return figure
