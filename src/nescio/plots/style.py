"""Colours and the empty figures that every plot starts from.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; all of them
stand out on white and on black.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nescio._common.lazy_imports import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, ACCENT = "#20242c", "#b4bac4", "#0072b2"  # text and axes; what stands back; what the plot is about
COLOURS = (ACCENT, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLES = ("-", "--", ":", "-.")


def axes(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of this size in inches with one pair of axes, open at the top and right."""
    figure, (ax,) = panels(width, height)
    return figure, ax


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
