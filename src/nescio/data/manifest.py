"""The manifest of a folder of parts (`nescio.data.parts`), as it is read: what was settled, and what is there."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nescio.types import InputError

MANIFEST = "_manifest.json"
FORMAT, VERSION = "nescio.parts", 1


def settled(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
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
        raise InputError(f"cannot read {file}: {error}; --fresh begins anew") from error


def gaps(whole: range, kept: Sequence[range]) -> list[range]:
    """The parts of a range that are not in `kept`, whose ranges are in order and within it."""
    between, at = [], whole.start
    for piece in kept:
        if at < piece.start:
            between.append(range(at, piece.start))
        at = piece.stop
    return [*between, range(at, whole.stop)] if at < whole.stop else between


def merged(ranges: Sequence[range]) -> list[list[int]]:
    """Ranges of rows, neighbours as one: [[first, after the last], …]."""
    pairs: list[list[int]] = []
    for part in ranges:
        if pairs and pairs[-1][1] == part.start:
            pairs[-1][1] = part.stop
        else:
            pairs.append([part.start, part.stop])
    return pairs
