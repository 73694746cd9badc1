"""Rows of a table: which columns are the input, the label and the name, and how a cell becomes what a model takes.

Columns are of the kinds "number", "text", "bytes", "picture" (bytes or a path, as data sets of Hugging Face hold them),
"list" and "other". Columns of numbers together are one input, a vector; a text, a picture or a list is one alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from nescio._common.formatting import count
from nescio.data.sources.decode import ENDINGS, decode
from nescio.data.sources.labels import BROKEN, Labels
from nescio.data.sources.numbered import Numbered
from nescio.data.sources.rows import Kind
from nescio.types import InputError

LABELS = ("label", "labels", "y", "target", "class")
NAMES = ("name", "id", "file_name", "filename", "path", "file")
TEXTS = ("text", "sentence", "content", "review")
PICTURES = ("image", "picture", "img", "path", "file_name", "filename", "file")
Columns = str | Sequence[str] | None


class Table(Protocol):
    """A file of rows and columns."""

    @property
    def path(self) -> Path: ...

    @property
    def root(self) -> Path:
        """Where paths in it begin."""

    @property
    def identity(self) -> str: ...

    @property
    def kinds(self) -> Mapping[str, str]:
        """The columns and their kinds, in order."""

    def __len__(self) -> int: ...

    def row(self, index: int, columns: Sequence[str]) -> list[Any]:
        """The cells of these columns; pure and thread-safe."""

    def column(self, name: str) -> list[Any]:
        """All cells of a column; `BROKEN` for those of rows that cannot be read."""

    def names_of(self, column: str) -> tuple[str, ...] | None:
        """What the whole numbers of a column mean, where the file says so."""


class TableRows:
    """A `Store` of the rows of a table."""

    def __init__(self, table: Table, want: Kind | None, x: Columns, label: str | None, name: str | None) -> None:
        self._table = table
        self._label = _column(table, label, LABELS, "--label")
        named = _column(table, name, NAMES, "--name")
        truth = _column(table, "auto", LABELS, "") if label is None else self._label  # not asked for, but no input
        taken = {truth, named}
        self._x = [x] if isinstance(x, str) else list(x) if x is not None else _usual(table, want, taken)
        for column in self._x:
            if column not in table.kinds:
                raise InputError(f"expected the column {column!r} in {table.path}, but it has: {_listed(table)}")
        kinds = {table.kinds[column] for column in self._x}
        self._alone = kinds != {"number"}
        if self._alone and len(self._x) > 1:
            raise InputError(
                f"expected several columns of numbers, or one column of another kind, as input from {table.path}, got "
                f"{', '.join(self._x)} of the kinds {', '.join(sorted(kinds))}; name the right ones with x (--x)"
            )
        self._of = kinds.pop()
        self.kind: Kind = _kind(table, self._x[0], self._of, want)
        self.names: Sequence[str] = Numbered(table.path.name, len(table))
        if named is not None:
            plain = self.names
            self.names = [
                plain[i] if cell is BROKEN or cell in (None, "") else str(cell)
                for i, cell in enumerate(table.column(named))
            ]
        what = f"column{'s' * (len(self._x) > 1)} {', '.join(self._x[:6])}{' …' * (len(self._x) > 6)}"
        left = [column for column in table.kinds if column not in {*self._x, self._label, named}]
        out = f"; not used: {', '.join(left[:6])}{' …' * (len(left) > 6)}" if left else ""
        labelled = f", labels in {self._label}" if self._label is not None else ""
        self.about = f"{count(len(table), 'row')} of {table.path}, {what}{labelled}{out}"
        self.identity = f"{table.identity} {self._x} {self._label} {named}"

    def __len__(self) -> int:
        return len(self._table)

    @property
    def columns(self) -> list[str]:
        """Those of the input."""
        return self._x

    def raw(self, index: int) -> Any:
        cells = self._table.row(index, self._x)
        for column, cell in zip(self._x, cells, strict=True):
            if cell is None or (isinstance(cell, str) and not cell):
                raise InputError(f"column {column!r} is empty")
        if not self._alone:
            return torch.tensor([float(cell) for cell in cells], dtype=torch.float64)
        cell = cells[0]
        if self.kind == "texts":
            return str(cell)
        if self._of == "list":
            return _array(cell, self._x[0])
        if self.kind == "pictures":
            return decode(self._file(cell))
        raise InputError(f"column {self._x[0]!r} holds {self._of}, which is not an input")

    def labels(self) -> Labels | None:
        if self._label is None:
            return None
        return Labels(self._table.column(self._label), self._table.names_of(self._label))

    def _file(self, cell: object) -> Path | bytes:
        if isinstance(cell, dict):
            cell = cell["bytes"] if cell.get("bytes") is not None else cell.get("path")
        if isinstance(cell, bytes):
            return cell
        if not isinstance(cell, str):
            raise InputError(f"column {self._x[0]!r} is empty")
        return self._table.root / cell


def _column(table: Table, given: str | None, usual: Sequence[str], flag: str) -> str | None:
    if given == "auto":
        return next((name for name in usual if name in table.kinds), None)
    if given is not None and given not in table.kinds:
        raise InputError(f"{flag}: expected the column {given!r} in {table.path}, but it has: {_listed(table)}")
    return given


def _usual(table: Table, want: Kind | None, taken: set[str | None]) -> list[str]:
    """The columns of the input, by what the model wants and by their names and kinds."""
    free = {name: kind for name, kind in table.kinds.items() if name not in taken}
    by_kind = {kind: [name for name, one in free.items() if one == kind] for kind in free.values()}
    chosen: list[str] | None = None
    if want == "texts":
        chosen = _only_column(by_kind.get("text", []), TEXTS)
    elif want == "pictures":
        shown = {name: kind for name, kind in table.kinds.items() if kind in ("picture", "bytes", "list")}
        paths = [name for name, kind in table.kinds.items() if kind == "text" and name in PICTURES]
        chosen = _only_column(list(shown), PICTURES) or paths[:1]
    elif want == "numbers" or by_kind.get("number"):
        chosen = by_kind.get("number") or _only_column(by_kind.get("list", []), ("x",))
    else:
        for kind in ("list", "picture", "bytes"):
            chosen = chosen or _only_column(by_kind.get(kind, []), ("x", *PICTURES))
        paths = [name for name, kind in table.kinds.items() if kind == "text" and name in PICTURES]
        chosen = chosen or paths[:1] or _only_column(by_kind.get("text", []), TEXTS)
    if not chosen:
        raise InputError(
            f"expected one column of {want or 'inputs'} in {table.path}, but it has: {_listed(table)}; "
            "name the column, or the columns of numbers, with x (--x)"
        )
    return chosen


def _only_column(names: list[str], usual: Sequence[str]) -> list[str]:
    """The column with the first of the usual names, or the only column."""
    return next(([name] for name in usual if name in names), names if len(names) == 1 else [])


def _kind(table: Table, column: str, kind: str, want: Kind | None) -> Kind:
    if kind in ("picture", "bytes") or (kind == "list" and want == "pictures"):
        return "pictures"
    if kind == "text":
        if want in ("texts", "pictures"):
            return want
        first = next((cell for cell in (table.row(i, [column])[0] for i in range(min(len(table), 5))) if cell), "")
        return "pictures" if str(first).lower().endswith(ENDINGS) else "texts"
    return "numbers"


def _array(cell: object, column: str) -> torch.Tensor:
    try:
        array = np.array(cell)
    except ValueError as error:
        raise InputError(f"column {column!r}: its lists have different lengths") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"column {column!r}: expected numbers, got {array.dtype}, as where one is missing")
    return torch.from_numpy(array)


def _listed(table: Table) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in table.kinds.items()) or "none"
