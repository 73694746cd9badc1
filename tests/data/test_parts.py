"""Tables in parts: what is kept, what is refused, and that the joined file does not depend on how it was parted."""

import json
import os
import pickle

import numpy as np
import pytest

from nescio.data import read_table, write_table
from nescio.data.joining import rewritten
from nescio.data.parts import JOURNAL, MANIFEST, RUNS, Parts, clean, part_rows
from nescio.data.sources import Problem
from nescio.types import InputError
from tests.full_disk import full_after

ENDINGS = [".parquet", ".csv", ".json"]


def columns(part):
    index = np.arange(part.start, part.stop)
    return {"index": index, "name": np.array([f"a,\n{i}" for i in index], dtype=np.str_), "score": np.sqrt(index)}


def opened(folder, total=10, size=4, identity=None, **more):
    return Parts(folder, total, size, identity or {"model": "m"}, **more)


def fill(parts, most=None):
    for part in parts.missing[:most]:
        parts.add(part, columns(part), notes={"sum": part.stop})


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("total", [0, 1, 8, 10])
def test_the_joined_file_is_the_table_whatever_the_parts_were(tmp_path, ending, total):
    found = []
    for size in (1, 3, 20):
        with opened(tmp_path / f"{size}", total, size, ending=ending) as parts:
            fill(parts)
            parts.join(tmp_path / f"{size}{ending}")
            parts.remove()
        assert not (tmp_path / f"{size}").exists()
        found.append((tmp_path / f"{size}{ending}").read_bytes())
    assert found[0] == found[1] == found[2]
    write_table(tmp_path / f"whole{ending}", columns(range(total)))
    table, truth = (read_table(tmp_path / f"{name}{ending}") for name in ("3", "whole"))
    assert {name: column.tolist() for name, column in table.items()} == {n: c.tolist() for n, c in truth.items()}
    if ending != ".parquet":
        assert found[0] == (tmp_path / f"whole{ending}").read_bytes()


def test_groups_of_rows_in_parquet_do_not_depend_on_the_parts(tmp_path, monkeypatch):
    import pyarrow.parquet

    monkeypatch.setattr("nescio.data.joining.GROUP", 7)
    for size in (2, 5, 30):
        with opened(tmp_path / "p", 30, size) as parts:
            fill(parts)
            parts.join(tmp_path / f"{size}.parquet")
            parts.remove()
    files = [tmp_path / f"{size}.parquet" for size in (2, 5, 30)]
    assert len({file.read_bytes() for file in files}) == 1
    metadata = pyarrow.parquet.ParquetFile(files[0]).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [7, 7, 7, 7, 2]


def test_work_goes_on_where_it_was_and_the_manifest_says_what_is_missing(tmp_path):
    problem = Problem(2, "two", "it is broken")
    with opened(tmp_path / "p", about={"machine": "a"}) as parts:
        assert parts.missing == [range(0, 4), range(4, 8), range(8, 10)]
        assert not (tmp_path / "p").exists()  # made with the first part
        parts.add(range(4, 8), columns(range(4, 8)))
        part = {name: column[[0, 1, 3]] for name, column in columns(range(0, 4)).items()}
        parts.add(range(0, 4), part, [problem], {"sum": 3})
        assert str(parts) == f"7 of 10 rows are kept in {tmp_path / 'p'}: the same command goes on from there"
    record = json.loads((tmp_path / "p" / MANIFEST).read_text())
    assert (record["complete"], record["missing"]) == (False, [[8, 10]])
    assert record["problems"] == [{"index": 2, "name": "two", "reason": "it is broken"}]
    assert [(one["file"], one["start"], one["stop"], one["rows"]) for one in record["parts"]] == [
        ("part-000000.parquet", 0, 4, 3),
        ("part-000001.parquet", 4, 8, 4),
    ]
    with opened(tmp_path / "p", about={"machine": "b"}) as parts:
        assert (parts.before, parts.earlier, parts.problems) == (7, {"machine": "a"}, [problem])
        assert parts.notes == [(3, {"sum": 3}), (4, {})]
        fill(parts)
        assert (parts.rows, parts.missing) == (9, [])
    assert json.loads((tmp_path / "p" / MANIFEST).read_text())["complete"] is True


def test_parts_that_another_process_has_written_count_when_they_are_adopted(tmp_path):
    with opened(tmp_path / "whole") as parts:
        fill(parts)
    folder = tmp_path / "p"
    with opened(folder) as parts:
        with parts.worker_folder() as shared:
            for part in parts.missing:
                written = pickle.loads(pickle.dumps(shared)).write(columns(part))
                shared.write(columns(part))  # by a worker that was lost afterwards
                assert part in parts.missing and read_table_if_any(folder) == parts.rows
                parts.adopt(part, written, notes={"sum": part.stop})
            with pytest.raises(InputError, match=r"cannot write .*part-000000.parquet: No such file"):
                parts.adopt(range(0, 4), written)
        assert shared.write(columns(range(4))) is None  # no longer
        assert shared._replace(folder=str(tmp_path / "elsewhere")).write(columns(range(4))) is None
    for file in (tmp_path / "whole").iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    assert len(list(folder.iterdir())) == len(list((tmp_path / "whole").iterdir()))


def test_what_another_process_has_left_aside_is_cleaned_up_and_nothing_else(tmp_path):
    with opened(tmp_path / "p") as parts:
        fill(parts)
    (tmp_path / "p" / ".aside.0123abcd.parquet").touch()
    (tmp_path / "p" / ".aside.0123abcd").touch()
    with opened(tmp_path / "p"):
        assert not list((tmp_path / "p").glob(".*"))
    (tmp_path / "p" / ".mine.0123abcd.parquet").touch()
    with pytest.raises(InputError, match=r"but .* holds \.mine\.0123abcd\.parquet"):
        opened(tmp_path / "p")


def read_table_if_any(folder):
    """The number of rows that readers of the folder find."""
    return len(read_table(folder)["index"]) if list(folder.glob("part-*")) else 0


def test_the_folder_is_a_table_for_readers_of_parquet(tmp_path):
    import pyarrow.parquet

    with opened(tmp_path / "p") as parts:
        fill(parts)
        parts.log({"rows": 10})
    assert pyarrow.parquet.read_table(tmp_path / "p").column("index").to_pylist() == list(range(10))
    assert json.loads((tmp_path / "p" / RUNS).read_text()) == {"rows": 10}


def test_parts_that_were_lost_or_changed_are_made_again(tmp_path):
    with opened(tmp_path / "p") as parts:
        fill(parts)
    before = {file.name: file.read_bytes() for file in (tmp_path / "p").iterdir()}
    (tmp_path / "p" / "part-000000.parquet").unlink()
    (tmp_path / "p" / "part-000002.parquet").write_bytes(b"PAR1")
    (tmp_path / "p" / ".part-000002.parquet.abcdefgh.part").write_bytes(b"cut off")
    with opened(tmp_path / "p") as parts:
        assert parts.damaged == ["part-000000.parquet", "part-000002.parquet"]
        assert parts.missing == [range(0, 4), range(8, 10)]
        fill(parts)
    assert {file.name: file.read_bytes() for file in (tmp_path / "p").iterdir()} == before


def test_another_run_is_refused_unless_one_begins_anew(tmp_path):
    with opened(tmp_path / "p", identity={"model": "m", "batch size": 2}) as parts:
        fill(parts, 1)
    before = sorted(os.listdir(tmp_path / "p"))
    for change, words in [
        ({"identity": {"model": "n", "batch size": 2}}, "not the same model. Give"),
        ({"identity": {"model": "m"}}, "not the same batch size. Give"),
        ({"identity": {"model": "m", "batch size": 2}, "total": 11}, "not the same rows. Give"),
        ({"identity": {"model": "m", "batch size": 2}, "size": 2}, "not the same part_rows. Give"),
    ]:
        with pytest.raises(InputError, match=words):
            opened(tmp_path / "p", **change)
    assert sorted(os.listdir(tmp_path / "p")) == before
    with opened(tmp_path / "p", identity={"model": "n"}, fresh=True) as parts:
        assert (parts.before, os.listdir(tmp_path / "p")) == (0, [MANIFEST])


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "p").mkdir()
    for name in ("notes.txt", "part-000000.parquet"):
        (tmp_path / "p" / name).write_text("mine")
        for fresh in (False, True):
            with pytest.raises(InputError, match=f"expected an empty folder.* holds {name}"):
                opened(tmp_path / "p", fresh=fresh)
        (tmp_path / "p" / name).unlink()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; remove it or name another"):
        opened(tmp_path / "file")


def test_one_run_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    with opened(tmp_path / "p") as parts:
        fill(parts, 1)
        with pytest.raises(InputError, match="expected no other run at work"):
            opened(tmp_path / "p")
    opened(tmp_path / "p").__exit__()


def test_a_manifest_brings_in_no_file_from_elsewhere(tmp_path):
    folder = tmp_path / "p"
    with opened(folder, ending=".csv") as parts:
        fill(parts)
    (folder / "part-000001.csv").rename(tmp_path / "part-000001.csv")
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"part-000001.csv"', '"../part-000001.csv"'))
    with opened(folder, ending=".csv") as parts:
        assert parts.damaged == ["part-000001.csv"]
        assert parts.missing == [range(4, 8)]


def test_a_damaged_manifest_is_said(tmp_path):
    with opened(tmp_path / "p") as parts:
        fill(parts, 1)
    (tmp_path / "p" / MANIFEST).write_text("{")
    with pytest.raises(InputError, match="begin again with --fresh"):
        opened(tmp_path / "p")
    opened(tmp_path / "p", fresh=True).__exit__()


@pytest.mark.parametrize(("patience", "good", "kept"), [(0, 0, 0), (0, 1, 0), (0, 3, 4), (0, 6, 12), (1e9, 6, 20)])
def test_a_full_disk_leaves_what_the_manifest_or_the_journal_lists(tmp_path, monkeypatch, patience, good, kept):
    monkeypatch.setattr("nescio.data.parts.PATIENCE", patience)
    monkeypatch.setattr("os.fsync", full_after(good))
    with pytest.raises(InputError, match="No space left on device"), opened(tmp_path / "p", 40) as parts:
        fill(parts)
    monkeypatch.undo()
    assert str(parts).startswith(f"{kept} of 40 rows are kept" if kept else "nothing was kept")
    assert (tmp_path / "p").exists() == (kept > 0)
    with opened(tmp_path / "p", 40) as parts:
        assert parts.before == kept
        fill(parts)
        parts.join(tmp_path / "all.parquet")
    assert read_table(tmp_path / "all.parquet")["index"].tolist() == list(range(40))


def test_a_table_is_joined_of_all_parts_alone(tmp_path):
    with opened(tmp_path / "p") as parts:
        fill(parts, 2)
        with pytest.raises(InputError, match="expected all parts"):
            parts.join(tmp_path / "x.parquet")
        fill(parts)
        with pytest.raises(InputError, match=r"expected all parts, and a file that ends in \.parquet"):
            parts.join(tmp_path / "x.csv")


def test_what_a_kill_left_beside_a_file_is_removed(tmp_path):
    for name in (".s.csv.abc_e0gh.part", "s.csv", ".other.csv.abcdefgh.part", ".s.csv.part"):
        (tmp_path / name).write_text("")
    clean(tmp_path / "s.csv")
    assert sorted(os.listdir(tmp_path)) == [".other.csv.abcdefgh.part", ".s.csv.part", "s.csv"]


@pytest.mark.parametrize(
    ("total", "batch", "wanted", "size"),
    [(0, 256, None, 256), (500, 256, None, 256), (100_000, 256, None, 1024), (10_000_000, 256, None, 10_240),
     (100, 1, None, 5), (100, 8, 9, 16), (100, 8, 1, 8), (100, 300, None, 300)],
)  # fmt: skip
def test_parts_hold_whole_batches(total, batch, wanted, size):
    assert part_rows(total, batch, wanted) == size


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_kept_piece_by_piece_is_joined_to_the_same_bytes(tmp_path, ending):
    with opened(tmp_path / "whole", ending=ending) as parts:
        fill(parts)
        parts.join(tmp_path / f"whole{ending}")
    with opened(tmp_path / "p", ending=ending) as parts:
        parts.add(range(3), columns(range(3)), [Problem(1, "a", "bad")])
        parts.add(range(4, 8), columns(range(4, 8)))
    with opened(tmp_path / "p", ending=ending) as parts:
        assert parts.before == 7 and parts.problems == [Problem(1, "a", "bad")]
        assert parts.missing == [range(3, 4), range(8, 10)]
        fill(parts)
        assert parts.missing == []
        parts.join(tmp_path / f"p{ending}")
    assert (tmp_path / f"p{ending}").read_bytes() == (tmp_path / f"whole{ending}").read_bytes()
    names = [f"part-{name}{ending}" for name in ("000000_000000", "000000_000003", "000001", "000002")]
    assert sorted(path.name for path in (tmp_path / "p").glob("part*")) == names
    if ending == ".parquet":
        assert read_table(tmp_path / "p")["index"].tolist() == list(range(10))


def test_pieces_that_are_not_listed_do_not_count_twice(tmp_path):
    with opened(tmp_path / "p") as parts:
        parts.add(range(2), columns(range(2)))
        parts.add(range(2, 4), columns(range(2, 4)))
    write_table(tmp_path / "p" / "part-000001_000001.parquet", columns(range(5, 6)))  # killed before the manifest
    (tmp_path / "p" / "part-000000_000002.parquet").write_bytes(b"broken")
    with opened(tmp_path / "p") as parts:
        assert parts.damaged == ["part-000000_000002.parquet"]
        assert parts.missing == [range(2, 4), range(4, 8), range(8, 10)]
        fill(parts)
    assert read_table(tmp_path / "p")["index"].tolist() == list(range(10))


def test_parts_follow_what_a_row_takes(tmp_path):
    assert part_rows(100_000, 16, seconds=0.001) == part_rows(100_000, 16) == 1024
    assert part_rows(100_000, 16, seconds=0.1) == 144  # of fifteen seconds, in whole batches
    assert part_rows(100_000, 1, seconds=37.0) == 1
    assert part_rows(100_000, 4, wanted=64, seconds=37.0) == 64  # as it was asked for


def record_of(folder):
    return json.loads((folder / MANIFEST).read_text())


def killed(parts):
    """End as SIGKILL does: nothing more is written, and the system lets go of the folder."""
    parts._journal.close()
    parts._lock.release()


@pytest.fixture
def patient(monkeypatch):
    """A manifest that is not written again while parts come."""
    monkeypatch.setattr("nescio.data.parts.PATIENCE", 1e9)


def test_what_a_part_costs_does_not_grow_with_the_parts_before_it(tmp_path, patient):
    with opened(tmp_path / "p", 4000, 4) as parts:
        fill(parts, 1)
        journal, size = tmp_path / "p" / JOURNAL, (tmp_path / "p" / MANIFEST).stat().st_size
        one = journal.stat().st_size
        fill(parts, 9)
        assert (tmp_path / "p" / MANIFEST).stat().st_size == size  # not touched
        assert journal.stat().st_size < 11 * one
    assert not journal.exists() and len(record_of(tmp_path / "p")["parts"]) == 10


def test_after_a_kill_the_journal_says_what_the_manifest_does_not(tmp_path, patient):
    problem = Problem(5, "five", "bad")
    parts = opened(tmp_path / "p")
    parts.add(range(0, 4), columns(range(0, 4)), notes={"sum": 4})
    parts.add(range(4, 8), columns(range(4, 8)), [problem])
    killed(parts)
    assert record_of(tmp_path / "p")["parts"] == []
    with (tmp_path / "p" / JOURNAL).open("a") as file:
        file.write('{"file": "part-000002.parquet", "start": 8')  # cut off while it was written
    with opened(tmp_path / "p") as parts:
        assert (parts.before, parts.missing, parts.damaged) == (8, [range(8, 10)], [])
        assert parts.problems == [problem] and parts.notes == [(4, {"sum": 4}), (4, {})]
        assert not (tmp_path / "p" / JOURNAL).exists()  # the manifest has it all
        fill(parts)
    assert record_of(tmp_path / "p")["complete"] is True


def test_a_kill_between_the_manifest_and_the_end_of_the_journal_counts_nothing_twice(tmp_path, patient):
    parts = opened(tmp_path / "p")
    parts.add(range(0, 4), columns(range(0, 4)), [Problem(1, "one", "bad")])
    before = (tmp_path / "p" / JOURNAL).read_bytes()
    parts.flush()
    killed(parts)
    (tmp_path / "p" / JOURNAL).write_bytes(before)
    with opened(tmp_path / "p") as parts:
        assert parts.rows == 4 and parts.problems == [Problem(1, "one", "bad")]


def test_a_line_of_the_journal_brings_in_no_damaged_part(tmp_path, patient):
    parts = opened(tmp_path / "p")
    fill(parts, 2)
    killed(parts)
    (tmp_path / "p" / "part-000001.parquet").write_bytes(b"PAR1")
    with opened(tmp_path / "p") as parts:
        assert (parts.before, parts.damaged) == (4, ["part-000001.parquet"])


def test_a_run_with_a_manifest_as_it_was_written_before_goes_on(tmp_path):
    with opened(tmp_path / "p") as parts:
        parts.add(range(0, 4), columns(range(0, 4)), [Problem(1, "one", "bad")], {"sum": 4})
    record = record_of(tmp_path / "p")
    old = ("format", "version", "identity", "about", "rows", "part_rows", "complete", "missing", "problems", "parts")
    (tmp_path / "p" / MANIFEST).write_text(json.dumps({key: record[key] for key in old}, indent=1) + "\n")
    with opened(tmp_path / "p") as parts:
        assert (parts.before, parts.missing) == (4, [range(4, 8), range(8, 10)])
        assert parts.problems == [Problem(1, "one", "bad")] and parts.notes == [(4, {"sum": 4})]


def test_a_kill_while_one_begins_anew_leaves_a_folder_that_can_be_used(tmp_path, monkeypatch):
    with opened(tmp_path / "p") as parts:
        fill(parts)
    unlink, done = os.unlink, []

    def once(path, *more, **options):
        if done:
            raise KeyboardInterrupt
        done.append(path)
        unlink(path, *more, **options)

    monkeypatch.setattr("os.unlink", once)
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "p", identity={"model": "n"}, fresh=True)
    monkeypatch.undo()
    assert done
    with opened(tmp_path / "p", identity={"model": "n"}, fresh=True) as parts:
        assert parts.before == 0


def test_small_parts_are_joined_once_a_group_of_rows_is_there(tmp_path, monkeypatch):
    import pyarrow

    monkeypatch.setattr("nescio.data.joining.GROUP", 10)
    with opened(tmp_path / "p", 40, 1) as parts:
        fill(parts)
        pieces, concat = [], pyarrow.concat_tables
        monkeypatch.setattr("pyarrow.concat_tables", lambda held: (pieces.append(len(held)), concat(held))[1])
        parts.join(tmp_path / "all.parquet")
    assert sum(pieces) <= 40 + len(pieces)  # each part once
    assert read_table(tmp_path / "all.parquet")["index"].tolist() == list(range(40))


def test_parts_that_are_changed_as_they_are_joined_lie_there_one_at_a_time(tmp_path):
    found = []
    with opened(tmp_path / "p", 40) as parts:
        fill(parts)

        def change(table):
            found.append(table["index"].tolist())
            return {**table, "score": -table["score"]}

        files = []
        for file in rewritten(parts.files, change, str(tmp_path)):
            files.append(file)
            assert [path for path in files if path.exists()] == [file]
        parts.join(tmp_path / "all.parquet", change)
    assert found[:10] == found[10:]
    assert read_table(tmp_path / "all.parquet")["score"].tolist() == (-np.sqrt(np.arange(40))).tolist()
