"""A map of inputs coloured by how uncertain they are.

Points in the plane are taken as they are. Features with D > 2 columns are projected on their first two principal
components: the centred X = U S Vᵀ, the points X v_1 and X v_2, and S_j²/ΣS² the share of the variance that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio._common.arrays import Values
from nescio._common.lazy_imports import need
from nescio.evaluate.metric_inputs import Floats, flags, scores
from nescio.plots.style import COLOURS, INK, axes, legend_above
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = ("o", "s", "^", "D", "v", "p")
MOST_LABELS = 60
"""More cannot be read."""
MANY_POINTS = 2000
"""More are one picture within an SVG or PDF, which would be slow to show otherwise."""


def embedding(
    points: Values,
    uncertainty: Values,
    *,
    labels: Values | None = None,
    marks: Mapping[str, Values] | None = None,
    name: str = "uncertainty",
    width: float = 5.8,
    height: float = 4.6,
) -> Figure:
    """Draw inputs as points that are coloured by their uncertainty.

    Darker is more uncertain. From 100 inputs on the colours reach from the 1st to the 99th percentile, so that an
    outlier does not take all of them. Which of two points lies on top is drawn at random, always the same way.

    Args:
        points: Places ``[N, 2]``, or features ``[N, D]``, which are projected on two principal components.
        uncertainty: One number for each input ``[N]``.
        labels: A word or class for each input ``[N]``, written in the middle of its points.
        marks: Masks ``[N]`` by name, such as ``{"wrong": predicted != y}``; their inputs get a frame.
        name: What stands beside the colour bar.
        width: The width in inches.
        height: The height in inches.

    Returns:
        The figure.

    Raises:
        InputError: If the arrays do not fit each other or hold infinite numbers.

    Examples:
        >>> figure = nescio.plots.embedding(np.eye(3), [0.1, 0.5, 0.9])
        >>> figure.axes[0].get_xlabel()
        'first principal component (50 %)'
    """
    colours = scores(uncertainty, "uncertainty")
    if not np.isfinite(colours).all():
        raise InputError("uncertainty: expected finite numbers, but some are infinite; leave those inputs out")
    place, titles = _plane(_table(points), colours.size)
    masks = {key: flags(mask, f"marks[{key!r}]", colours.size) for key, mask in (marks or {}).items()}

    figure, ax = axes(width, height)
    low, high, extend = _range(colours)
    order = np.random.default_rng(0).permutation(colours.size)
    (x, y), area = place[order].T, float(np.clip(12000 / colours.size, 4, 40))
    drawn = ax.scatter(
        x, y, area, colours[order], cmap="viridis_r", vmin=low, vmax=high, linewidth=0, rasterized=x.size > MANY_POINTS
    )
    bar = figure.colorbar(drawn, ax=ax, label=name, extend=extend, aspect=30)
    if colours.min() == colours.max():
        bar.set_ticks([colours[0]])
    for at, (key, mask) in enumerate(masks.items()):
        _mark(ax, place[mask], f"{key} ({mask.sum()})", at)
    if labels is not None:
        _write(ax, place, np.asarray(labels))
    ax.set(xlabel=titles[0], ylabel=titles[1])
    ax.set_aspect("equal", adjustable="datalim")
    if masks:
        legend_above(ax)
    return figure


def _table(points: Values) -> Floats:
    try:
        array = np.asarray(points.detach().cpu().double() if hasattr(points, "detach") else points, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"points: expected numbers [N, 2] or [N, D], but got {points!r:.80} ({error})") from error
    if array.ndim != 2 or array.shape[1] < 2:
        raise InputError(
            f"points: expected shape [N, 2], or [N, D] with features of D > 2, but got {list(array.shape)}; "
            "flatten what has more dimensions"
        )
    if not np.isfinite(array).all():
        raise InputError("points: expected finite numbers, but some are infinite or NaN; leave those inputs out")
    return array


def _plane(points: Floats, size: int) -> tuple[Floats, tuple[str, str]]:
    """Points [N, 2] and the names of the axes."""
    if len(points) != size:
        raise InputError(f"points: expected one for each of the {size} uncertainties but got {len(points)}")
    if points.shape[1] == 2:
        return points, ("", "")
    centred = points - points.mean(0)
    if centred.shape[1] <= centred.shape[0]:  # the small one of the two matrices of inner products
        vectors = np.linalg.eigh(centred.T @ centred)[1][:, :-3:-1]
    else:
        vectors = np.linalg.svd(centred, full_matrices=False)[2][:2].T
        vectors = np.pad(vectors, ((0, 0), (0, 2 - vectors.shape[1])))  # a single input has one
    sizes = np.abs(vectors)
    largest = (sizes > (1 - 1e-6) * sizes.max(0)).argmax(0)  # the first of those that are equal but for round-off
    vectors = vectors * np.where(vectors[largest, [0, 1]] < 0, -1.0, 1.0)  # of both signs always the same
    place = centred @ vectors
    shares = (place**2).sum(0) / max(float((centred**2).sum()), np.finfo(np.float64).tiny)
    first, second = (f"{word} principal component ({100 * share:.0f} %)" for word, share in zip(
        ("first", "second"), shares, strict=True))  # fmt: skip
    return place, (first, second)


def _range(values: Floats) -> tuple[float, float, str]:
    """Lowest and highest colour, and which ends of the colour bar stand for more than they say."""
    least, most = float(values.min()), float(values.max())
    low, high = (float(v) for v in np.percentile(values, (1, 99))) if values.size >= 100 else (least, most)
    if low == high:
        low, high = least, most
    if low == high:
        return low - 0.5, high + 0.5, "neither"
    return low, high, {(0, 0): "neither", (1, 0): "min", (0, 1): "max"}.get((low > least, high < most), "both")


def _mark(ax: Axes, place: Floats, label: str, at: int) -> None:
    marker, colour = MARKS[at % len(MARKS)], COLOURS[(at + 1) % len(COLOURS)]
    ax.scatter(
        place[:, 0], place[:, 1], 46, marker=marker, facecolor="none", edgecolor=colour, linewidth=1.1, label=label
    )


def _write(ax: Axes, place: Floats, labels: np.ndarray[Any, np.dtype[Any]]) -> None:
    if labels.shape != (len(place),):
        raise InputError(
            f"labels: expected one for each of the {len(place)} inputs, but got shape {list(labels.shape)}"
        )
    different = np.unique(labels)
    if different.size > MOST_LABELS:
        raise InputError(
            f"labels: expected at most {MOST_LABELS} different ones, but got {different.size}; mark a few instead"
        )
    stroke = need("matplotlib.patheffects", "demo").withStroke(linewidth=3, foreground="white")
    for label in different:
        x, y = np.median(place[labels == label], axis=0)
        look: dict[str, Any] = {"color": INK, "weight": "bold", "size": "large", "ha": "center", "va": "center"}
        ax.text(x, y, str(label), zorder=5, path_effects=[stroke], **look)
