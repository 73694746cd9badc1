"""Which kind of doubt: histograms of total, aleatoric and epistemic uncertainty for groups of inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nescio._common.arrays import Values
from nescio.evaluate.metric_inputs import Floats, flags, scores
from nescio.plots.style import COLOURS, STYLES, legend_above, panels, percents
from nescio.types import Decomposition, InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {"total": "total", "aleatoric": "aleatoric: of the data", "epistemic": "epistemic: of the model"}


def kinds(
    decomposition: Decomposition,
    groups: Mapping[str, Values] | None = None,
    *,
    log: bool = False,
    bins: int = 30,
    width: float = 9.6,
    height: float = 3.2,
) -> Figure:
    """Draw histograms of total, aleatoric and epistemic uncertainty side by side.

    Bars are shares of the group, so that a small group shows as well as a large one. A group without inputs is named,
    and empty.

    Args:
        decomposition: The three kinds of uncertainty ``[N]`` each, from `nescio.decompose`.
        groups: Masks ``[N]`` by name, such as ``{"correct": mask, "wrong": mask}``; without them all inputs are one.
        log: Whether axes are logarithmic, over six decades; what lies below is in the first bin.
        bins: The number of bins.
        width: The width in inches.
        height: The height in inches.

    Returns:
        The figure, with three axes.

    Raises:
        InputError: If a part is not finite, a mask does not fit, or all groups are empty.

    Examples:
        >>> parts = nescio.decompose(torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]]))
        >>> [ax.get_xlabel() for ax in nescio.plots.kinds(parts).axes][:2]
        ['total (nats)', 'aleatoric: of the data (nats)']
    """
    parts = _parts(decomposition)
    size = parts["total"].size
    masks = {name: flags(mask, f"groups[{name!r}]", size) for name, mask in (groups or {"all": np.ones(size)}).items()}
    if not any(mask.any() for mask in masks.values()):
        raise InputError("groups: expected at least one input in one of the groups, but all are empty")

    within = np.any(list(masks.values()), axis=0)
    figure, every = panels(width, height, columns=3, sharey=True)
    highest = 0.0
    for ax, (part, values) in zip(every, parts.items(), strict=True):
        edges = _edges(values[within], bins, log)
        clipped = values.clip(edges[0], edges[-1])
        for place, (name, mask) in enumerate(masks.items()):
            colour, style = COLOURS[place % len(COLOURS)], STYLES[place % len(STYLES)]
            share = np.histogram(clipped[mask], edges)[0] / max(1, mask.sum())
            highest = max(highest, float(share.max()))
            ax.stairs(share, edges, fill=True, color=colour, alpha=0.25)
            ax.stairs(share, edges, color=colour, linewidth=1.6, linestyle=style, label=f"{name} ({mask.sum()})")
        ax.set(xlabel=PARTS[part] + " (nats)", xscale="log" if log else "linear")
    every[0].set_ylim(0, 1.04 * highest)
    every[0].set_ylabel("share of the group" if groups is not None else "share of inputs")
    percents(every[0].yaxis, 0)
    if groups is not None:
        legend_above(every[0])
    return figure


def _parts(decomposition: Decomposition) -> dict[str, Floats]:
    """The three kinds of uncertainty by name, checked."""
    if not isinstance(decomposition, Decomposition):
        raise InputError(f"decomposition: expected what nescio.decompose gives, but got {type(decomposition).__name__}")
    parts = {part: scores(getattr(decomposition, part), part) for part in PARTS}
    if any(part.size != parts["total"].size or not np.isfinite(part).all() for part in parts.values()):
        raise InputError("decomposition: expected finite parts with one number for each input")
    return parts


def _edges(values: Floats, bins: int, log: bool) -> Floats:
    low, high = float(values.min()), float(values.max())
    if log:
        high = high if high > 0 else 1.0
        low = max(low, 1e-6 * high)
        return np.geomspace(low, high, bins + 1) if low < high else np.array([low / 2, low * 2])
    low = min(low, 0.0)  # how far from none at all is part of what is shown
    return np.linspace(low, high, bins + 1) if low < high else np.linspace(low, low + 1.0, bins + 1)
