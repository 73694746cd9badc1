"""Names for rows that have none of their own, and a mark by which a file that was changed is known."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload


class Numbered(Sequence[str]):
    """``file[0]``, ``file[1]`` …, made when they are asked for."""

    def __init__(self, file: str, count: int) -> None:
        self._file, self._count = file, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(self._count)[index]
        return [f"{self._file}[{i}]" for i in places] if isinstance(places, range) else f"{self._file}[{places}]"


def stamp(path: Path, *settings: Any) -> str:
    """A hash of a file's name, size and time of change, and of these settings."""
    known = path.stat()
    return hashlib.sha256(
        f"{path.name} {known.st_size} {known.st_mtime_ns} {settings!r}".encode("utf-8", "backslashreplace")
    ).hexdigest()
