"""Files of one kind, with the same columns, made into one, part by part: memory does not grow with what they hold.

The bytes are those that `nescio.data.tables` would have written for all rows at once (CSV, JSON), or depend on the rows
alone, and not on how they were parted (Parquet).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nescio._common.lazy_imports import need
from nescio.data.tables import Columns, read_table, write_table

GROUP = 1 << 16
"""Rows that lie together in a joined Parquet file."""


def _join_csv(files: Sequence[Path], joined: Path) -> None:
    """Join CSV files; the first line of each holds the names of the columns."""
    with joined.open("wb") as out:
        for number, file in enumerate(files):
            with file.open("rb") as part:
                names = part.readline()
                if number == 0:
                    out.write(names)
                shutil.copyfileobj(part, out)


def _join_json(files: Sequence[Path], joined: Path) -> None:
    """Join JSON files; each is a list whose first and last line hold its brackets alone."""
    with joined.open("wb") as out:
        between = b"[\n"
        for file in files:
            if body := file.read_bytes()[len(b"[\n") : -len(b"\n]\n")]:
                out.write(between + body)
                between = b",\n"
        out.write(b"[\n\n]\n" if between == b"[\n" else b"\n]\n")


def _join_parquet(files: Sequence[Path], joined: Path) -> None:
    """Join Parquet files, in groups of rows of the usual size, whatever the sizes of the parts."""
    arrow, parquet = need("pyarrow", "files"), need("pyarrow.parquet", "files")
    held: list[Any] = []
    with parquet.ParquetWriter(joined, parquet.read_schema(files[0])) as out:
        for number, file in enumerate(files):
            held.append(parquet.ParquetFile(file).read())
            table = arrow.concat_tables(held)
            last = number + 1 == len(files)
            while len(table) >= GROUP or (last and len(table)):
                out.write_table(table.slice(0, GROUP))
                table = table.slice(GROUP)
            held = [table]


def rewritten(files: Sequence[Path], change: Callable[[Any], Columns], folder: str) -> list[Path]:
    """The files with other columns, of the same names in another folder."""
    written = [Path(folder, file.name) for file in files]
    for old, new in zip(files, written, strict=True):
        write_table(new, change(read_table(old)))
    return written


JOIN = {".parquet": _join_parquet, ".csv": _join_csv, ".json": _join_json}
"""By the ending of the files: a function of the files, in order, and of the path to write to."""
