"""A long table as a folder of parts, so that work on it can be cut off at any moment and goes on where it was.

    part-000000.parquet …   rows 0 to n − 1, n to 2n − 1, …, each written as a whole or not at all; what is kept before
                            such a part is done is part-000000_000000, part-000000_000012, … after its first row
    _manifest.json          what the rows were made from (`identity`), which parts are there with their sha256, which
                            rows are missing, and which could not be used
    _journal.jsonl          a line for each part that the manifest does not list yet, while a run is at work
    _runs.jsonl             a line for each run: how long, how fast; for people

A part counts when the manifest or the journal lists it and its bytes are what that says. The line is written after the
part, so what a kill takes away is computed again, and nothing counts twice. Where work is slow a part is kept piece by
piece, as time passes; so the cuts between files may be others in another run, but no row is, and no file but
``_runs.jsonl`` holds a time. Readers of Parquet leave out names that begin with an underscore, and take the folder as
one table. `Parts.join` makes one file of it, part by part, whose bytes depend on the rows alone: the same work gives
the same bytes, however often it was cut off, and wherever.

Another process may write a part too, on this machine or on one that has the same folder: `WorkerFolder.write` there,
under a name that no reader takes for a part, then `Parts.adopt` here. So parts are kept by one process alone, and what
a lost worker has written does no harm.
"""

from __future__ import annotations

import json
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from nescio.data.atomic import replacing
from nescio.data.folder_lock import FolderLock
from nescio.data.joining import JOIN, rewritten
from nescio.data.manifest import JOURNAL, MANIFEST, Entry, Journal, gaps, merged, read, write
from nescio.data.sources.rows import Problem
from nescio.data.tables import Columns, check_ending, write_table
from nescio.data.worker_parts import WorkerFolder, WrittenPart, sha256_of, token
from nescio.types import InputError

RUNS = "_runs.jsonl"
KEPT = 30.0
"""Seconds of work after which it is kept, if a batch can be done in less."""
PATIENCE = 100
"""The manifest is written again only after so many times the time that writing it took."""
_PART = re.compile(r"part-\d{6,}(_\d{6,})?\.(parquet|csv|json)")
_OWN = re.compile(rf"{_PART.pattern}|_manifest\.json|_journal\.jsonl|_runs\.jsonl")
_NONE: tuple[int, Iterator[Entry]] = (-1, iter(()))
_CUT_OFF = re.compile(  # what `replacing`, or a worker, leaves when it is killed
    r"\..*\.[a-z0-9_]{8}\.part|\.aside\.[0-9a-f]{8}(\.parquet|\.csv|\.json)?"
)


def part_rows(total: int, batch: int, wanted: int | None = None, seconds: float | None = None) -> int:
    """How many rows a part has: a multiple of the batch, about a twentieth of few rows, a thousandth of many.

    seconds: what a row takes, where that is known; then no more than take half of `KEPT`, unless a batch does.
    """
    least = max(1, wanted if wanted is not None else max(min(1024, total // 20), total // 1000))
    if wanted is None and seconds is not None and seconds > 0:
        least = min(least, max(1, int(KEPT / 2 / seconds) // batch * batch))
    return -(-least // batch) * batch


class Parts:
    """The parts of a table of `total` rows of input, `size` to a part; a context, which holds the folder meanwhile.

    identity: what the rows are made from, as JSON can hold it. A folder with parts of another identity is refused,
    or emptied where `fresh` is True. The folder is made with the first part. about: more for people to know, which may
    differ; `earlier` is what an earlier run has said. ending: the kind of files.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        total: int,
        size: int,
        identity: Mapping[str, Any],
        *,
        about: Mapping[str, Any] | None = None,
        ending: str = ".parquet",
        fresh: bool = False,
    ) -> None:
        check_ending(f"part{ending}")
        self.folder, self.total, self.size, self.ending = Path(folder), total, size, ending
        self.identity: dict[str, Any] = json.loads(json.dumps(dict(identity)))
        self.about, self.earlier = dict(about or {}), dict(about or {})
        self.damaged: list[str] = []
        """Files that the manifest lists, but that are gone or changed."""
        self._entries: dict[int, Entry] = {}  # by their first row
        self._problems: dict[int, list[Problem]] = {}
        self._lock, self._journal = FolderLock(self.folder), Journal(self.folder)
        self._made = False
        self._written, self._took = 0.0, 0.0
        if self.folder.exists():
            self._lock.hold()
            try:
                self._find(fresh)
            except BaseException:
                self._lock.release()
                raise
        self.before = self.rows
        """Rows that were there from the start."""

    def __len__(self) -> int:
        """The number of rows of the input."""
        return self.total

    @property
    def rows(self) -> int:
        """The number of rows that are kept."""
        return sum(entry.rows for entry in self._entries.values())

    @property
    def problems(self) -> list[Problem]:
        """The rows that could not be used, in the parts that are there, in order."""
        return [problem for start in sorted(self._problems) for problem in self._problems[start]]

    @property
    def notes(self) -> list[tuple[int, dict[str, Any]]]:
        """The number of rows of each part that is there, and what was noted with it."""
        return [(entry.rows, json.loads(entry.notes)) for entry in self._in_order()]

    @property
    def missing(self) -> list[range]:
        """The parts that are still to be made, as ranges of rows; one without rows for a table without any."""
        return list(self._missing())

    def _missing(self) -> Iterator[range]:
        if not self.total:
            yield from () if self._entries else [range(0)]
            return
        kept = groupby(self._in_order(), lambda entry: entry.start // self.size)
        number, pieces = next(kept, _NONE)
        for at, first in enumerate(range(0, self.total, self.size)):
            there: list[range] = []
            if number == at:
                there = [range(piece.start, piece.stop) for piece in pieces]
                number, pieces = next(kept, _NONE)
            yield from gaps(range(first, min(first + self.size, self.total)), there)

    def _in_order(self) -> Iterator[Entry]:
        return (self._entries[start] for start in sorted(self._entries))

    def add(self, part: range, columns: Columns, problems: Sequence[Problem] = (), notes: object = None) -> None:
        """Keep the rows of a part, which is one of `missing`, or how one begins. notes: anything that JSON can hold."""
        if not self._lock.is_held:
            self._make()
        file = self._file(part)
        write_table(file, columns)
        self._keep(part, len(next(iter(columns.values()))), sha256_of(file), problems, notes)

    def adopt(self, part: range, written: WrittenPart, problems: Sequence[Problem] = (), notes: object = None) -> None:
        """`add` for rows that another process has written."""
        file = self._file(part)
        try:
            os.replace(self.folder / written.file, file)
        except OSError as error:
            raise InputError(f"cannot write {file}: {error.strerror or error}") from error
        self._keep(part, written.rows, written.sha256, problems, notes)

    @contextmanager
    def worker_folder(self) -> Iterator[WorkerFolder]:
        """Let other processes write parts within the block."""
        if not self._lock.is_held:
            self._make()
        mark = self.folder / token()
        with replacing(mark):
            pass
        try:
            yield WorkerFolder(str(self.folder.resolve()), self.ending, mark.name)
        finally:
            self._unlink(name for name in self._inside() if _CUT_OFF.fullmatch(name))

    def _file(self, part: range | Entry) -> Path:
        number, offset = divmod(part.start, self.size)
        whole = part.stop >= min((number + 1) * self.size, self.total) and not offset
        return self.folder / f"part-{number:06d}{'' if whole else f'_{offset:06d}'}{self.ending}"

    def _keep(self, part: range, rows: int, sha256: str, problems: Sequence[Problem], notes: object) -> None:
        entry = Entry(part.start, part.stop, rows, sha256, "{}" if notes is None else json.dumps(notes))
        self._journal.add(entry, self._file(part).name, problems)
        self._entries[part.start] = entry
        if problems:
            self._problems[part.start] = list(problems)
        if time.monotonic() - self._written >= PATIENCE * self._took:
            self.flush()

    def flush(self) -> None:
        """Write the manifest."""
        began = time.monotonic()
        missing = merged(self._missing())
        record = {
            "identity": self.identity,
            "about": self.about,
            "rows": self.total,
            "part_rows": self.size,
            "complete": not missing,
            "missing": missing,
        }
        write(self.folder, record, self.problems, (entry.line(self._file(entry).name) for entry in self._in_order()))
        self._journal.clear()
        self._written = time.monotonic()
        self._took = self._written - began

    def settle(self) -> None:
        """Write the manifest if possible. If it fails, as on a full disk, the journal says what it would."""
        with suppress(InputError):
            self.flush()

    def log(self, record: Mapping[str, Any]) -> None:
        """Add a line on this run to the log; an error in doing so is ignored."""
        with suppress(OSError), (self.folder / RUNS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    @property
    def files(self) -> list[Path]:
        """The files of the parts that are there, in order."""
        return [self._file(entry) for entry in self._in_order()]

    def join(self, file: str | os.PathLike[str], change: Callable[[Any], Columns] | None = None) -> None:
        """All parts as one file of their kind, whole or not at all; change: from a part's columns to those written."""
        if self.missing or check_ending(Path(file)) != self.ending:
            raise InputError(f"expected all parts, and a file that ends in {self.ending} to join them in, got {file}")
        with replacing(Path(file)) as joined, TemporaryDirectory() as changed:
            JOIN[self.ending](self.files if change is None else rewritten(self.files, change, changed), joined)

    def remove(self) -> None:
        """Remove the folder, less what is not of these parts; the manifest goes last, for it says what was there."""
        self._journal.clear()
        self._unlink(name for name in self._inside() if _OWN.fullmatch(name) or _CUT_OFF.fullmatch(name))
        with suppress(OSError):  # it holds other files
            self.folder.rmdir()
        self._entries, self._problems = {}, {}

    def __str__(self) -> str:
        """What is kept and how to go on, for a message."""
        if not self.rows:
            return "nothing was kept"
        return f"{self.rows} of {self.total} rows are kept in {self.folder}: the same command goes on from there"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._lock.is_held:
            return
        if self._entries:
            self.settle()
        if self._made and not self.rows and self.total:
            self.remove()
        self._journal.close()
        self._lock.release()

    def _make(self) -> None:
        """The folder, with a manifest that lists no part yet."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {self.folder}: {error.strerror or error}") from error
        self._made = True
        self._lock.hold()
        self.flush()

    def _find(self, fresh: bool) -> None:
        """What an earlier run has left."""
        known = (self.folder / MANIFEST).is_file()
        inside = self._inside()
        for name in inside:
            if not (_CUT_OFF.fullmatch(name) or (known and _OWN.fullmatch(name))):
                raise InputError(
                    f"expected an empty folder, or one that this command has written, but {self.folder} holds "
                    f"{name}; name another folder"
                )
        self._unlink(inside if fresh else filter(_CUT_OFF.fullmatch, inside))
        if fresh or not known:
            self.flush()
            return
        record = read(self.folder / MANIFEST)
        own = {**self.identity, "rows": self.total, "part_rows": self.size}
        theirs = {**record["identity"], "rows": record["rows"], "part_rows": record["part_rows"]}
        if different := [key for key in {**own, **theirs} if own.get(key) != theirs.get(key)]:
            raise InputError(
                f"{self.folder} holds rows of another run: not the same {', '.join(different)}. Give the command of "
                "that run to go on with it, --fresh to begin anew, or another --out"
            )
        self.earlier = record["about"]
        since = list(self._journal.records())
        listed = {one["start"]: one for one in chain(record["parts"], since)}
        self._count(listed[start] for start in sorted(listed))
        self._recall(chain(record["problems"], *(one.get("problems", []) for one in since)))
        counted = {self._file(entry).name for entry in self._entries.values()}
        # what was written but not listed; the next cut may be elsewhere
        self._unlink(name for name in inside if _PART.fullmatch(name) and name not in counted)
        if since:
            self.flush()

    def _count(self, listed: Iterator[dict[str, Any]]) -> None:
        """Take the parts whose files are what was listed."""
        for record in listed:
            entry = Entry.of_record(record)
            file = self._file(entry)
            if file.name == record["file"] and file.is_file() and sha256_of(file) == entry.sha256:
                self._entries[entry.start] = entry
            else:
                self.damaged.append(Path(record["file"]).name)

    def _recall(self, told: Iterator[dict[str, Any]]) -> None:
        """Take the problems of the parts that count."""
        starts, by_index = sorted(self._entries), {}
        for one in told:
            start = starts[bisect_right(starts, one["index"]) - 1] if starts else 0
            if start in self._entries and start <= one["index"] < self._entries[start].stop:
                by_index[one["index"]] = (start, Problem(**one))  # once, though a kill left both lists
        for _, (start, problem) in sorted(by_index.items()):
            self._problems.setdefault(start, []).append(problem)

    def _inside(self) -> list[str]:
        return sorted(os.listdir(self.folder)) if self.folder.is_dir() else []

    def _unlink(self, names: Iterable[str]) -> None:
        """Remove files; the manifest goes last, for it says what was there."""
        for name in sorted(names, key=lambda name: (name == MANIFEST, name == JOURNAL)):
            (self.folder / name).unlink(missing_ok=True)


def clean(file: str | os.PathLike[str]) -> None:
    """Remove what a killed `replacing` of this file left beside it; only when no other process writes it."""
    target = Path(os.path.realpath(file))
    left = re.compile(rf"\.{re.escape(target.name[:100])}\.[a-z0-9_]{{8}}\.part")
    for path in target.parent.iterdir():
        if left.fullmatch(path.name):
            path.unlink(missing_ok=True)
