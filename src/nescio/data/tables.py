"""Columns of equal length, written to and read from Parquet, CSV or JSON by the ending of the file's name.

CSV and JSON hold every float with all its digits (17 where needed), so that reading gives back the same number.
JSON is a list of records, one to a line. In CSV a column is of whole numbers, of numbers, of True and False, or of
text, whichever holds all its cells; 007 is text, because as a number it would not be written again as it was.

Names and texts come from anyone, and a spreadsheet runs a cell that begins with = + - or @ as a formula. In CSV such a
text, if it is no number, gets an apostrophe before it, which `read_table` takes away again.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio._common.lazy_imports import need
from nescio.data.atomic import replacing
from nescio.types import InputError

ENDINGS = (".parquet", ".csv", ".json")
Columns = Mapping[str, NDArray[Any]]

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # those of 18 digits always fit into int64
_LONG = re.compile(r"-?[1-9][0-9]{18,}")  # a float would lose their last digits
_NUMBER = re.compile(
    r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?(nan|inf|infinity)", re.IGNORECASE
)

_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r\n]")


def check_ending(path: str | Path) -> str:
    """Return the ending of a table's file name.

    Args:
        path: The file name.

    Returns:
        The ending: ``".parquet"``, ``".csv"`` or ``".json"``.

    Raises:
        InputError: If the ending is another one.
        MissingExtra: If the package for it is missing.

    Examples:
        >>> nescio.data.check_ending("scores.CSV")
        '.csv'
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"expected a file name that ends in {', '.join(ENDINGS)}, but got '{path}'")
    if ending == ".parquet":
        need("pyarrow", "files")
    return ending


def write_table(path: str | Path, columns: Columns) -> None:
    """Write columns to a Parquet, CSV or JSON file, as a whole or not at all.

    Args:
        path: The file; its ending says which format.
        columns: Arrays of one length, by name.

    Raises:
        InputError: If the lengths differ, or the file cannot be written.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "scores.csv")
        >>> nescio.data.write_table(path, {"score": np.array([0.5, 0.25])})
        >>> nescio.data.read_table(path)
        {'score': array([0.5 , 0.25])}
    """
    ending = check_ending(path)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"expected columns of one length, but got {lengths}")
    writer = {".parquet": _parquet, ".csv": _csv, ".json": _json}[ending]
    with replacing(path) as part:
        writer(part, columns)


def read_table(path: str | Path, columns: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read the columns of a Parquet, CSV or JSON file.

    Args:
        path: The file, or a folder of Parquet files as `nescio score` writes it, which is one table.
        columns: Names of columns that must be there.

    Returns:
        The columns by their names, in order. Text, and columns with empty cells, are arrays of objects.

    Raises:
        InputError: If there is no such file or column, or it is damaged.

    Examples:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "scores.json")
        >>> nescio.data.write_table(path, {"score": np.array([0.5, 0.25])})
        >>> nescio.data.read_table(path, ["score"])
        {'score': array([0.5 , 0.25])}
    """
    path = Path(path)
    if path.is_dir() and any(path.glob("[!._]*.parquet")):
        ending = ".parquet"
    elif path.is_dir():
        raise InputError(f"expected a table, but {path} is a folder, and without Parquet files")
    else:
        ending = check_ending(path)
    if not path.exists():
        raise InputError(f"expected a table at {path}, but there is none")
    reader = {".parquet": _read_parquet, ".csv": _read_csv, ".json": _read_json}[ending]
    try:
        table = reader(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected text in UTF-8 in {path}, but it is something else ({error.reason}); is it {ending}?"
        ) from error
    check_columns(table, columns, path)
    return table


def check_columns(table: Columns, columns: Sequence[str], path: str | Path) -> None:
    """Raise an InputError for a column that a table does not have.

    Args:
        table: The columns by their names.
        columns: Names of columns that must be there.
        path: Where the table came from, for the message.
    """
    missing = [name for name in columns if name not in table]
    if missing:
        raise InputError(f"expected the column {missing[0]!r} in {path}, but it has: {', '.join(table) or 'none'}")


def _parquet(path: Path, columns: Columns) -> None:
    table = need("pyarrow", "files").table({name: np.asarray(column) for name, column in columns.items()})
    need("pyarrow.parquet", "files").write_table(table, path)


def _csv(path: Path, columns: Columns) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(map(escaped, columns))
        rows.writerows(zip(*(map(escaped, column.tolist()) for column in columns.values()), strict=True))


def escaped(value: object) -> Any:
    """What is written to CSV for the value: the same, unless it is text that a spreadsheet would run."""
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def unescaped(cell: str) -> str:
    """The text in a cell of CSV: the opposite of `escaped`."""
    return cell[1:] if _ESCAPED.match(cell) else cell


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


def _read_parquet(path: Path) -> dict[str, NDArray[Any]]:
    arrow = need("pyarrow", "files")
    files = sorted(path.glob("[!._]*.parquet")) if path.is_dir() else [path]
    try:
        parquet = need("pyarrow.parquet", "files")
        table = arrow.concat_tables([parquet.ParquetFile(file).read() for file in files])
    except (arrow.ArrowException, OSError) as error:
        raise _foreign(path, "Parquet", str(error).strip().rstrip(".")) from error
    _check_names(path, table.column_names)
    return {
        name: _objects(column.to_pylist()) if column.null_count else column.to_numpy()
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _read_csv(path: Path) -> dict[str, NDArray[Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        text = file.read()
    if text and not text.endswith(("\n", "\r")):  # 0.98 may be what is left of 0.9876
        raise _foreign(path, "CSV", "its last line has no end; add a line end if the file is whole")
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    except csv.Error as error:
        raise _foreign(path, "CSV", str(error)) from error
    if not lines:
        raise _foreign(path, "CSV", "it has no line with the names of columns")
    header, *rows = lines
    names = [unescaped(name) for name in header]
    _check_names(path, names)
    for number, row in enumerate(rows, 1):
        if len(row) != len(names):
            raise _foreign(path, "CSV", f"row {number} has {len(row)} cells and not {len(names)}, as there are columns")
    cells = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: _from_text(column) for name, column in zip(names, cells, strict=True)}


def _read_json(path: Path) -> dict[str, NDArray[Any]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, RecursionError) as error:
        raise _foreign(path, "JSON", str(error)) from error
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise _foreign(path, "JSON", "it is not a list of records, one for each row")
    names = list(records[0]) if records else []
    for number, record in enumerate(records, 1):
        if record.keys() != set(names):
            raise _foreign(path, "JSON", f"record {number} has the columns {list(record)} and not {names}")
        if any(isinstance(value, list | dict) for value in record.values()):
            raise _foreign(path, "JSON", f"record {number} has a list or a record in place of a single value")
    return {name: _from_values([record[name] for record in records]) for name in names}


def _from_text(cells: Sequence[str]) -> NDArray[Any]:
    if all(_WHOLE.fullmatch(cell) for cell in cells) and cells:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    if all(_NUMBER.fullmatch(cell) for cell in cells) and not any(_LONG.fullmatch(cell) for cell in cells):
        return np.array([float(cell) for cell in cells], dtype=np.float64)
    if all(cell in ("True", "False") for cell in cells):
        return np.array([cell == "True" for cell in cells])
    return _objects(map(unescaped, cells))


def _from_values(values: Sequence[Any]) -> NDArray[Any]:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return np.array(values)
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    if kinds <= {int, float} and float in kinds:
        return np.array(values, dtype=np.float64)
    return _objects(values)


def _objects(values: Iterable[Any]) -> NDArray[Any]:
    return np.fromiter(values, dtype=object)


def _check_names(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            f"expected each column of {path} once, but {twice[0]!r} is there {names.count(twice[0])} times"
        )


def _foreign(path: Path, form: str, why: str) -> InputError:
    return InputError(f"expected a table in {form}, but {path} is something else, or was cut short: {why}")
