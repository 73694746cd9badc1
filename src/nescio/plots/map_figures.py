"""Where the doubt comes from: an input and the maps of its uncertainty side by side, or the features that weigh most.

All maps of a figure share one colour scale, so that they can be compared: from 0, or, where a method gives negative
values too, as far below 0 as above. The picture lies under the maps in pale grey; colours are clear at 0 and opaque
from half of the scale on, so that the picture is seen where there is little to say about it. In a large picture single
pixels stand out so far that nothing else would be seen: there the scale ends where `BEYOND` of a map's pixels are left.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nescio._common.argument_checks import integer
from nescio._common.arrays import Values, real_numbers
from nescio._common.lazy_imports import need
from nescio.evaluate.metric_inputs import Floats, listed
from nescio.plots.kinds import PARTS
from nescio.plots.style import COLOURS, FAINT, INK, panels
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALE = 0.4
"""How far from white to black the picture under a map goes."""
ABOVE = ("#e69f0000", "#e69f00c0", "#d55e00", "#a03500", "#6b1d00")
BELOW = ("#56b4e900", "#56b4e9c0", "#0072b2", "#00517e", "#00304d")
"""Colours from 0 to the ends of the scale, above and below 0; lightness falls all the way."""
LARGE, BEYOND = 64 * 64, 0.005
"""In a map of more pixels than this, so large a share of them lies beyond the end of the scale."""


def maps(
    parts: Mapping[str, Values],
    picture: Values | None = None,
    *,
    values: Mapping[str, float] | None = None,
    title: str = "",
    unit: str = "nats per pixel",
    side: float = 2.5,
) -> Figure:
    """Draw an input and the maps of its uncertainty side by side.

    Args:
        parts: Maps ``[H, W]`` by name, such as ``{"epistemic": map, "total": map}``.
        picture: The input ``[H, W]`` or ``[channels, H, W]``. Values outside of [0, 1] are stretched to their own
            range; neither 1 nor 3 channels are shown as their mean.
        values: The uncertainty that each map is about, written above it.
        title: A title over all.
        unit: What the colour bar is in.
        side: The width of a panel in inches.

    Returns:
        The figure.

    Raises:
        InputError: If there is no map, maps have different shapes, or the picture has other pixels than they.

    Examples:
        >>> figure = nescio.plots.maps({"total": np.eye(4)}, picture=np.zeros((4, 4)))
        >>> [ax.get_title() for ax in figure.axes[:2]]
        ['input', 'total']
    """
    named = {name: _finite(one, name, 2, "a map [H, W]") for name, one in _some(parts).items()}
    shapes = {one.shape for one in named.values()}
    if len(shapes) > 1:
        raise InputError(f"parts: expected maps of one shape, but got {', '.join(str(list(s)) for s in shapes)}")
    high, wide = shapes.pop()
    shown = None if picture is None else visible(picture, (high, wide))
    count = len(named) + (shown is not None)
    tall = side * min(max(high / wide, 0.3), 3.0)
    width = count * side + 0.7
    title = _wrapped(title, width)
    figure, every = panels(width, tall + 0.4 + 0.2 * len(title.splitlines()), columns=count)
    for ax in every:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    scale = _scale(named.values())
    rest = every
    if shown is not None:
        first, *rest = every
        first.imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        first.set_title("input", fontsize="medium")
    image = None
    for ax, (name, one) in zip(rest, named.items(), strict=True):
        if shown is not None:
            grey = shown if shown.ndim == 2 else shown.mean(2)
            ax.imshow(1 - PALE * (1 - grey), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        image = ax.imshow(one, interpolation="nearest", **scale)
        ax.set_title(_heading(name, values), fontsize="medium", parse_math=False)
    _colour_bar(figure, image, rest[-1], unit)
    _entitle(figure, title)
    return figure


def feature_bars(
    parts: Mapping[str, Values],
    names: Sequence[str],
    *,
    values: Mapping[str, float] | None = None,
    title: str = "",
    unit: str = "nats",
    most: int = 12,
    width: float = 6.4,
) -> Figure:
    """Draw the features or tokens with the largest share of the uncertainty as bars, the largest on top.

    What the others have together is the lowest bar, so that nothing is left out.

    Args:
        parts: Numbers ``[F]`` by name; the last of them decides which features are shown.
        names: What the features are called.
        values: The uncertainty that each part is about, for the legend.
        title: A title over all.
        unit: What the numbers are in.
        most: The number of features that are shown.
        width: The width in inches.

    Returns:
        The figure.

    Raises:
        InputError: If there is no part, or names and parts do not fit each other.

    Examples:
        >>> figure = nescio.plots.feature_bars({"total": [0.1, 0.6, 0.2]}, ["age", "pay", "height"], most=1)
        >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
        ['pay', '2 others together']
    """
    named = {name: _finite(one, name, 1, "one number for each feature, [F]") for name, one in _some(parts).items()}
    sizes = {one.size for one in named.values()} | {len(names)}
    if len(sizes) > 1:
        raise InputError(
            f"names: expected one for each feature of every part, but got {len(names)} names and "
            f"{', '.join(f'{one.size} of {name}' for name, one in named.items())}"
        )
    integer("most", most, at_least=1)
    order = np.argsort(-np.abs(list(named.values())[-1]), kind="stable")
    order, others = (order, order[:0]) if len(names) <= most + 1 else (order[:most], order[most:])
    labels = [names[at] for at in order] + ([f"{len(others)} others together"] if len(others) else [])
    rows, thick = len(labels), 0.8 / len(named)
    title = _wrapped(title, width)
    figure, (ax,) = panels(width, 1.1 + rows * (0.14 + 0.11 * len(named)) + 0.2 * len(title.splitlines()))
    for place, (name, one) in enumerate(named.items()):
        lengths = [*one[order], *([one[others].sum()] if len(others) else [])]
        at = np.arange(rows) + (place - (len(named) - 1) / 2) * thick
        ax.barh(at, lengths, thick, color=COLOURS[place % len(COLOURS)], label=_heading(name, values, ", "))
    ax.set(ylim=(rows - 0.45, -0.55), yticks=range(rows), xlabel=f"part of the uncertainty ({unit})")
    ax.set_yticklabels([_short(label) for label in labels], parse_math=False)
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.legend(frameon=False, labelcolor=INK, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1))
    _entitle(figure, title)
    return figure


def _some(parts: Mapping[str, Values]) -> Mapping[str, Values]:
    if not isinstance(parts, Mapping) or not parts:
        raise InputError("parts: expected at least one map by name, such as {'total': map}, but got none")
    return parts


def _finite(given: Values, name: str, dims: int, what: str) -> Floats:
    array = real_numbers(given, name, what).astype(np.float64, copy=False)
    if array.ndim != dims or array.size == 0:
        raise InputError(f"{name}: expected {what} of a single input, but got shape {list(array.shape)}")
    bad = ~np.isfinite(array)
    if bad.any():
        raise InputError(f"{name}: expected finite numbers, but {bad.sum()} are not (at {listed(bad.ravel())})")
    return array


def visible(picture: Values, shape: tuple[int, int]) -> Floats:
    """Return a picture as matplotlib takes it.

    Args:
        picture: Numbers ``[H, W]`` or ``[channels, H, W]``.
        shape: The height and the width that it must have.

    Returns:
        Numbers ``[H, W]`` or ``[H, W, 3]`` in [0, 1].

    Raises:
        InputError: If the picture has another shape or numbers that are not finite.

    Examples:
        >>> visible(np.array([[0.0, 4.0]]), (1, 2))
        array([[0., 1.]])
    """
    array = real_numbers(picture, "picture", "a picture").astype(np.float64, copy=False)
    if array.ndim not in (2, 3) or array.shape[-2:] != shape or array.size == 0 or not np.isfinite(array).all():
        raise InputError(
            f"picture: expected finite numbers [H, W] or [channels, H, W] with the {shape[0]} × {shape[1]} pixels of "
            f"the maps, but got shape {list(array.shape)}"
        )
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:
        array = (array - low) / ((high - low) or 1.0)
    if array.ndim == 3:
        array = np.moveaxis(array, 0, 2) if len(array) == 3 else array.mean(0)
    return array


def ends(every: Iterable[Floats]) -> tuple[float, float]:
    """Return the ends of the scale of colours that all maps share.

    Args:
        every: The maps.

    Returns:
        The lowest and the highest value; the lowest is 0 where no map has negative values.

    Examples:
        >>> ends([np.array([[0.5]]), np.array([[-2.0]])])
        (-2.0, 2.0)
    """
    several = list(every)
    highest = max(_top(one) for one in several) or 1.0  # no doubt: nothing coloured
    return -highest if min(float(one.min()) for one in several) < 0 else 0.0, highest


def _scale(every: Iterable[Floats]) -> dict[str, Any]:
    """Colours and the range that all maps share."""
    low, high = ends(every)
    stops = [*BELOW[::-1], *ABOVE] if low < 0 else ABOVE
    colours = need("matplotlib.colors", "demo").LinearSegmentedColormap.from_list("doubt", stops)
    return {"cmap": colours, "vmin": low, "vmax": high}


def _top(one: Floats) -> float:
    """The magnitude at which the colours of a map end."""
    size = np.abs(one)
    most = float(np.quantile(size, 1 - BEYOND)) if size.size > LARGE else 0.0
    return most or float(size.max())


def _colour_bar(figure: Figure, image: Any, ax: Axes, unit: str) -> None:
    low, high = image.get_clim()
    beyond = "neither" if np.abs(image.get_array()).max() <= high else "both" if low < 0 else "max"
    bar: Any = figure.colorbar(image, cax=ax.inset_axes((1.05, 0.0, 0.07, 1.0)), extend=beyond)
    bar.outline.set_edgecolor(FAINT)
    bar.ax.tick_params(colors=INK, labelcolor=INK, labelsize="small")
    bar.ax.yaxis.set_major_locator(need("matplotlib.ticker", "demo").MaxNLocator(5))
    bar.formatter.set_powerlimits((-3, 3))
    bar.set_label(unit, color=INK, fontsize="small")


def _heading(name: str, values: Mapping[str, float] | None, between: str = "\n") -> str:
    words = PARTS.get(name, name)
    return words if values is None or name not in values else f"{words}{between}{values[name]:.3g} nats"


def _wrapped(title: str, width: float) -> str:
    """Lines that fit into so many inches."""
    return "\n".join(textwrap.fill(line, max(20, int(13 * width))) for line in title.splitlines())


def _entitle(figure: Figure, title: str) -> None:
    if title:
        figure.suptitle(title, color=INK, fontsize="medium", x=0.01, ha="left", parse_math=False)


def _short(label: str) -> str:
    return label if len(label) <= 40 else label[:39] + "…"
