"""`open_data`: the ending of the path, or what lies in the folder, says which kind of data it is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio.data.sources import picture_files
from nescio.data.sources.array_rows import ArrayRows, NamedRows
from nescio.data.sources.arrow_files import HubTable, ParquetTable, hub_folder
from nescio.data.sources.csv_file import CsvTable
from nescio.data.sources.rows import Kind, OnError, Preprocess, Rows, Store
from nescio.data.sources.table_rows import Columns, TableRows
from nescio.inputs import Inputs
from nescio.types import InputError

FORMS = "a folder of pictures, a .txt list, .npz, .npy, .parquet, .csv, .tsv or a data set of Hugging Face on disk"


def open_data(
    path: str | os.PathLike[str],
    *,
    preprocess: Preprocess | None = None,
    x: Columns = None,
    label: str | None = "auto",
    name: str | None = "auto",
    classes: Sequence[str] | None = None,
    on_error: OnError = "stop",
) -> Rows:
    """Open data of any form by its path; rows are read one at a time.

    The forms stand in the docstring of `nescio.data.sources`.

    Args:
        path: A file or a folder.
        preprocess: What a model does to a row, as `nescio.models.sources` gives it. None leaves numbers as they are,
            and makes pictures tensors ``[3, H, W]`` in [0, 1].
        x: The array, the column or the columns of the input; None finds them by their usual names.
        label: The column of labels; ``"auto"`` finds it by its usual names, None for none.
        name: The column of names, likewise.
        classes: The model's class names, by which labels in words are read.
        on_error: ``"stop"`` raises at the first row that cannot be used, ``"skip"`` leaves such rows out. Both keep
            them in `Rows.problems`.

    Returns:
        The rows.

    Raises:
        InputError: If there is nothing at the path, or it is of no known form.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "data.npz")
        >>> np.savez(path, x=np.zeros((5, 3), np.float32))
        >>> rows = nescio.data.sources.open_data(path)
        >>> len(rows), rows.read(0).shape
        (5, torch.Size([3]))
    """
    if on_error not in ("stop", "skip"):
        raise InputError(f"on_error: expected 'stop' or 'skip', got {on_error!r}")
    place = Path(path)
    if not place.exists():
        raise InputError(f"expected a data file at {path}, but there is none (seen from {Path.cwd()})")
    want = None if preprocess is None else preprocess.kind
    store = _store(place, want, x, label, name)
    prepare = preprocess
    if prepare is None:
        if store.kind == "texts":
            raise InputError(
                f"expected numbers or pictures from {path} for this model, got texts; a model of texts (hf:FOLDER) "
                "brings the tokenizer that they need. Or name the columns of numbers with x (--x)"
            )
        prepare = Plain(store.kind)
    elif store.kind != prepare.kind and not (store.kind == "numbers" and prepare.kind == "pictures"):
        raise InputError(f"expected {prepare.kind}, as the model takes, but {path} holds {store.kind}")
    return Rows(store, prepare, classes=classes, on_error=on_error)


def _store(place: Path, want: Kind | None, x: Columns, label: str | None, name: str | None) -> Store:
    """Where the rows lie."""
    ending = place.suffix.lower()
    if place.is_dir():
        if (hub := hub_folder(place)) is not None:
            return TableRows(HubTable(hub), want, x, label, name)
        inside = sorted(entry for entry in place.iterdir() if not entry.name.startswith(("_", ".")))
        parts = [entry for entry in inside if entry.suffix.lower() == ".parquet"]
        if parts and not any(entry.is_dir() for entry in inside):
            return TableRows(ParquetTable(place, parts), want, x, label, name)
        return picture_files.folder(place, label)
    if ending == ".txt":
        return picture_files.listed(place, label)
    if ending in (".npz", ".npy"):
        if x is None or isinstance(x, str):
            return ArrayRows(place, x, label)
        if ending == ".npy":
            raise InputError(f"expected no names of arrays for {place}, which holds one, got {list(x)}")
        return NamedRows(place, x, label)
    if ending == ".parquet":
        return TableRows(ParquetTable(place, [place]), want, x, label, name)
    if ending in (".csv", ".tsv"):
        return TableRows(CsvTable(place), want, x, label, name)
    raise InputError(f"expected {FORMS}, got {place}")


class Plain:
    """Rows for a model that says nothing of its pre-processing: pictures in [0, 1], numbers as they are."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def __call__(self, row: Any) -> Inputs:
        if isinstance(row, Tensor | dict):
            return row
        x = torch.from_numpy(np.array(row.convert("RGB"), dtype=np.uint8))
        return x.permute(2, 0, 1).contiguous().float().div(255)

    def collate(self, rows: Sequence[Inputs]) -> Inputs:
        """A batch of rows."""
        if isinstance(rows[0], Tensor):
            return torch.stack([row for row in rows if isinstance(row, Tensor)])
        named = [row for row in rows if not isinstance(row, Tensor)]
        return {name: torch.stack([row[name] for row in named]) for name in rows[0]}

    def __str__(self) -> str:
        if self.kind == "pictures":
            return "none known: pictures as large as they are, values in [0, 1] (--size, --mean, --std change that)"
        return "none: numbers as they are"
