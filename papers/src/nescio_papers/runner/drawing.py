"""Figures for the page: as SVG, no wider than can be taken in at a glance; and lines over a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nescio._common.lazy_imports import need
from nescio.plots.style import COLOURS, FAINT, INK, STYLES, panels
from nescio.report import figure_svg
from nescio.types import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


REM = 7.5  # to an inch of the figure, at most: all figures of a page have letters of one size then


def svg(figure: Figure, alt: str, name: str) -> str:
    """Return the figure as an <svg> element."""
    most = REM * figure.get_figwidth()
    return figure_svg.svg(figure, alt, name).replace("<svg", f'<svg style="max-width: {most:.0f}rem"', 1)


def curves(
    panels_: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
    xlabel: str,
    limits: Mapping[str, tuple[float, float]] | None = None,
    *,
    ylabel: str = "",
    width: float = 3.0,
    height: float = 2.9,
    columns: int = 3,
) -> Figure:
    """Panels of lines: for each panel the points (x, y) of each series, x on a logarithmic axis, and one legend."""
    if not panels_ or not any(panels_.values()):
        raise InputError("panels: expected at least one panel with one line, but got none")
    names = list(dict.fromkeys(name for lines in panels_.values() for name in lines))
    wide = min(columns, len(panels_))
    deep = math.ceil(len(panels_) / wide)
    room = 0.2 * math.ceil(len(names) / 3) + 0.2
    figure, every = panels(width * wide, height * deep + room, deep, wide)
    for ax in every[len(panels_) :]:
        ax.set_visible(False)
    drawn: dict[str, Any] = {}
    ticker = need("matplotlib.ticker", "demo")
    for ax, (title, lines) in zip(every, panels_.items(), strict=False):
        for name, series in lines.items():
            at = names.index(name)
            x, y = zip(*sorted(series), strict=True)
            (line,) = ax.plot(
                x, y, color=COLOURS[at % len(COLOURS)], linestyle=STYLES[(at // len(COLOURS) + at) % len(STYLES)],
                marker=".", markersize=4, linewidth=1.4,
            )  # fmt: skip
            drawn.setdefault(name, line)
        ax.set_xscale("log")
        every_x = sorted({x for series in lines.values() for x, _ in series})
        if every_x[-1] < 30 * every_x[0]:  # too few powers of ten to read it by
            ax.set_xticks(every_x, [f"{x:g}" for x in every_x])
            ax.minorticks_off()
        ax.yaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
        ax.set_title(title, fontsize="small", color=INK)
        ax.set_xlabel(xlabel, fontsize="small")
        ax.set_ylabel(ylabel, fontsize="small")
        ax.tick_params(labelsize=8)
        ax.grid(color=FAINT, linewidth=0.4, alpha=0.6)
        if limits and title in limits:
            ax.set_ylim(*limits[title])
    figure.legend(
        list(drawn.values()), list(drawn), loc="outside lower center", ncols=3, fontsize="x-small", frameon=False,
        labelcolor=INK,
    )  # fmt: skip
    return figure
