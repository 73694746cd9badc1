"""Scores along directions that lead away from the data: one panel a score, one line a direction."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from nescio.evaluate.metric_inputs import Floats
from nescio.plots.style import ACCENT, COLOURS, panels
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


def limits(
    distances: ArrayLike,
    scores: Mapping[str, Mapping[str, ArrayLike]],
    certain: Collection[str] = (),
    *,
    xlabel: str = "distance from the data (spreads)",
    width: float = 9.0,
    height: float = 2.7,
) -> Figure:
    """Draw scores along directions that lead away from the data, one panel for each score.

    Directions along which the model is certain in the end are solid and blue, the others dashed and orange. The axis is
    linear up to a distance of 1 and logarithmic from there.

    Args:
        distances: The distances ``[D]``, rising.
        scores: The values ``[D]`` by score and direction.
        certain: The directions along which the model is certain in the end.
        xlabel: What the distances are.
        width: The width in inches of three panels.
        height: The height in inches of a row of panels.

    Returns:
        The figure.

    Raises:
        InputError: If distances do not rise, or values are not finite or not one for each distance.

    Examples:
        >>> figure = limits([0, 1, 2], {"entropy": {"x1 +": [0.7, 0.2, 0.0]}}, certain=["x1 +"])
        >>> figure.axes[0].get_title()
        'entropy'
    """
    x = np.asarray(distances, dtype=np.float64).ravel()
    if x.size < 2 or not np.isfinite(x).all() or not (np.diff(x) > 0).all() or x[0] < 0:
        raise InputError("distances: expected at least two finite numbers of at least 0 in rising order")
    lines = _lines(scores, x.size)
    columns = min(COLUMNS, len(lines))
    rows = math.ceil(len(lines) / columns)
    figure, every = panels(width * columns / COLUMNS, height * rows, rows, columns, sharex=True)
    for ax, (name, by_direction) in zip(every, lines.items(), strict=False):
        for direction, values in by_direction.items():
            sure = direction in certain
            ax.plot(
                x, values, color=ACCENT if sure else COLOURS[1], linestyle="-" if sure else "--",
                linewidth=1.2, alpha=max(0.25, min(0.8, 8 / len(by_direction))),
            )  # fmt: skip
        ax.set_xscale("symlog", linthresh=1.0)
        ax.set_xlim(x[0], x[-1])
        ax.set_title(name, fontsize="medium")
    for ax in every[len(lines) :]:
        ax.set_visible(False)
    for ax in every[max(0, len(lines) - columns) : len(lines)]:
        ax.set_xlabel(xlabel, fontsize="small")
        ax.tick_params(labelbottom=True)
    return figure


def _lines(scores: Mapping[str, Mapping[str, ArrayLike]], size: int) -> dict[str, dict[str, Floats]]:
    """The values by score and direction as arrays, checked."""
    if not scores or not all(scores.values()):
        raise InputError("scores: expected at least one score, and at least one direction for each")
    lines: dict[str, dict[str, Floats]] = {}
    for name, by_direction in scores.items():
        lines[name] = {direction: np.asarray(own, dtype=np.float64) for direction, own in by_direction.items()}
        for direction, values in lines[name].items():
            if values.shape != (size,) or not np.isfinite(values).all():
                raise InputError(
                    f"scores: expected {size} finite values of {name!r} along {direction!r}, one a distance"
                )
    return lines
