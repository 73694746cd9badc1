"""Reliability diagrams: how often the answers of one confidence are right, and how many there are of it.

On the diagonal a confidence of 80 % is right in 80 % of the cases; below it the model is too sure, above too timid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio.evaluate import Reliability
from nescio.plots.style import ACCENT, COLOURS, FAINT, INK, STYLES, legend_above, panels
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = COLOURS[1]
MARKERS = ("o", "s", "^", "D", "v", "P")


def reliability(results: Reliability | Mapping[str, Reliability], size: float = 4.4) -> Figure:
    """Draw how often the answers of each confidence are right, and how many there are.

    One result has a bar for each bin, up to the accuracy, and the gap to the mean confidence is hatched. Several have
    a point (confidence, accuracy) for each bin, and the gap between the two is shaded. A bin of few inputs, whose
    accuracy is mostly luck, has a small point and a pale gap.

    Args:
        results: What `nescio.evaluate.reliability` gives, or several by name, such as ``{"before": …, "after": …}``.
        size: The width in inches.

    Returns:
        The figure, whose axes are the diagram and the counts below it.

    Raises:
        InputError: If results are something else, or none.

    Examples:
        >>> result = nescio.evaluate.reliability(np.array([[0.9, 0.1], [0.4, 0.6]]), [0, 0])
        >>> [ax.get_ylabel() for ax in nescio.plots.reliability(result).axes]
        ['accuracy', 'inputs']
    """
    single = isinstance(results, Reliability)
    named = {"": results} if isinstance(results, Reliability) else dict(results)
    if not named or not all(isinstance(result, Reliability) for result in named.values()):
        raise InputError(
            "results: expected what nescio.evaluate.reliability gives, or some of those by name, but got "
            + (", ".join(type(result).__name__ for result in named.values()) or "none")
        )
    figure, (diagram, counts) = panels(size, 1.3 * size, rows=2, sharex=True, height_ratios=[3, 1])
    diagram.plot([0, 1], [0, 1], color=INK, linewidth=0.9, linestyle=":", label="perfect", zorder=4)
    if single:
        _bars(diagram, counts, named[""])
    else:
        for place, (name, result) in enumerate(named.items()):
            _line(diagram, counts, result, name, place)
    diagram.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), yticks=[0, 0.5, 1], xticks=[0, 0.5, 1], ylabel="accuracy")
    legend_above(diagram)
    counts.set(xlabel="confidence", ylabel="inputs")
    counts.locator_params(axis="y", integer=True, nbins=3)
    return figure


def _bars(diagram: Axes, counts: Axes, result: Reliability) -> None:
    full = result.count > 0
    left, width = result.lower[full], (result.upper - result.lower)[full]
    accuracy, gap = result.accuracy[full], result.gap[full]
    style: dict[str, Any] = {"align": "edge", "linewidth": 0.6, "edgecolor": "white"}
    diagram.bar(left, accuracy, width, color=ACCENT, alpha=0.35, label="accuracy", **style)
    diagram.bar(
        left, gap, width, bottom=accuracy, align="edge", facecolor=(*_rgb(GAP), 0.25), edgecolor=GAP, linewidth=0.8,
        hatch="////", label=f"gap to the confidence, ECE {100 * result.ece:.1f} %", zorder=3,
    )  # fmt: skip
    counts.bar(left, result.count[full], width, color=FAINT, **style)


def _line(diagram: Axes, counts: Axes, result: Reliability, name: str, place: int) -> None:
    colour, style = COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)]
    full = result.count > 0
    x, y, count = result.confidence[full], result.accuracy[full], result.count[full]
    label = f"{name}, ECE {100 * result.ece:.1f} %"
    weight = np.sqrt(count / count.max())
    shades = [(*_rgb(colour), 0.05 + 0.3 * w) for w in weight]
    diagram.bar(result.lower[full], y - x, (result.upper - result.lower)[full], bottom=x, align="edge", color=shades)
    diagram.plot(x, y, color=colour, linewidth=1.0, linestyle=style, alpha=0.6, zorder=5)
    area = 6 + 64 * weight
    look: dict[str, Any] = {"color": colour, "marker": MARKERS[place % len(MARKERS)], "edgecolor": "white"}
    diagram.scatter(x, y, area, linewidth=0.6, label=label, zorder=6, clip_on=False, **look)
    edges = np.append(result.lower, 1.0)
    counts.stairs(result.count, edges, fill=True, color=colour, alpha=0.13)
    counts.stairs(result.count, edges, color=colour, linewidth=1.4, linestyle=style)


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue
