"""Figures inside the page, as SVG that follows light and dark. Nothing refers to anything outside the page."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

from nescio._common.lazy_imports import need
from nescio.plots.style import ACCENT, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg(figure: Figure, alt: str, name: str) -> str:
    """Return a figure as an <svg> element that fills its container.

    Ink, faint lines and the accent take the page's colours (`currentColor`, `--faint`, `--accent`), and text stays text
    in the page's font.

    Args:
        figure: The figure.
        alt: What it shows, for those who cannot see it.
        name: What keeps the ids of several figures on a page apart.

    Returns:
        The element. Every text in it is escaped.
    """
    matplotlib = need("matplotlib", "demo")
    name = re.sub(r"[^\w.-]", "_", name)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'(?<=id=")([^"]+)', rf"{name}-\1", text)
    text = re.sub(r'((?:xlink:)?href=")#([^"]+)', rf"\1#{name}-\2", text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r"font(-family)?: [^;\"]*(?=[;\"])", _page_font, text)
    for colour, variable in ((INK, "currentColor"), (FAINT, "var(--faint)"), (ACCENT, "var(--accent)")):
        text = re.sub(re.escape(colour), variable, text, flags=re.IGNORECASE)
    # a hundredth of a point is enough for places; what is written stays as it is
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{3,}", _short, tag.group()), text)
    opening, rest = text.split(">", 1)
    opening = re.sub(r' (?:width|height)="[^"]*"', "", opening)
    label = html.escape(alt, quote=True)
    return f'{opening} role="img" aria-label="{label}"><title>{html.escape(alt)}</title>{rest}'


def _short(number: re.Match[str]) -> str:
    return f"{float(number.group()):.2f}"


def _page_font(match: re.Match[str]) -> str:
    """Keep the size of `font: 10px 'DejaVu Sans', …` and leave the family to the page."""
    size = re.search(r"[\d.]+px", match.group())
    return f"font-size: {size.group()}" if size else "font-family: inherit"
