"""Histograms of one score for several groups of inputs, over common bins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nescio.plots.style import COLOURS, INK, STYLES, axes
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPAN = 30
"""A score whose largest value is this many times its smallest is shown on a logarithmic axis."""


def histogram(
    groups: Mapping[str, ArrayLike],
    xlabel: str = "score",
    *,
    log: bool | None = None,
    bins: int = 36,
    width: float = 7.2,
    height: float = 3.4,
) -> Figure:
    """Draw how many inputs of each group have which score.

    Args:
        groups: The scores of each group by its name.
        xlabel: What the score is.
        log: Whether the axis of the scores is logarithmic; None decides by how far they span.
        bins: The number of bins, which all groups share.
        width: The width in inches.
        height: The height in inches.

    Returns:
        The figure.

    Raises:
        InputError: If a group is empty or has infinite scores, or for log=True scores of 0 or less.

    Examples:
        >>> figure = nescio.plots.histogram({"known": [0.1, 0.2], "foreign": [0.8]}, "entropy")
        >>> figure.axes[0].get_xlabel()
        'entropy'
    """
    values = {name: np.asarray(scores, dtype=np.float64).ravel() for name, scores in groups.items()}
    if not values or any(not scores.size for scores in values.values()):
        raise InputError("groups: expected at least one group, and at least one score in each")
    if any(not np.isfinite(scores).all() for scores in values.values()):
        raise InputError("groups: expected finite scores, but some are infinite or NaN")
    every = np.concatenate(list(values.values()))
    if log is None:
        log = bool(every.min() > 0 and every.max() > SPAN * every.min())
    if log and every.min() <= 0:
        raise InputError(f"log: expected scores above 0 for a logarithmic axis, but the smallest is {every.min():g}")
    edges = _edges(every.min(), every.max(), bins, log)

    figure, ax = axes(width, height)
    for place, (name, scores) in enumerate(values.items()):
        colour, style = COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)]
        label = f"{name} ({scores.size})"
        ax.hist(scores, edges, histtype="stepfilled", color=colour, alpha=0.28)
        ax.hist(scores, edges, histtype="step", color=colour, linewidth=1.8, linestyle=style, label=label)
    if log:
        ax.set_xscale("log")
    ax.set_xlabel(xlabel)
    ax.set_ylabel("inputs")
    ax.legend(frameon=False, labelcolor=INK)
    return figure


def _edges(low: float, high: float, bins: int, log: bool) -> list[float]:
    if low == high:  # one value: a bin around it
        return [low / 2, low * 2] if log else [low - 0.5, high + 0.5]
    edges: list[float] = (np.geomspace if log else np.linspace)(low, high, bins + 1).tolist()
    return edges
