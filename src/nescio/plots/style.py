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
    """Return a figure with one pair of axes, open at the top and right.

    Args:
        width: The width in inches.
        height: The height in inches.

    Returns:
        The figure and its axes.

    Examples:
        >>> figure, ax = axes(4.0, 3.0)
        >>> figure.axes == [ax]
        True
    """
    figure, (ax,) = panels(width, height)
    return figure, ax


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **grid: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with a grid of axes, open at the top and right.

    Args:
        width: The width in inches.
        height: The height in inches.
        rows: The number of rows.
        columns: The number of columns.
        grid: What else goes to matplotlib's `Figure.subplots`.

    Returns:
        The figure, and its axes row by row.

    Examples:
        >>> len(panels(6.0, 3.0, rows=2, columns=3)[1])
        6
    """
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
    """Put a legend over the axes, where it hides nothing.

    Args:
        ax: The axes.
    """
    ax.legend(frameon=False, labelcolor=INK, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=2)


def percents(axis: Any, decimals: int | None = None) -> None:
    """Write the ticks of an axis, which are shares, as percent.

    Args:
        axis: The axis.
        decimals: The digits after the point; None decides by the range.
    """
    axis.set_major_formatter(need("matplotlib.ticker", "demo").PercentFormatter(1.0, decimals, " %"))
