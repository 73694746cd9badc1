"""ROC curves: the share of foreign inputs caught against the share of known inputs flagged by mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nescio.evaluate import ROC
from nescio.plots.style import ACCENT, COLOURS, FAINT, INK, STYLES, axes
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def roc(curves: Mapping[str, ROC], highlight: str | None = None, size: float = 4.0) -> Figure:
    """Draw the share of foreign inputs caught against the share of known inputs flagged by mistake.

    Args:
        curves: What `nescio.evaluate.roc` gives, by name.
        highlight: The curve that is drawn strongly, with the others as a faint background. None draws all alike, with
            a legend, and line styles repeat the difference that the colours make.
        size: The side of the figure in inches.

    Returns:
        The figure.

    Raises:
        InputError: If there is no curve, or none of the name `highlight`.

    Examples:
        >>> curve = nescio.evaluate.roc([0.1, 0.2], [0.3, 0.9])
        >>> nescio.plots.roc({"entropy": curve}, highlight="entropy").axes[0].get_title()
        'entropy'
    """
    if not curves:
        raise InputError("curves: expected at least one ROC curve, but got none")
    if highlight is not None and highlight not in curves:
        raise InputError(f"highlight: expected one of {', '.join(curves)}, but got {highlight!r}")
    figure, ax = axes(size, size)
    ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=":")
    for place, (name, curve) in enumerate(curves.items()):
        x, y = _corners(curve)
        if highlight is None:
            colour, style = COLOURS[place % len(COLOURS)], STYLES[place // len(COLOURS) % len(STYLES)]
            ax.plot(x, y, color=colour, linestyle=style, linewidth=1.6, label=name)
        else:
            front = name == highlight
            ax.plot(x, y, color=ACCENT if front else FAINT, linewidth=2.4 if front else 0.7, zorder=3 if front else 2)
    ax.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")
    ax.set_xlabel("known inputs flagged")
    ax.set_ylabel("foreign inputs caught")
    if highlight is None:
        ax.legend(frameon=False, labelcolor=INK, loc="lower right", fontsize="small")
    else:
        ax.set_title(highlight)
    return figure


def _corners(curve: ROC) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The points where the curve turns; those between, on straight pieces, would only make the file larger."""
    x, y = curve.false_positive_rate, curve.true_positive_rate
    dx, dy = np.diff(x), np.diff(y)
    turns = np.abs(dx[:-1] * dy[1:] - dx[1:] * dy[:-1]) > 1e-12
    keep = np.concatenate([[True], turns, [True]])
    return x[keep], y[keep]
