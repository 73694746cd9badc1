"""Parquet files, and data sets of Hugging Face on disk, as tables: blocks of rows are read when they are asked for.

A Parquet file is read from front to back in blocks, of which a few are kept: rows that are asked for about in order
cost one pass, whatever the file holds. A data set on disk (``save_to_disk``) is a set of Arrow files, which are mapped
into memory; what its class labels mean is in the files' own description.
"""

from __future__ import annotations

import hashlib
import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from nescio._common.json_files import json_object
from nescio._common.lazy_imports import need
from nescio.data.sources.numbered import stamp
from nescio.types import InputError

BLOCK = 1024
"""Rows of a Parquet file that are read at once."""
KEPT = 4
"""Blocks that are kept."""


class _Arrow:
    """What both kinds of files share."""

    identity: str

    def __init__(self, path: Path, files: Sequence[Path], schema: Any, lengths: Sequence[int]) -> None:
        self.path, self.root = path, path if path.is_dir() else path.parent
        self.kinds = {field.name: _kind(field.type) for field in schema}
        self._ends = list(accumulate(lengths))
        self._features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {})
        content = " ".join(stamp(file) for file in files)
        self.identity = hashlib.sha256(content.encode()).hexdigest()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def names_of(self, column: str) -> tuple[str, ...] | None:
        """The names of a class label."""
        names = self._features.get("features", {}).get(column, {}).get("names")
        return tuple(map(str, names)) if isinstance(names, list) else None

    def _place(self, index: int) -> tuple[int, int]:
        """The part that holds the row, and the row's place in it."""
        part = bisect_right(self._ends, index)
        return part, index - (self._ends[part - 1] if part else 0)


class ParquetTable(_Arrow):
    """A `Table` of Parquet files, one after the other."""

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        arrow, parquet = need("pyarrow", "files"), need("pyarrow.parquet", "files")
        self._files = list(files)
        schemas, lengths = [], []
        for file in files:
            try:
                with parquet.ParquetFile(file) as opened:
                    schemas.append(opened.schema_arrow)
                    lengths.append(opened.metadata.num_rows)
            except (arrow.ArrowException, OSError) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise InputError(f"expected Parquet, but {file} is not, or was cut short: {reason}") from error
        for file, schema in zip(files, schemas, strict=True):
            if schema.names != schemas[0].names:
                raise InputError(
                    f"expected the same columns in all files of {path}, but {file.name} has {schema.names} "
                    f"and {files[0].name} {schemas[0].names}"
                )
        super().__init__(path, files, schemas[0], lengths)
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[int, int, tuple[str, ...]], Any] = OrderedDict()
        self._reading: tuple[int, tuple[str, ...], int, Any] | None = None

    def row(self, index: int, columns: Sequence[str]) -> list[Any]:
        """The cells of these columns."""
        file, place = self._place(index)
        block = self._block(file, place // BLOCK, tuple(columns))
        return [plain_cell(block.column(column)[place % BLOCK]) for column in columns]

    def column(self, name: str) -> list[Any]:
        """All cells of a column."""
        parquet = need("pyarrow.parquet", "files")
        cells: list[Any] = []
        for file in self._files:
            with parquet.ParquetFile(file) as opened:
                for batch in opened.iter_batches(columns=[name]):
                    cells += batch.column(0).to_pylist()
        return cells

    def _block(self, file: int, number: int, columns: tuple[str, ...]) -> Any:
        key = (file, number, columns)
        with self._lock:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
            at = self._reading
            if at is None or at[:2] != (file, columns) or at[2] > number:
                opened = need("pyarrow.parquet", "files").ParquetFile(
                    self._files[file], pre_buffer=False, buffer_size=1 << 20
                )
                at = (file, columns, 0, opened.iter_batches(BLOCK, columns=list(columns), use_threads=False))
            for step in range(at[2], number + 1):
                self._blocks[file, step, columns] = next(at[3])
                while len(self._blocks) > KEPT:
                    self._blocks.popitem(last=False)
            self._reading = (file, columns, number + 1, at[3])
            return self._blocks[key]


class HubTable(_Arrow):
    """A `Table` of the Arrow files that ``save_to_disk`` of Hugging Face's datasets writes."""

    def __init__(self, path: Path) -> None:
        arrow, ipc = need("pyarrow", "files"), need("pyarrow.ipc", "files")
        state = _json(path / "state.json")
        try:
            files = [path / entry["filename"] for entry in state["_data_files"]]
        except (KeyError, TypeError) as error:
            raise InputError(f"expected the names of its files in {path / 'state.json'}, got others") from error
        self._parts: list[Any] = []
        schema = None
        for file in files:
            try:
                reader = ipc.open_stream(arrow.memory_map(str(file)))
                schema = reader.schema
                self._parts += list(reader)
            except (arrow.ArrowException, OSError) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise InputError(f"expected an Arrow file at {file}, but it cannot be read: {reason}") from error
        if schema is None:
            raise InputError(f"expected at least one file of data in {path}, got none")
        super().__init__(path, files, schema, [len(part) for part in self._parts])
        if not self._features and (path / "dataset_info.json").is_file():
            self._features = _json(path / "dataset_info.json")

    def row(self, index: int, columns: Sequence[str]) -> list[Any]:
        """The cells of these columns."""
        part, place = self._place(index)
        return [plain_cell(self._parts[part].column(column)[place]) for column in columns]

    def column(self, name: str) -> list[Any]:
        """All cells of a column."""
        return [cell for part in self._parts for cell in part.column(name).to_pylist()]


def hub_folder(path: Path) -> Path | None:
    """The data set in a folder of ``save_to_disk``; None where it is no such folder."""
    if (path / "state.json").is_file():
        return path
    if not (path / "dataset_dict.json").is_file():
        return None
    splits = list(_json(path / "dataset_dict.json").get("splits", []))
    if len(splits) != 1:
        raise InputError(
            f"expected one data set in {path}, but it holds {', '.join(map(repr, splits)) or 'none'}; "
            f"name one of them: {path / (splits[0] if splits else 'test')}"
        )
    return path / str(splits[0])


def plain_cell(scalar: Any) -> Any:
    """A cell as a plain value; a list of numbers as an array, which is much quicker."""
    kind = scalar.type
    if not scalar.is_valid or getattr(kind, "value_type", None) not in _plain_numbers():
        return scalar.as_py()
    return scalar.values.to_numpy(zero_copy_only=False)


@cache
def _plain_numbers() -> frozenset[Any]:
    arrow = need("pyarrow", "files")
    return frozenset(
        {
            arrow.float32(),
            arrow.float64(),
            *(getattr(arrow, f"{u}int{n}")() for u in ("", "u") for n in (8, 16, 32, 64)),
        }
    )


def _json(file: Path) -> dict[str, Any]:
    return json_object(file, "a description of a data set", "save the data set again")


def _kind(kind: Any) -> str:
    types = need("pyarrow.types", "files")
    if hasattr(kind, "storage_type"):
        kind = kind.storage_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return "number"
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytes"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return "list"
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return "picture"
    return "other"
