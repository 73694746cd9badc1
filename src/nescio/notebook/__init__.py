"""Results as small HTML cards, for notebooks: what `_repr_html_` of a result gives.

A card has a title, a few lines, a table and pictures. It takes the colours of the page around it, so it suits a dark
notebook and a light one. Every text is escaped, and nothing is loaded from elsewhere.

This room knows nothing of the others: results put their own words and numbers on a card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jinja2 import Environment

MOST = 10
"""Rows that a card shows."""


@dataclass(frozen=True)
class Cell:
    """An entry of a table.

    Attributes:
        text: What it says.
        shares: Bars behind the text, as shares of its width, one after the other.
        state: The colour of a dot before the text.

    Examples:
        >>> nescio.notebook.Cell("entropy", state="unsure")
        Cell(text='entropy', shares=(), state='unsure')
    """

    text: str
    shares: tuple[float, ...] = ()
    state: Literal["", "foreign", "unsure", "fine"] = ""


@dataclass(frozen=True)
class Picture:
    """Hold a small picture with a line under it.

    Attributes:
        uri: The picture as a data URI.
        caption: The line.

    Examples:
        >>> from nescio._common.images import data_uri, png
        >>> Picture(data_uri(png(np.zeros((2, 2)))), "black").caption
        'black'
    """

    uri: str
    caption: str


def card(
    title: str,
    *,
    lines: Sequence[str] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str | Cell]] = (),
    pictures: Sequence[Picture] = (),
    more: str = "",
) -> str:
    """Write a card as HTML.

    Args:
        title: What it is, in a few words.
        lines: Sentences under the title.
        columns: The names of the columns of a table.
        rows: Its rows, of texts or cells.
        pictures: Pictures beside each other.
        more: What is not shown, in words.

    Returns:
        The HTML, in which all texts are escaped.

    Examples:
        >>> "a &lt; b" in card("scores", lines=["a < b"])
        True
    """
    cells = [[one if isinstance(one, Cell) else Cell(one) for one in row] for row in rows]
    template = _environment().get_template("card.html.j2")
    return template.render(title=title, lines=lines, columns=columns, rows=cells, pictures=pictures, more=more)


def short(value: float) -> str:
    """Write a number with three significant digits.

    Args:
        value: The number.

    Returns:
        The text.

    Examples:
        >>> short(0.123456), short(1e-9)
        ('0.123', '1e-09')
    """
    return f"{value:.3g}"


def bar(value: float, largest: float) -> Cell:
    """Write a number of at least 0 over a bar that shows it as a share of the largest.

    Args:
        value: The number.
        largest: What a full bar stands for.

    Returns:
        The entry.

    Examples:
        >>> bar(1.0, 4.0)
        Cell(text='1', shares=(0.25,), state='')
    """
    share = value / largest if 0 < value <= largest < float("inf") else 0.0
    return Cell(short(value), (share,))


def rest(count: int, noun: str, shown: int = MOST) -> str:
    """Say how many are not shown.

    Args:
        count: How many there are.
        noun: One of them, in a word.
        shown: How many are shown.

    Returns:
        A line, empty where all are shown.

    Examples:
        >>> rest(12, "input"), rest(3, "input")
        ('… and 2 more inputs.', '')
    """
    left = count - shown
    return f"… and {left:,} more {noun}{'s' * (left > 1)}." if left > 0 else ""


@cache
def _environment() -> Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader("nescio.notebook"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
