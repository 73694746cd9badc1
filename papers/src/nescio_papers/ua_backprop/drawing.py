"""Pictures of the studies of maps: kinds of uncertainty and methods side by side, curves, a grid of numbers.

Maps lie over the picture in pale grey, in the colours of `nescio.plots.maps`: orange to brown adds doubt, blue takes
it away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nescio._common.lazy_imports import need
from nescio.plots.map_figures import ABOVE, BELOW, PALE
from nescio.plots.style import COLOURS, INK, STYLES, panels
from nescio_papers.runner.drawing import svg
from nescio_papers.runner.program import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
SIDE, LEFT, WIDE = 0.9, 0.9, 5.4  # inches of one small picture, of the names beside them, and of a chart


def kinds(name: str, known: str, x: Floats, maps: Mapping[str, Floats]) -> Figure:
    """Draw pictures [N, C, H, W] and their maps [N, H, W] by kind of uncertainty, on one scale for a picture."""
    reach = np.max([np.abs(one).max((1, 2)) for one in maps.values()], axis=0)
    sums = {kind: [f"{value:.2f}" for value in one.sum((1, 2))] for kind, one in maps.items()}
    text = (
        f"The {len(x)} pictures of {name} that the ensemble doubts most. UA-Backprop over FullGrad; each map adds up "
        "to the number below it, in nats, and maps of one picture share one scale of colours."
    )
    alt = f"Pictures of {name} with maps of their {', '.join(maps)} uncertainty"
    drawn = _grid(x, maps, dict.fromkeys(maps, reach), sums, alt, f"kinds-{known}")
    return Figure(f"Kinds of uncertainty, {name}", text, alt, drawn)


def methods(name: str, known: str, x: Floats, maps: Mapping[str, Floats]) -> Figure:
    """Draw pictures and the maps of each method, each map by its own scale of colours."""
    reach = {label: np.abs(one).max((1, 2)) for label, one in maps.items()}
    text = (
        f"Maps of the epistemic uncertainty of the same pictures of {name} by every method, each from its own 0 to its "
        "own highest value. Blue is where a method says that a pixel takes doubt away."
    )
    alt = f"Pictures of {name} with maps by {', '.join(maps)}"
    return Figure(f"Methods side by side, {name}", text, alt, _grid(x, maps, reach, {}, alt, f"methods-{known}"))


def _grid(
    x: Floats,
    maps: Mapping[str, Floats],
    reach: Mapping[str, Floats],
    below: Mapping[str, Sequence[str]],
    alt: str,
    name: str,
) -> str:
    """Draw a column for each picture: itself, then its maps, one row each with its name on the left."""
    wide, high = LEFT + SIDE * len(x), (SIDE + (0.14 if below else 0.0)) * (len(maps) + 1)
    figure, every = panels(wide, high, len(maps) + 1, len(x))
    rows = np.array(every, dtype=object).reshape(len(maps) + 1, -1)
    for at, picture in enumerate(x):
        shown = np.moveaxis(picture, 0, 2) if len(picture) == 3 else picture.mean(0)
        rows[0, at].imshow(shown, cmap="gray", vmin=0, vmax=1, interpolation="none")
        for row, (label, one) in enumerate(maps.items(), start=1):
            _map(rows[row, at], picture, one[at], float(reach[label][at]))
            if label in below:
                rows[row, at].set_xlabel(below[label][at], fontsize=8, color=INK, labelpad=2)
    for ax in every:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    for ax, label in zip(rows[:, 0], ("input", *maps), strict=True):
        words = label.replace(" + ", "\n+ ")
        ax.set_ylabel(words, fontsize=8, color=INK, rotation=0, ha="right", va="center", labelpad=4)
    return svg(figure, alt, name)


def curves(name: str, known: str, lines: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> Figure:
    """Draw URR by number of blurred pixels, by method; the first is drawn thick and the last, chance, dotted."""
    figure, (ax,) = panels(WIDE, 4.6)
    for at, (label, (pixels, values)) in enumerate(lines.items()):
        look: dict[str, Any] = {"color": COLOURS[at % len(COLOURS)], "linestyle": STYLES[at // len(COLOURS)]}
        if at == len(lines) - 1:
            look = {"color": INK, "linestyle": ":"}
        ax.plot(pixels, values, label=label, linewidth=2.6 if at == 0 else 1.2, **look)
    ax.set(xlabel="blurred pixels", ylabel="uncertainty reduction rate (median)")
    ax.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small", labelcolor=INK)
    alt = f"Uncertainty reduction rate by blurred pixels on {name}, by {', '.join(lines)}"
    text = (
        "The share of the epistemic uncertainty that is gone when so many pixels are blurred, those first that a map "
        "blames most; the median over pictures. Higher is better."
    )
    return Figure(f"Uncertainty reduction, {name}", text, alt, svg(figure, alt, f"urr-{known}"))


def heat_map(means: Mapping[tuple[float, float], float]) -> Figure:
    """Draw numbers by τ₁ and τ₂, the lowest marked."""
    ones, twos = (sorted({place[at] for place in means}) for at in (0, 1))
    values = np.array([[means.get((one, two), np.nan) for two in twos] for one in ones])
    wide = 1.1 + 0.75 * len(twos)
    figure, (ax,) = panels(wide, 0.9 + 0.5 * len(ones))
    ax.spines[:].set_visible(False)
    colours = need("matplotlib.colors", "demo").LinearSegmentedColormap.from_list("paled", ["#56b4e9", "#ffffff"])
    ax.imshow(values, cmap=colours, aspect="auto", interpolation="none")
    low = min(means, key=lambda place: means[place])
    for row, one in enumerate(ones):
        for column, two in enumerate(twos):
            if (one, two) in means:
                bold = "bold" if (one, two) == low else "normal"
                ax.text(
                    column, row, f"{100 * means[one, two]:.1f}", ha="center", va="center", weight=bold, color="#111111"
                )
    ax.set_xticks(range(len(twos)), [f"{two:g}" for two in twos])
    ax.set_yticks(range(len(ones)), [f"{one:g}" for one in ones])
    ax.set(xlabel="τ₂ (softmax over pixels)", ylabel="τ₁ (to logits)")
    ax.tick_params(length=0)
    text = (
        "AUC-URR at 5 % of the pixels, times 100, the mean over the sets; lower is better. The lowest, in bold, is at "
        f"τ₁ = {low[0]:g}, τ₂ = {low[1]:g}."
    )
    alt = f"AUC-URR by τ₁ and τ₂; the lowest, {means[low]:.3f}, at τ₁ = {low[0]:g} and τ₂ = {low[1]:g}"
    return Figure("AUC-URR by temperature", text, alt, svg(figure, alt, "taus"))


def _map(ax: Axes, picture: Floats, one: Floats, reach: float) -> None:
    """A map over its picture in pale grey, colours from −reach to reach."""
    colours = need("matplotlib.colors", "demo").LinearSegmentedColormap.from_list("signed", [*BELOW[::-1], *ABOVE])
    reach = reach or 1.0
    ax.imshow(1 - PALE * (1 - picture.mean(0)), cmap="gray", vmin=0, vmax=1, interpolation="none")
    ax.imshow(one, cmap=colours, vmin=-reach, vmax=reach, interpolation="none")
