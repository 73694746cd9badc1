"""Files of one kind, with the same columns, made into one, part by part: memory does not grow with what they hold.

The bytes are those that `nescio.data.tables` would have written for all rows at once (CSV, JSON), or depend on the rows
alone, and not on how they were parted (Parquet).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from nescio._common.lazy_imports import need
from nescio.data.tables import Columns, read_table, write_table

GROUP = 1 << 16
"""Rows that lie together in a joined Parquet file."""


def _join_csv(files: Iterable[Path], joined: Path) -> None:
    """Join CSV files; the first line of each holds the names of the columns."""
    with joined.open("wb") as out:
        for number, file in enumerate(files):
            with file.open("rb") as part:
                names = part.readline()
                if number == 0:
                    out.write(names)
                shutil.copyfileobj(part, out)


def _join_json(files: Iterable[Path], joined: Path) -> None:
    """Join JSON files; each is a list whose first and last line hold its brackets alone."""
    with joined.open("wb") as out:
        between = b"[\n"
        for file in files:
            if body := file.read_bytes()[len(b"[\n") : -len(b"\n]\n")]:
                out.write(between + body)
                between = b",\n"
        out.write(b"[\n\n]\n" if between == b"[\n" else b"\n]\n")


def _join_parquet(files: Iterable[Path], joined: Path) -> None:
    """Join Parquet files, in groups of rows of the usual size, whatever the sizes of the parts."""
    tables = _tables(files)
    first = next(tables)
    with need("pyarrow.parquet", "files").ParquetWriter(joined, first.schema) as out:
        for group in _groups(first, tables):
            out.write_table(group)


def _tables(files: Iterable[Path]) -> Iterator[Any]:
    for file in files:
        with need("pyarrow.parquet", "files").ParquetFile(file) as opened:
            yield opened.read(use_threads=False)


def _groups(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    """The rows of all tables, `GROUP` at a time. Small tables are joined once a group is there: each join costs all."""
    concat = need("pyarrow", "files").concat_tables
    held, rows = [first], len(first)
    for table in others:
        if rows >= GROUP:
            whole = concat(held)
            while len(whole) >= GROUP:
                yield whole.slice(0, GROUP)
                whole = whole.slice(GROUP)
            held, rows = [whole], len(whole)
        held.append(table)
        rows += len(table)
    whole = concat(held)
    for start in range(0, len(whole), GROUP):
        yield whole.slice(start, GROUP)


def rewritten(files: Iterable[Path], change: Callable[[Any], Columns], folder: str) -> Iterator[Path]:
    """The files with other columns, each of the same name in another folder, where it lies until the next is wanted."""
    for old in files:
        new = Path(folder, old.name)
        write_table(new, change(read_table(old)))
        yield new
        new.unlink()


JOIN = {".parquet": _join_parquet, ".csv": _join_csv, ".json": _join_json}
"""By the ending of the files: a function of the files, in order, and of the path to write to."""
