"""The building blocks of a page: tables, figures and pictures, as plain data that a template lays out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from nescio._common.formatting import percentage


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        shown: The text of the cell.
        value: What the cell is sorted by; None and infinity come last.
        bar: How far a bar behind the text goes, in [0, 1]; None for no bar.
    """

    shown: str
    value: float | str | None
    bar: float | None = None

    @property
    def key(self) -> float | str:
        """The value as the script of the page reads it."""
        return "Infinity" if self.value is None or self.value == math.inf else self.value

    @property
    def width(self) -> str | None:
        """How long the bar is, in percent; None for no bar."""
        return None if self.bar is None else percentage(min(1.0, max(0.0, self.bar)))


@dataclass(frozen=True)
class Column:
    """A heading that sorts its table: by its first press in the order `first`; `sorted` says that it is so already."""

    name: str
    first: Literal["ascending", "descending"] = "ascending"
    sorted: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a table: its heading and one cell for each other column."""

    name: str
    cells: Sequence[Cell]
    featured: bool = False


@dataclass(frozen=True)
class Table:
    """A table that can be sorted.

    Attributes:
        columns: The headings, that of the rows' names first.
        rows: The rows, in the order in which they are shown at first.
        caption: What the table is, for those who listen to the page.
        long: Whether the table scrolls within a frame of limited height.
    """

    columns: Sequence[Column]
    rows: Sequence[Row]
    caption: str = ""
    long: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing as SVG, its title, and a caption that follows the title.

    `svg` goes into the page as it is, so it comes from `nescio.report.figure_svg.svg`, which escapes every text.
    """

    svg: str
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture as a data URI; with `pixels` the browser enlarges it without smoothing."""

    uri: str
    alt: str
    pixels: bool = False


@dataclass(frozen=True)
class Scale:
    """A bar of colours as a picture, so that it is printed too, and what its ends stand for."""

    picture: Picture
    low: str
    high: str


def ascending(*names: str) -> list[Column]:
    """Return columns whose first press puts the lowest value on top.

    Args:
        names: The headings.

    Returns:
        One column for each name.

    Examples:
        >>> [column.first for column in ascending("method", "FPR95")]
        ['ascending', 'ascending']
    """
    return [Column(name) for name in names]


def descending(*names: str) -> list[Column]:
    """Return columns whose first press puts the highest value on top.

    Args:
        names: The headings.

    Returns:
        One column for each name.

    Examples:
        >>> [column.first for column in descending("AUROC")]
        ['descending']
    """
    return [Column(name, "descending") for name in names]


def share_cell(share: float | None) -> Cell:
    """Return a cell with a share in percent and its bar.

    Args:
        share: The share, in [0, 1]; None where it is not known.

    Returns:
        The cell; a dash where the share is not known.

    Examples:
        >>> share_cell(0.9731).shown, share_cell(None).shown
        ('97.3', '–')
    """
    return Cell("–", None) if share is None else Cell(percentage(share), share, share)


def count_cell(count: int) -> Cell:
    """Return a cell with a whole number.

    Args:
        count: The number.

    Returns:
        The cell, with commas between thousands.

    Examples:
        >>> count_cell(12345).shown
        '12,345'
    """
    return Cell(f"{count:,}", count)


def word_cell(text: str) -> Cell:
    """Return a cell with a text, sorted by that text.

    Args:
        text: The text.

    Returns:
        The cell.

    Examples:
        >>> word_cell("Linear").key
        'Linear'
    """
    return Cell(text, text)


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters.

    Args:
        text: The text.
        longest: The number of characters from which on it is cut.

    Returns:
        The text, with an ellipsis where it was cut.

    Examples:
        >>> shortened("uncertainty", 6)
        'uncer…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "…"
