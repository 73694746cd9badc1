import csv
import importlib
import json
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nescio.data import check_ending, write_table
from nescio.data.tables import read_table
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


MIXED = {
    **COLUMNS,
    "right": np.array([True, False, True]),
    "name": np.array(["a,b", 'say "x"', "Zürich\nHB"], dtype=object),
    "code": np.array(["007", "12", "9223372036854775808"], dtype=object),
}


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
def test_what_was_written_is_read_again(tmp_path, ending):
    write_table(tmp_path / f"t.{ending}", MIXED)
    found = read_table(tmp_path / f"t.{ending}", ["regrad", "index"])
    assert list(found) == list(MIXED)
    for name, column in MIXED.items():
        assert found[name].dtype == column.dtype, name
        assert found[name].tolist() == column.tolist()
    write_table(tmp_path / f"again.{ending}", found)
    if ending != "parquet":
        assert (tmp_path / f"again.{ending}").read_bytes() == (tmp_path / f"t.{ending}").read_bytes()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    floats=st.lists(st.floats(), min_size=1, max_size=5),
    number=st.integers(-(2**63), 2**63 - 1),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
def test_every_number_and_word_comes_back_from_csv(tmp_path, floats, number, text):
    size = len(floats)
    write_table(
        tmp_path / "t.csv",
        {"f": np.array(floats), "n": np.array([number] * size), "t": np.array([f"t{text}"] * size, dtype=object)},
    )
    found = read_table(tmp_path / "t.csv")
    assert np.array_equal(found["f"], floats, equal_nan=True)
    assert [int(value) for value in found["n"]] == [number] * size
    assert found["t"].tolist() == [f"t{text}"] * size


def test_no_cell_of_csv_is_a_formula_and_all_come_back(tmp_path):
    names = [
        "=1+1",
        "+a",
        "-a",
        "@SUM(A1)",
        "\tx",
        "\rx",
        "'=x",
        "''-x",
        "'x",
        "-5",
        "plain",
        "-",
        "=cmd|' /C calc'!A0",
    ]
    numbers = np.linspace(-1.0, 1.0, len(names))
    write_table(tmp_path / "t.csv", {"=name": np.array(names), "score": numbers})
    with (tmp_path / "t.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    for cell in (*header, *(name for name, _ in rows)):
        assert cell == "-5" or cell[0] not in "=+-@\t\r", cell
    assert [float(cell) for _, cell in rows] == numbers.tolist()
    found = read_table(tmp_path / "t.csv")
    assert list(found) == ["=name", "score"]
    assert found["=name"].tolist() == names
    assert found["score"].tolist() == numbers.tolist()


def test_no_rows_are_read_and_a_mark_of_excel_is_no_part_of_a_name(tmp_path):
    (tmp_path / "t.csv").write_text("index,entropy\n", encoding="utf-8-sig")
    found = read_table(tmp_path / "t.csv", ["index"])
    assert [(name, column.shape, column.dtype) for name, column in found.items()] == [
        ("index", (0,), np.float64),
        ("entropy", (0,), np.float64),
    ]


@pytest.mark.parametrize("ending", ["json", "parquet"])
def test_empty_cells_are_never_a_number(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    if ending == "json":
        path.write_text('[{"u": 1.5}, {"u": null}]')
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"u": [1.5, None]}), path)
    found = read_table(path)["u"]
    assert found.dtype == object
    assert found.tolist() == [1.5, None]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", "", "no line with the names"),
        ("t.csv", "a,b\n1,2\n3\n", "row 2 has 1 cells and not 2"),
        ("t.csv", "a,b\n1,2,3\n", "row 1 has 3 cells and not 2"),
        ("t.csv", "a,b\n1,2\n3,0.98", "its last line has no end"),
        ("t.csv", 'a,b\n1,"2\n', "cut short: unexpected end of data"),
        ("t.csv", "a,a\n1,2\n", "each column of .* once, but 'a' is there 2 times"),
        ("t.csv", b"PAR1\xff\xfe\n", "expected text in UTF-8"),
        ("t.json", '[{"a": 1},', "a table in JSON, but .* is something else, or was cut short"),
        ("t.json", '{"format": "nescio policy"}', "not a list of records"),
        ("t.json", '[{"a": 1}, {"b": 1}]', r"record 2 has the columns \['b'\] and not \['a'\]"),
        ("t.json", '[{"a": [1]}]', "record 1 has a list"),
        ("t.parquet", "a,b\n1,2\n", "a table in Parquet, but .* is something else, or was cut short"),
        ("t.npz", "", r"ends in \.parquet"),
    ],
)
def test_foreign_and_damaged_tables_are_refused(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=words):
        read_table(tmp_path / name)


def test_a_parquet_file_that_was_cut_short(tmp_path):
    write_table(tmp_path / "t.parquet", COLUMNS)
    content = (tmp_path / "t.parquet").read_bytes()
    for size in (0, 3, len(content) // 2, len(content) - 1):
        (tmp_path / "t.parquet").write_bytes(content[:size])
        with pytest.raises(InputError, match="or was cut short"):
            read_table(tmp_path / "t.parquet")


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match=r"expected a table at .*none\.csv, but there is none"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        read_table(tmp_path / "folder.csv")
    write_table(tmp_path / "t.csv", COLUMNS)
    with pytest.raises(InputError, match=r"expected the column 'energy' in .*, but it has: index, regrad, entropy"):
        read_table(tmp_path / "t.csv", ["energy"])


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    folder = tmp_path / "scores"
    folder.mkdir()
    write_table(folder / ".aside.parquet", {"index": np.arange(9)})  # readers leave it out
    with pytest.raises(InputError, match="is a folder, and without Parquet files"):
        read_table(folder)
    write_table(folder / "part-2.parquet", {"index": np.arange(3, 5), "u": np.array([0.5, 0.25])})
    write_table(folder / "part-1.parquet", {"index": np.arange(3), "u": np.array([1.0, 2.0, 3.0])})
    found = read_table(folder, ["u"])
    assert found["index"].tolist() == [0, 1, 2, 3, 4] and found["u"].tolist() == [1.0, 2.0, 3.0, 0.5, 0.25]
