"""Tables that can be sorted, and pairs of a name and what holds for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nescio.report.html import escape
from nescio.report.text import percent


@dataclass(frozen=True)
class Cell:
    """What is shown, what it is sorted by, and how far its bar goes, in [0, 1]."""

    shown: str
    value: Any
    bar: float | None = None


def share(value: float | None, bar: bool = True) -> Cell:
    """A share in percent; a dash where it is not known."""
    if value is None:
        return Cell("–", "Infinity")
    return Cell(percent(value), repr(value), value if bar else None)


def words(text: object) -> str:
    """Text for the inside of an element, in which a number and its percent sign stay together."""
    return escape(text).replace(" %", "&nbsp;%")


def chance(probability: float) -> str:
    """A probability in percent that never says certainty, or impossibility, of what is neither."""
    shown = percent(probability)
    if shown == "100.0" and probability < 1:
        return "over 99.9 %"
    return "under 0.1 %" if shown == "0.0" and probability > 0 else f"{shown} %"


def table(
    heads: Sequence[tuple[str, str]], rows: Sequence[tuple[str, Sequence[Cell]]], caption: str, **more: str
) -> str:
    """A table whose headings sort it: (name, "ascending" or "descending" first); caption: for those who listen."""
    cells = "".join(
        f'<th scope="col" data-first="{first}"><button type="button">{escape(name)}</button></th>'
        for name, first in heads
    )
    body = "\n".join(f'<tr><th scope="row">{escape(name)}</th>{"".join(map(_cell, own))}</tr>' for name, own in rows)
    kind = more.get("kind", "scroll")
    return f"""<div class="{kind}" tabindex="0" role="region" aria-label="{escape(caption)}">
<table class="sortable"><thead><tr>{cells}</tr></thead>
<tbody>
{body}
</tbody></table></div>"""


def _cell(cell: Cell) -> str:
    bar = "" if cell.bar is None else f' class="bar" style="--share: {100 * min(1.0, max(0.0, cell.bar)):.1f}%"'
    return f'<td data-value="{escape(cell.value)}"{bar}>{escape(cell.shown)}</td>'
