"""Parquet as a stage of Ray reads it: every part's rows, whatever the groups of rows in the files are."""

from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nescio.batch import ray_parquet
from nescio.batch.ray_parquet import Group, groups, lent, reader, runs, tasks
from nescio.data.sources import open_data

ROWS = 40


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(ROWS, 3))
    return pyarrow.table({"a": x[:, 0], "b": x[:, 1], "text": [str(i) for i in range(ROWS)]})


def written(table, cut=15, sizes=(6, 11)):
    Path("x").mkdir(exist_ok=True)
    pyarrow.parquet.write_table(table.slice(0, cut), "x/a.parquet", row_group_size=sizes[0])
    pyarrow.parquet.write_table(table.slice(cut), "x/b.parquet", row_group_size=sizes[1])
    return open_data("x", x=["b", "a"])


def sent(rows, parts):
    """What the stage gives for these parts, in order."""
    found = groups(rows)
    read = cloudpickle.loads(cloudpickle.dumps(reader(rows)))
    return [one for known in tasks(runs(parts, found), found) for one in read({"run": [known["run"]]})]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_part_has_its_rows_and_they_are_those_of_the_file(table, data):
    cut, first, second, size = (data.draw(st.integers(1, most)) for most in (ROWS - 1, ROWS, ROWS, ROWS + 5))
    every = [range(start, min(start + size, ROWS)) for start in range(0, ROWS, size)]
    parts = [part for part in every if data.draw(st.booleans())]  # others are there already
    rows = written(table, cut, (first, second))
    found = sent(rows, parts)
    assert [(one["start"], one["stop"]) for one in found] == [([part.start], [part.stop]) for part in parts]
    truth = [rows.read(i) for i in range(ROWS)]
    kept = rows.store._table
    for part, one in zip(parts, found, strict=True):
        content = pyarrow.ipc.open_stream(one["table"][0]).read_all()
        assert content.column_names == ["b", "a"] and len(content) == len(part)
        with lent(rows, part.start, one["table"][0]):
            assert all(rows.read(i).equal(truth[i]) for i in range(ROWS))
        assert rows.store._table is kept


def test_rows_that_were_sent_are_not_read_again(table):
    rows = written(table)
    (one,) = sent(rows, [range(8, 12)])
    for file in Path("x").iterdir():
        file.unlink()
    with lent(rows, 8, one["table"][0]):
        np.testing.assert_array_equal(rows.read(11).numpy(), [table["b"][11].as_py(), table["a"][11].as_py()])
        with pytest.raises(OSError, match=r"x/a.parquet"):
            rows.store._table.row(12, ["a"])


def test_parts_that_begin_in_one_group_are_one_run(table):
    found = groups(written(table))
    assert [(Path(one.file).name, one.number, one.first, one.rows) for one in found] == [
        ("a.parquet", 0, 0, 6),
        ("a.parquet", 1, 6, 6),
        ("a.parquet", 2, 12, 3),
        ("b.parquet", 0, 15, 11),
        ("b.parquet", 1, 26, 11),
        ("b.parquet", 2, 37, 3),
    ]
    parts = [range(0, 4), range(4, 8), range(8, 12), range(16, 20), range(24, 28), range(36, 40)]
    assert runs(parts, found) == [parts[:2], parts[2:3], parts[3:5], parts[5:]]


def test_what_a_task_is_told_does_not_grow_with_the_parts_of_others():
    def told(count):
        found = [Group("x.parquet", number, 10 * number, 10) for number in range(count)]
        parts = [range(start, start + 5) for start in range(0, 10 * count, 5)]
        return [len(one["run"]) for one in tasks(runs(parts, found), found)]

    few, many = told(10), told(1000)
    assert len(many) == 1000 and max(many) < 1.1 * max(few)


def test_what_cannot_be_read_or_is_too_large_is_left_to_the_worker(table, monkeypatch):
    rows = written(table)
    parts = [range(start, start + 4) for start in range(0, ROWS, 4)]
    with open("x/b.parquet", "r+b") as file:  # the beginning of its first group
        file.write(b"\xff" * 64)
    content = [one["table"][0] for one in sent(rows, parts)]
    assert [bool(one) for one in content] == [True] * 3 + [False] * 4 + [True] * 3  # 12 to 15 begin in a good group
    with lent(rows, 16, b""):
        assert rows.store._table.row(0, ["a"]) == [table["a"][0].as_py()]
    monkeypatch.setattr(ray_parquet, "MOST", 10)
    assert not any(one["table"][0] for one in sent(rows, parts))


def test_other_data_are_not_read_so(table):
    np.savez("x.npz", x=np.zeros((3, 2)))
    Path("x.csv").write_text("a,b\n1,2\n")
    assert groups(open_data("x.npz")) == groups(open_data("x.csv")) == []
