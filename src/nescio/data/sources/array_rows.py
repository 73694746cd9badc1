"""Rows of arrays: x or others of an ``.npz`` file, or an ``.npy`` file; read one by one unless it is compressed.

`numpy.savez` stores an array as it is, so that a row can be read without the others; `numpy.savez_compressed` packs it,
and then it is read as a whole. Files are never unpickled.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as layout
from numpy.typing import NDArray

from nescio._common.formatting import count
from nescio.data.npz_files import array_name, read_npz
from nescio.data.sources.labels import Labels
from nescio.data.sources.numbered import Numbered, stamp
from nescio.data.sources.rows import Kind
from nescio.types import InputError

USUAL = ("y", "label", "labels", "target")


class Placed:
    """An array in a file, of which each row is read when it is asked for: it takes no memory, as a mapped one would."""

    def __init__(self, path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._path, self._offset, self.dtype, self.shape = path, offset, dtype, shape
        self._bytes = dtype.itemsize * math.prod(shape[1:])
        if path.stat().st_size < offset + self._bytes * shape[0]:
            raise InputError(f"expected {shape[0]} rows in {path}, but it was cut short; write it again")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: int) -> NDArray[Any]:
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._offset + index * self._bytes)
            return np.frombuffer(file.read(self._bytes), dtype=self.dtype).reshape(self.shape[1:])


class ArrayRows:
    """A `Store` of the rows of an array."""

    kind: Kind = "numbers"

    def __init__(self, path: Path, x: str | None, label: str | None) -> None:
        self._path = path
        if path.suffix == ".npy":
            self._x: NDArray[Any] | Placed = _whole_file(path)
            self._y = None
        else:
            self._x = _array(path, x)
            self._y = _label_key(path, label)
        labelled = f", labels in {self._y}" if self._y is not None else ""
        self.about = f"{count(len(self._x), 'row')} of {path}, {self._x.dtype} {list(self._x.shape[1:])}{labelled}"
        self.names = Numbered(path.name, len(self._x))
        self.identity = stamp(path, x, label)

    def __len__(self) -> int:
        return len(self._x)

    def raw(self, index: int) -> torch.Tensor:
        row = np.array(self._x[index])  # a copy, which torch may write to
        if row.dtype.kind == "f" and row.dtype.itemsize > 8:
            row = row.astype(np.float64)  # torch has no wider number
        return torch.from_numpy(np.asarray(row, dtype=row.dtype.newbyteorder("=")))

    def labels(self) -> Labels | None:
        if self._y is None:
            return None
        y = read_npz(self._path, self._y)
        if y.shape != (len(self),):
            raise InputError(
                f"expected one label for each of the {len(self)} rows as {self._y!r} in {self._path}, "
                f"got an array of {y.dtype} and shape {list(y.shape)}; name another (--label), or none"
            )
        return Labels(y.tolist())


class NamedRows:
    """A `Store` of the rows of several arrays together, for a model that takes several inputs by their names."""

    kind: Kind = "numbers"

    def __init__(self, path: Path, x: Sequence[str], label: str | None) -> None:
        first, *others = x
        self._first = ArrayRows(path, first, label)
        self._all = {first: self._first, **{name: ArrayRows(path, name, None) for name in others}}
        counts = {name: len(rows) for name, rows in self._all.items()}
        if len(set(counts.values())) > 1:
            listing = ", ".join(f"{name!r} has {many}" for name, many in counts.items())
            raise InputError(f"expected as many rows in each array of {path}, but {listing}")
        labelled = ", ".join(rows.about.partition(f" of {path}, ")[2] for rows in self._all.values())
        self.about = f"{count(len(self), 'row')} of {path}, {', '.join(self._all)}: {labelled}"
        self.names = self._first.names
        self.identity = stamp(path, ",".join(x), label)

    def __len__(self) -> int:
        return len(self._first)

    def raw(self, index: int) -> dict[str, torch.Tensor]:
        return {name: rows.raw(index) for name, rows in self._all.items()}

    def labels(self) -> Labels | None:
        return self._first.labels()


def _array(path: Path, key: str | None) -> NDArray[Any] | Placed:
    """The array, left in the file where it can be."""
    if path.is_file() and zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
                entry = archive.getinfo(array_name(names, key, path) + ".npy")
            if entry.compress_type == zipfile.ZIP_STORED:
                with path.open("rb") as file:
                    file.seek(entry.header_offset + 26)  # the lengths of name and extra field, which the array follows
                    lengths = np.frombuffer(file.read(4), dtype="<u2")
                    file.seek(entry.header_offset + 30 + int(lengths.sum()))
                    placed = _placed(path, file)
                if placed is not None:
                    return placed
        except InputError:
            raise
        except Exception:  # a damaged file: the reader below says in words what is wrong
            pass
    return read_npz(path, key)


def _whole_file(path: Path) -> Placed:
    try:
        with path.open("rb") as file:
            array = _placed(path, file)
    except Exception as error:
        raise InputError(f"cannot read an array from {path}: {error}; write it with numpy.save(file, array)") from error
    if array is None:
        raise InputError(f"expected an array of real numbers [N, ...] in {path}, row by row, got another")
    return array


def _placed(path: Path, file: IO[bytes]) -> Placed | None:
    """The array that begins here; None where its rows do not lie one after the other, or are no numbers."""
    version = layout.read_magic(file)
    header = layout.read_array_header_1_0 if version == (1, 0) else layout.read_array_header_2_0
    shape, by_columns, dtype = header(file)
    if by_columns or dtype.kind not in "fiub" or not shape or 0 in shape:
        return None
    return Placed(path, file.tell(), dtype, shape)


def _label_key(path: Path, label: str | None) -> str | None:
    if label is None:
        return None
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
    if label == "auto":
        return next((name for name in USUAL if name in names), None)
    return array_name(names, label, path)
