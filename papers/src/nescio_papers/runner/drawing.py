"""Figures for the page: as SVG, no wider than can be taken in at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nescio.report import figure_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure


REM = 7.5  # to an inch of the figure, at most: all figures of a page have letters of one size then


def svg(figure: Figure, alt: str, name: str) -> str:
    """Return the figure as an <svg> element."""
    most = REM * figure.get_figwidth()
    return figure_svg.svg(figure, alt, name).replace("<svg", f'<svg style="max-width: {most:.0f}rem"', 1)
