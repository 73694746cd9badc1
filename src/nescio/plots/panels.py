"""Several pairs of axes in one figure, each dressed as `style.axes` dresses one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nescio.plots.style import INK
from nescio.types import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **grid: Any) -> tuple[Figure, list[Axes]]:
    """A figure of this size in inches and its axes, row by row; `grid` goes to matplotlib's `Figure.subplots`."""
    figure: Figure = need("matplotlib.figure", "demo").Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_facecolor("white")
    every: list[Axes] = list(figure.subplots(rows, columns, squeeze=False, **grid).ravel())
    for ax in every:
        ax.patch.set_alpha(0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["bottom", "left"]].set_color(INK)
        ax.tick_params(colors=INK, which="both", labelcolor=INK)
        for label in (ax.xaxis.label, ax.yaxis.label, ax.title):
            label.set_color(INK)
    return figure, every


def legend_above(ax: Axes) -> None:
    """A legend over the axes, where it hides nothing."""
    ax.legend(frameon=False, labelcolor=INK, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def percents(axis: Any, decimals: int | None = None) -> None:
    """Write the ticks of an axis, which are shares, as percent."""
    axis.set_major_formatter(need("matplotlib.ticker", "demo").PercentFormatter(1.0, decimals, " %"))
