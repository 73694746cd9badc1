"""The manifest of a folder of parts (`nescio.data.parts`): what was settled, and which parts are there.

    _manifest.json    written as a whole, and seldom: what it costs grows with the parts
    _journal.jsonl    a line for each part since then, added when the part is there: what that costs does not grow

Both together are what is known. A line that a kill has cut short is no line: its part is made again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

from nescio.data.atomic import replacing
from nescio.data.sources.rows import Problem
from nescio.types import InputError

MANIFEST, JOURNAL = "_manifest.json", "_journal.jsonl"
FORMAT, VERSION = "nescio.parts", 1


class Entry(NamedTuple):
    """Say what is known of a part; there may be very many, so it is small."""

    start: int
    stop: int
    rows: int
    sha256: str
    notes: str = "{}"
    """As JSON."""

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Entry:
        """Read what `line` gave."""
        known = (int(record["start"]), int(record["stop"]), int(record["rows"]), str(record["sha256"]))
        return cls(*known, json.dumps(record["notes"]))

    def line(self, file: str) -> str:
        """Return the same as JSON, with the name of its file."""
        known = {"file": file, "start": self.start, "stop": self.stop, "rows": self.rows, "sha256": self.sha256}
        return f'{json.dumps(known)[:-1]}, "notes": {self.notes}}}'


class Journal:
    """The parts that the manifest does not list yet."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / JOURNAL
        self._out: FileIO | None = None

    def add(self, entry: Entry, file: str, problems: Sequence[Problem]) -> None:
        """Add a line. It is not forced to the disk: what a power cut takes away is made again."""
        text = f', "problems": {json.dumps([vars(one) for one in problems])}' if problems else ""
        line = f"{entry.line(file)[:-1]}{text}}}\n".encode()
        try:
            if self._out is None:
                self._out = FileIO(self.file, "a")
            if self._out.write(line) != len(line):
                raise OSError("there was no room for it")
        except OSError as error:
            raise InputError(f"cannot write {self.file}: {error.strerror or error}") from error

    def records(self) -> Iterator[dict[str, Any]]:
        """Give the lines that are whole."""
        if not self.file.is_file():
            return
        with self.file.open("rb") as lines:
            for line in lines:
                try:
                    record = json.loads(line)
                except ValueError:  # cut off
                    continue
                yield record

    def close(self) -> None:
        """End to add lines."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def clear(self) -> None:
        """Remove it: the manifest lists what was in it."""
        self.close()
        self.file.unlink(missing_ok=True)


def earlier_settings(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What an earlier run in this folder has settled: its identity, and `part_rows`; None where there was none."""
    file = Path(folder) / MANIFEST
    if not file.is_file():
        return None
    record = read(file)
    return {**record["identity"], "part_rows": record["part_rows"]}


def read(file: Path) -> dict[str, Any]:
    """What the manifest says."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["format"] != FORMAT or record["version"] != VERSION:
            raise ValueError(f"it is {record['format']} {record['version']}")
        return {key: record[key] for key in ("identity", "about", "rows", "part_rows", "parts", "problems")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"cannot read {file}: {error}; begin again with --fresh") from error


def write(folder: Path, record: dict[str, Any], problems: Iterable[Problem], lines: Iterable[str]) -> None:
    """Write the manifest: the record, then problems and parts, each on a line, without holding them all as text."""
    head = json.dumps({"format": FORMAT, "version": VERSION, **record}, indent=1).removesuffix("\n}")
    with replacing(folder / MANIFEST) as file, file.open("w", encoding="utf-8") as out:
        out.write(head)
        for name, items in (("problems", (json.dumps(vars(one)) for one in problems)), ("parts", lines)):
            out.write(f',\n "{name}": [')
            out.writelines(f"{',' if number else ''}\n  {line}" for number, line in enumerate(items))
            out.write("\n ]")
        out.write("\n}\n")


def gaps(whole: range, kept: Sequence[range]) -> list[range]:
    """The parts of a range that are not in `kept`, whose ranges are in order and within it."""
    between, at = [], whole.start
    for piece in kept:
        if at < piece.start:
            between.append(range(at, piece.start))
        at = piece.stop
    return [*between, range(at, whole.stop)] if at < whole.stop else between


def merged(ranges: Iterable[range]) -> list[list[int]]:
    """Ranges of rows, neighbours as one: [[first, after the last], …]."""
    pairs: list[list[int]] = []
    for part in ranges:
        if pairs and pairs[-1][1] == part.start:
            pairs[-1][1] = part.stop
        else:
            pairs.append([part.start, part.stop])
    return pairs
