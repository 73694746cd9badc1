"""Columns of equal length, written as Parquet, CSV or JSON by the ending of the file's name.

CSV and JSON hold every float with all its digits (17 where needed), so that reading gives back the same number.
JSON is a list of records, one to a line.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio.data.atomic import replacing
from nescio.types import InputError, need

ENDINGS = (".parquet", ".csv", ".json")
Columns = Mapping[str, NDArray[Any]]


def check_ending(path: str | Path) -> str:
    """The ending of `path`; raises for one that cannot be written here, or whose package is missing."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"expected a file name that ends in {', '.join(ENDINGS)}, but got '{path}'")
    if ending == ".parquet":
        need("pyarrow", "files")
    return ending


def write_table(path: str | Path, columns: Columns) -> None:
    """Write the columns to `path`, as a whole or not at all."""
    ending = check_ending(path)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"expected columns of one length, but got {lengths}")
    writer = {".parquet": _parquet, ".csv": _csv, ".json": _json}[ending]
    with replacing(path) as part:
        writer(part, columns)


def _parquet(path: Path, columns: Columns) -> None:
    table = need("pyarrow", "files").table({name: np.asarray(column) for name, column in columns.items()})
    need("pyarrow.parquet", "files").write_table(table, path)


def _csv(path: Path, columns: Columns) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(columns)
        rows.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def _json(path: Path, columns: Columns) -> None:
    values = {name: column.tolist() for name, column in columns.items()}
    odd = [
        name for name, column in values.items() if any(isinstance(v, float) and not math.isfinite(v) for v in column)
    ]
    if odd:
        raise InputError(f"JSON has no infinity and no NaN, but {', '.join(odd)} holds some; write .csv or .parquet")
    records = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    with path.open("w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(record) for record in records) + "\n]\n")
