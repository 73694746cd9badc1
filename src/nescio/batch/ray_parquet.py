"""Parquet read by tasks of Ray, before the workers that score: each row is decoded once, in whatever machine is free.

    runs of missing parts ──► read, a task for each run ──► (start, stop, rows as Arrow) ──► the worker that scores them

`ray.data.read_parquet` gives rows without their places, in blocks of its own size. A part of the result has to have
the rows of the local engine's part, in its batches, and a run that goes on wants the missing parts alone. So tasks of
our own read, by pyarrow as Ray's do. Parts that begin in the same group of rows of a file are one run, for
a group can only be read from its beginning.

What cannot be read, or is too large to be sent, is not: the worker reads it itself, and tells which row is at fault.
"""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NamedTuple

from nescio._common.lazy_imports import need
from nescio.data.sources import Rows
from nescio.data.sources.arrow_files import BLOCK, ParquetTable, plain_cell
from nescio.data.sources.table_rows import TableRows

MOST = 128 * 2**20
"""Bytes of a part that are sent, at most."""


class Group(NamedTuple):
    """Name a group of rows of a Parquet file, and its place among all rows.

    Args:
        file: The path of the file.
        number: The place of the group in it.
        first: The place of its first row among the rows of all files.
        rows: How many rows it has.

    Examples:
        >>> Group("/data/x.parquet", number=1, first=1000, rows=1000).first
        1000
    """

    file: str
    number: int
    first: int
    rows: int


def groups(rows: Rows) -> list[Group]:
    """Return the groups of rows of Parquet files.

    Args:
        rows: The data.

    Returns:
        The groups, in order; none where the data are something else.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> groups(example_job().open().rows)
        []
    """
    if not (isinstance(rows.store, TableRows) and isinstance(rows.store._table, ParquetTable)):
        return []
    parquet, row_groups, first = need("pyarrow.parquet", "files"), [], 0
    for file in rows.store._table._files:
        with parquet.ParquetFile(file) as opened:
            for number in range(opened.metadata.num_row_groups):
                count = opened.metadata.row_group(number).num_rows
                row_groups.append(Group(str(file.resolve()), number, first, count))
                first += count
    return row_groups


def runs(parts: Sequence[range], row_groups: Sequence[Group]) -> list[list[range]]:
    """Return the parts, in order, in runs that begin in the same group.

    Args:
        parts: Ranges of rows.
        row_groups: That of `groups`.

    Returns:
        The parts of each run.

    Examples:
        >>> both = [Group("x", 0, first=0, rows=4), Group("x", 1, first=4, rows=4)]
        >>> runs([range(0, 2), range(2, 4), range(4, 6)], both)
        [[range(0, 2), range(2, 4)], [range(4, 6)]]
    """
    starts = [group.first for group in row_groups]
    return [list(run) for _, run in groupby(parts, lambda part: bisect_right(starts, part.start))]


def tasks(todo: Sequence[Sequence[range]], row_groups: Sequence[Group]) -> Iterator[dict[str, bytes]]:
    """Give for each run what a task has to know to read it: its parts and the groups that hold them, and no others.

    Args:
        todo: That of `runs`.
        row_groups: That of `groups`.

    Returns:
        For each run a row of Ray's, with the parts and the groups pickled under "run".

    Examples:
        >>> both = [Group("x", 0, first=0, rows=4), Group("x", 1, first=4, rows=4)]
        >>> [pickle.loads(row["run"]) for row in tasks([[range(4, 6)]], both)]
        [([range(4, 6)], [('x', 1, 4, 4)])]
    """
    starts = [group.first for group in row_groups]
    for run in todo:
        first, last = (bisect_right(starts, at) for at in (run[0].start, max(run[-1].stop - 1, 0)))
        plain = [tuple(group) for group in row_groups[max(first - 1, 0) : last]]  # a task does without this module
        yield {"run": pickle.dumps((list(run), plain))}


def reader(rows: Rows) -> Callable[[dict[str, Any]], Any]:
    """Return a function for Ray's `map_batches` that reads runs of parts.

    Args:
        rows: The data.

    Returns:
        A function from {"run": [that of `tasks`]} to {"start", "stop", "table"}, one part at a time.

    Examples:
        >>> import tempfile
        >>> import pyarrow
        >>> from pyarrow.parquet import write_table
        >>> from nescio.data.sources import open_data
        >>> file = tempfile.mkdtemp() + "/x.parquet"
        >>> write_table(pyarrow.table({"x": [1.0, 2.0, 3.0]}), file)
        >>> rows = open_data(file)
        >>> (task,) = tasks([[range(0, 2), range(2, 3)]], groups(rows))
        >>> [(part["start"], part["stop"]) for part in reader(rows)({"run": [task["run"]]})]
        [([0], [2]), ([2], [3])]
    """
    columns, block, most = list(rows.store.columns), BLOCK, MOST  # type: ignore[attr-defined]  # `groups` has looked

    def read(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:  # travels by value: its process does without torch
        import pyarrow as arrow
        from pyarrow.parquet import ParquetFile

        run, row_groups = pickle.loads(batch["run"][0])

        def pieces(start: int) -> Iterator[tuple[int, Any]]:
            for file, number, first, count in row_groups:
                if first + count > start:
                    for piece in ParquetFile(file).iter_batches(
                        block, row_groups=[number], columns=columns, use_threads=False
                    ):
                        yield first, piece
                        first += len(piece)

        def tables() -> Iterator[Any]:
            coming = pieces(run[0].start)
            held: list[tuple[int, Any]] = []
            for part in run:
                while not held or held[-1][0] + len(held[-1][1]) < part.stop:
                    held.append(next(coming))
                held = [(first, piece) for first, piece in held if first + len(piece) > part.start]
                table = arrow.Table.from_batches([piece for _, piece in held])
                yield table.slice(part.start - held[0][0], len(part))

        def sent(table: Any) -> bytes:
            if table.nbytes > most:
                return b""
            out = arrow.BufferOutputStream()
            with arrow.ipc.new_stream(out, table.schema) as stream:
                stream.write_table(table)
            return bytes(out.getvalue())

        known = tables()
        for part in run:
            try:
                content = sent(next(known))
            except Exception:  # the worker meets it too
                content, known = b"", iter(())
            yield {"start": [part.start], "stop": [part.stop], "table": [content]}

    return read


class Tables:
    """Feed parts with their rows, which tasks of Ray have read (`nescio.batch.ray_pool.Feed`).

    This process has references to the rows of a few parts, not the rows. What a task that was lost has not sent is read
    by the workers.

    Args:
        rows: The data.
        parts: Ranges of rows.
        row_groups: That of `groups`.
        most: How many tasks read at a time.

    Examples:
        >>> feed = Tables(rows, parts, groups(rows), most=2)  # doctest: +SKIP
        >>> feed.came(feed.coming()[0])  # doctest: +SKIP
        >>> feed.take()  # doctest: +SKIP
        (range(0, 256), ObjectRef(...))
    """

    def __init__(self, rows: Rows, parts: Sequence[range], row_groups: Sequence[Group], most: int) -> None:
        read = reader(rows)

        def sent(run: bytes) -> Iterator[bytes]:
            for one in read({"run": [run]}):
                yield one["table"][0]

        self._read = (
            need("ray", "ray")
            .remote(sent)
            .options(
                num_cpus=0,  # the workers may have all cores, and wait for it
                num_returns="streaming",
                _generator_backpressure_num_objects=2,
                max_retries=0,
                scheduling_strategy="SPREAD",
                enable_task_events=False,
            )
        )
        todo = runs(parts, row_groups)
        self._todo = zip(todo, tasks(todo, row_groups), strict=True)
        self._open: dict[Any, deque[range]] = {}
        self._here: deque[tuple[range, Any]] = deque()
        self._most = most

    def take(self) -> tuple[range, Any] | None:
        """Return a part and a reference to its rows; None where none was read yet."""
        return self._here.popleft() if self._here else None

    def coming(self) -> list[Any]:
        """Return the tasks that read; none where enough was read for now."""
        if len(self._here) >= self._most:
            return []
        while len(self._open) < self._most and (run := next(self._todo, None)) is not None:
            self._open[self._read.remote(run[1]["run"])] = deque(run[0])
        return list(self._open)

    def came(self, one: Any) -> None:
        """Take what a task has read of a part, or the parts that it has not read.

        Args:
            one: One of those that `coming` gave.
        """
        parts = self._open[one]
        try:
            table = next(one)
        except StopIteration:
            self._here.extend((part, b"") for part in self._open.pop(one))
            return
        self._here.append((parts.popleft(), table))
        if not parts:
            del self._open[one]


@contextmanager
def lent(rows: Rows, start: int, content: bytes) -> Iterator[None]:
    """Take rows from what was sent, and not from the file, within the block.

    Args:
        rows: The data.
        start: The place of the first row that was sent.
        content: The rows, as an Arrow stream; empty where nothing was sent.

    Returns:
        A context manager.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> rows = example_job().open().rows
        >>> with lent(rows, 0, b""):
        ...     len(rows)
        8
    """
    if not content:
        yield
        return
    store: Any = rows.store
    kept = store._table
    store._table = _Lent(kept, start, need("pyarrow.ipc", "files").open_stream(content).read_all().combine_chunks())
    try:
        yield
    finally:
        store._table = kept


class _Lent:
    """A table of which some rows are here already."""

    def __init__(self, table: ParquetTable, start: int, block: Any) -> None:
        self.table, self.start, self.block = table, start, block

    def __len__(self) -> int:
        return len(self.table)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

    def row(self, index: int, columns: Sequence[str]) -> list[Any]:
        """The cells of these columns."""
        place = index - self.start
        if 0 <= place < len(self.block):
            return [plain_cell(self.block.column(column)[place]) for column in columns]
        return self.table.row(index, columns)
