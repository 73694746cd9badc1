"""Colours and the empty figure that every plot starts from.

The colours are those of Okabe and Ito, which people with any kind of colour vision can tell apart; all of them
stand out on white and on black.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nescio.types import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, ACCENT = "#20242c", "#b4bac4", "#0072b2"  # text and axes; what stands back; what the plot is about
COLOURS = (ACCENT, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLES = ("-", "--", ":", "-.")


def axes(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of this size in inches with one pair of axes, open at the top and right."""
    figure: Figure = need("matplotlib.figure", "demo").Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    figure.patch.set_facecolor("white")
    ax.patch.set_alpha(0)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        ax.spines[side].set_color(INK)
    ax.tick_params(colors=INK, which="both", labelcolor=INK)
    for label in (ax.xaxis.label, ax.yaxis.label, ax.title):
        label.set_color(INK)
    return figure, ax
