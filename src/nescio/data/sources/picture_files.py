"""Pictures in files: a folder, with sub-folders that name classes or without, or a list of paths.

A folder's pictures are in the order of their paths. The first part of the path is the class, where there are at least
two such parts and no picture lies outside of them. In a list (``.txt``) a line is a path, and after it a label, parted
by a tab or, where the line as a whole is no file, by its last space.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from nescio._common.formatting import count
from nescio.data.sources.decode import ENDINGS, decode
from nescio.data.sources.labels import Labels
from nescio.data.sources.rows import Kind
from nescio.types import InputError


class PictureFiles:
    """A `Store` of picture files."""

    kind: Kind = "pictures"

    def __init__(self, root: Path, names: Sequence[str], values: list[str] | None, about: str) -> None:
        self._root, self._files, self._values = root, names, values
        self.about = about
        self.names = [os.fsencode(name).decode("utf-8", "backslashreplace") for name in names]

    @cached_property
    def identity(self) -> str:
        """A hash of the names, the labels, and the size and time of every file: a picture that changes is another."""
        stamps = [_stamp(self._root / name) for name in self._files]
        content = "\n".join([*self.names, *(self._values or []), *stamps])
        return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()

    def __len__(self) -> int:
        return len(self._files)

    def path(self, index: int) -> Path:
        """Where the picture lies."""
        return self._root / self._files[index]

    def raw(self, index: int) -> object:
        return decode(self.path(index))

    def labels(self) -> Labels | None:
        return None if self._values is None else Labels(self._values)


def folder(root: Path, label: str | None = "auto") -> PictureFiles:
    """The pictures in a folder and below; with None as label the names of its folders are no labels."""
    names: list[str] = []
    other: list[str] = []
    for name in _walk(root):
        (names if name.lower().endswith(ENDINGS) else other).append(name)
    if not names:
        content = f"{count(len(other), 'other file')}, such as {other[0]}" if other else "nothing"
        raise InputError(f"expected pictures ({', '.join(ENDINGS[:6])} …) in the folder {root}, found {content}")
    tops = {name.partition(os.sep)[0] if os.sep in name else "" for name in names}
    labelled = label is not None and len(tops) > 1 and "" not in tops
    words = f" in {len(tops)} classes" if labelled else ""
    left = f"; {count(len(other), 'other file')} left out, such as {other[0]}" if other else ""
    values = [name.partition(os.sep)[0] for name in names] if labelled else None
    return PictureFiles(root, names, values, f"{count(len(names), 'picture')}{words} in {root}{left}")


def listed(file: Path, label: str | None = "auto") -> PictureFiles:
    """The pictures that a list names; paths are as seen from the list. With None as label its labels are left out."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"expected a list of paths in UTF-8 in {file}, but it is something else ({error})") from error
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise InputError(f"expected a path on each line of {file}, but it has none")
    tabbed = any("\t" in line for line in lines)
    parted = [_parted(line.strip(), tabbed, file.parent) for line in lines]
    names, values = [path for path, _ in parted], [value for _, value in parted]
    labelled = label is not None and 2 * sum(map(bool, values)) > len(values)
    words = " with labels" if labelled else ""
    about = f"{count(len(names), 'picture')}{words} of {file}"
    return PictureFiles(file.parent, names, values if labelled else None, about)


def _stamp(file: Path) -> str:
    try:
        status = file.stat()
    except OSError:  # it is told as a problem when it is read
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _parted(line: str, tabbed: bool, root: Path) -> tuple[str, str]:
    if tabbed:
        path, _, value = line.partition("\t")
        return path.strip(), value.strip()
    if " " not in line or (root / line).exists():
        return line, ""
    path, value = line.rsplit(maxsplit=1)
    looks = path.lower().endswith(ENDINGS) and not value.lower().endswith(ENDINGS)
    return (path, value) if looks or (root / path).exists() else (line, "")


def _walk(root: Path) -> list[str]:
    """Every file below the folder, as seen from it, in order; hidden ones and circles of links are left out."""
    names: list[str] = []
    seen = set()

    def failed(error: OSError) -> None:
        raise InputError(f"cannot read the folder {error.filename}: {error.strerror or error}") from error

    for place, below, files in os.walk(root, onerror=failed, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(name for name in below if not name.startswith("."))
        names += [os.path.relpath(os.path.join(place, name), root) for name in files if not name.startswith(".")]
    return sorted(names, key=lambda name: name.split(os.sep))
