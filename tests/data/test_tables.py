import csv
import importlib
import json
import os

import numpy as np
import pytest

from nescio.data import check_ending, write_table
from nescio.types import InputError, MissingExtra

COLUMNS = {"index": np.arange(3), "regrad": np.array([0.1, 1 / 3, 1e-300]), "entropy": np.array([1.0, 2.0, 3.5])}


def test_csv_gives_back_the_same_numbers(tmp_path):
    write_table(tmp_path / "t.csv", COLUMNS)
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["index", "regrad", "entropy"]
    assert [row["index"] for row in rows] == ["0", "1", "2"]
    assert [float(row["regrad"]) for row in rows] == COLUMNS["regrad"].tolist()


def test_json_is_a_list_of_records(tmp_path):
    write_table(tmp_path / "t.json", COLUMNS)
    records = json.loads((tmp_path / "t.json").read_text())
    assert records[1] == {"index": 1, "regrad": 1 / 3, "entropy": 2.0}
    assert len(records) == 3


def test_parquet_keeps_types(tmp_path):
    import pyarrow.parquet

    write_table(tmp_path / "t.PARQUET", COLUMNS)
    table = pyarrow.parquet.read_table(tmp_path / "t.PARQUET")
    assert table.to_pydict() == {name: column.tolist() for name, column in COLUMNS.items()}
    assert [str(field.type) for field in table.schema] == ["int64", "double", "double"]


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_no_rows_are_a_table_too(tmp_path, ending):
    write_table(tmp_path / f"t.{ending}", {name: column[:0] for name, column in COLUMNS.items()})
    if ending == "json":
        assert json.loads((tmp_path / "t.json").read_text()) == []
    assert os.listdir(tmp_path) == [f"t.{ending}"]


@pytest.mark.parametrize("name", ["t.txt", "t", "t.csv.gz"])
def test_unknown_endings_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=r"ends in \.parquet, \.csv, \.json, but got"):
        check_ending(tmp_path / name)
    with pytest.raises(InputError, match="ends in"):
        write_table(tmp_path / name, COLUMNS)


def test_json_without_infinity_and_columns_of_one_length(tmp_path):
    with pytest.raises(InputError, match="JSON has no infinity and no NaN, but u holds some"):
        write_table(tmp_path / "t.json", {"u": np.array([1.0, np.inf])})
    with pytest.raises(InputError, match="columns of one length"):
        write_table(tmp_path / "t.csv", {"a": np.zeros(2), "b": np.zeros(3)})
    assert os.listdir(tmp_path) == []


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    real = importlib.import_module

    def without(name):
        if name.startswith("pyarrow"):
            raise ImportError("No module named 'pyarrow'")
        return real(name)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingExtra, match=r"pip install 'nescio\[files\]'"):
        check_ending(tmp_path / "t.parquet")
    assert check_ending(tmp_path / "t.csv") == ".csv"
