"""A CSV file as a table: one pass finds where each row begins, and a row is read when it is asked for.

Cells are parted by commas, semicolons or tabs, whichever the line with the names has most of. A column is of numbers
where more than half of its first cells are; a later cell that is none makes its row a problem, and not the column text.
"""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from nescio.data.sources.labels import BROKEN
from nescio.data.sources.numbered import stamp
from nescio.data.tables import unescaped
from nescio.types import InputError

FIRST = 1000
"""How many rows decide on the kind of a column."""


class CsvTable:
    """A `Table` of a CSV file."""

    def __init__(self, path: Path) -> None:
        self.path, self.root = path, path.parent
        self.identity = stamp(path)
        with path.open("rb") as file:
            header = file.readline()
            try:
                text = header.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise InputError(f"expected text in UTF-8 in {path}, but it is not ({error.reason})") from error
            self._mark = max(",;\t", key=text.count) if path.suffix.lower() != ".tsv" else "\t"
            self._names = [name.strip() for name in next(csv.reader([text], delimiter=self._mark), [])]
            if not any(self._names) or "\0" in text:
                raise InputError(f"expected a first line with the names of columns in {path}, but it has none")
            if twice := [name for name in self._names if self._names.count(name) > 1]:
                raise InputError(f"expected each column of {path} once, but {twice[0]!r} is there more often")
            self._starts, self._lines = array("Q"), array("Q")
            first: list[list[str]] = []
            for start, line, cells in self._records(file):
                self._starts.append(start)
                self._lines.append(line)
                if len(first) < FIRST and len(cells) == len(self._names):
                    first.append(cells)
            self._starts.append(file.tell())
        columns = zip(*first, strict=True) if first else ([] for _ in self._names)
        self.kinds = {name: _kind(list(cells)) for name, cells in zip(self._names, columns, strict=True)}

    def __len__(self) -> int:
        return len(self._lines)

    def row(self, index: int, columns: Sequence[str]) -> list[Any]:
        """Numbers as floats, all else as text."""
        cells = self._cells(index)
        values: list[Any] = []
        for column in columns:
            cell = cells[self._names.index(column)].strip()
            if self.kinds[column] == "number" and cell:
                try:
                    values.append(float(cell))
                except ValueError as error:
                    raise InputError(f"column {column!r} has {cell[:40]!r}, which is not a number") from error
            else:
                values.append(cell)
        return values

    def column(self, name: str) -> list[Any]:
        """The cells of a column as text, of labels or names; `BROKEN` for those of rows that cannot be parted."""
        place = self._names.index(name)
        with self.path.open("rb") as file:
            file.readline()
            return [
                unescaped(cells[place].strip()) if len(cells) == len(self._names) else BROKEN
                for _, _, cells in self._records(file)
            ]

    def names_of(self, column: str) -> tuple[str, ...] | None:
        """A CSV file says nothing of that."""
        return None

    def _cells(self, index: int) -> list[str]:
        start, stop = self._starts[index], self._starts[index + 1]
        with self.path.open("rb") as file:
            file.seek(start)
            content = file.read(stop - start)
        where = f"line {self._lines[index]}"
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{where} is not text in UTF-8 ({error.reason})") from error
        try:
            cells = next(csv.reader(text.splitlines(keepends=True), delimiter=self._mark), [])
        except csv.Error as error:
            raise InputError(f"{where}: {error}") from error
        if len(cells) != len(self._names):
            spans = text.rstrip("\r\n").count("\n")
            more = f"; it goes on over {spans + 1} lines: is a quote not closed?" if spans else ""
            raise InputError(f"{where} has {len(cells)} cells and not {len(self._names)}, as there are columns{more}")
        return cells

    def _records(self, file: IO[bytes]) -> Iterator[tuple[int, int, list[str]]]:
        """Where each row begins, its line, and its cells: none where it cannot be parted."""
        place, line = file.tell(), 1

        def lines() -> Iterator[str]:
            nonlocal place, line
            while content := file.readline():
                place += len(content)
                line += 1
                yield content.decode("utf-8", "surrogateescape")

        reader = csv.reader(lines(), delimiter=self._mark)
        while True:
            start, number = place, line + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error:
                yield start, number, []
                continue
            if cells:  # an empty line is no row
                yield start, number, cells


def _kind(cells: list[str]) -> str:
    filled = [cell.strip() for cell in cells if cell.strip()]
    return "number" if filled and 2 * sum(map(_is_number, filled)) > len(filled) else "text"


def _is_number(cell: str) -> bool:
    try:
        return not math.isnan(float(cell)) or cell.lower() == "nan"
    except ValueError:
        return False
