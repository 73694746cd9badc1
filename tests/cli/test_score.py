"""`nescio score` as work that survives: kills, interrupts, full disks and broken rows."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nescio.batch import columns
from nescio.cli import main
from nescio.data import read_table
from nescio.data.parts import MANIFEST, RUNS, Parts
from tests.full_disk import full_after

MODELS = """
import torch
from torch import nn

def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

def many():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 9))

def other():
    model = build()
    nn.init.zeros_(model[0].bias)
    return model
"""
ROWS = 40


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "survivors.py").write_text(MODELS)
    x = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    monkeypatch.setattr("nescio.data.parts.PATIENCE", 0)
    yield tmp_path
    sys.modules.pop("survivors", None)


def score(*more, out="s.csv", model="survivors:build", data="x.npz", method="entropy", batch="4"):
    given = ["--model", model, "--data", data, "--method", method, "--batch-size", batch, "--part-rows", batch]
    return main(["score", *given, "--out", out, *more])


RUNNER = """
import os, random, signal, sys, time
import torch
from nescio.cli import main

torch.set_num_threads(1)
kills, out, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
parts = out + ".parts"
assert main(["score", *arguments, "--out", "whole" + os.path.splitext(out)[1]]) == 0
arguments += ["--out", out]
draw = random.Random(0)
done = lambda: len(os.listdir(parts)) if os.path.isdir(parts) else 0
seen = []
for _ in range(kills):
    child = os.fork()
    if child == 0:
        os._exit(main(["score", *arguments]))
    wanted = done() + draw.randint(0, 4)
    while done() < wanted:
        time.sleep(0.0005)
    time.sleep(draw.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    seen.append(done() if os.WIFSIGNALED(status) else -1)
print(seen, flush=True)
sys.exit(main(["score", *arguments]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_random_moments_it_ends_with_the_bytes_of_an_undisturbed_run(folder):
    x = np.random.default_rng(1).normal(size=(400, 4)).astype(np.float32)
    np.savez("many.npz", x=x, y=np.arange(400) % 3)
    given = ["--model", "survivors:build", "--data", "many.npz", "--batch-size", "8", "--part-rows", "8"]
    given += ["--method", "perturb_x", "--method", "perturb_theta", "--method", "entropy", "--set", "samples=5"]
    command = [sys.executable, "-c", RUNNER, "6", "killed.parquet", *given]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[1])
    assert len(seen) == 6
    assert -1 not in seen, "every kill came before the end"
    assert max(seen) > 5
    assert "nescio: going on after" in done.stderr
    assert Path("killed.parquet").read_bytes() == Path("whole.parquet").read_bytes()
    assert not [name for name in os.listdir() if name.startswith((".killed", "killed.parquet."))]


def test_a_folder_is_a_table_in_parts_with_a_manifest(folder, capsys):
    import pyarrow.parquet

    assert score(out="scores/") == 0
    assert capsys.readouterr().out == f"Wrote {ROWS} rows to scores/: entropy\n"
    assert score(out="s.parquet") == 0
    table = pyarrow.parquet.read_table("scores")
    assert table.equals(pyarrow.parquet.read_table("s.parquet"))
    record = json.loads(Path("scores", MANIFEST).read_text())
    assert (record["complete"], record["missing"], record["rows"]) == (True, [], ROWS)
    assert record["identity"]["methods"] == {"entropy": "Entropy()"}
    assert record["about"]["settings"]["model"] == "survivors:build"
    assert len(record["parts"]) == ROWS // 4
    (run,) = [json.loads(line) for line in Path("scores", RUNS).read_text().splitlines()]
    assert (run["end"], run["rows"]) == ("done", ROWS)
    assert run["rows_per_second"] > 0
    assert 0 < run["busy"] < 1
    capsys.readouterr()
    before = {file: file.read_bytes() for file in Path("scores").glob("*[!l]")}
    assert score(out="scores/") == 0
    assert capsys.readouterr().out == f"All {ROWS} rows were in scores/ already: entropy\n"
    assert {file: file.read_bytes() for file in Path("scores").glob("*[!l]")} == before


def test_what_another_command_has_begun_is_refused_unless_one_begins_anew(folder, capsys):
    assert score(out="scores/") == 0
    for change, words in [
        ({"model": "survivors:other"}, "not the same model, weights. Give"),
        ({"method": "energy"}, "not the same methods. Give"),
        ({"batch": "8"}, "not the same batch size, part_rows. Give"),
    ]:
        capsys.readouterr()
        assert score(out="scores/", **change) == 2
        error = capsys.readouterr().err
        assert words in error
        assert "--fresh to begin anew" in error
    assert score("--fresh", out="scores/", method="energy") == 0
    assert score("--fresh", out="scores/", batch="16") == 0
    assert sorted(os.listdir("scores")) == [MANIFEST, RUNS, *(f"part-00000{i}.parquet" for i in range(3))]


def test_classes_by_the_names_of_a_file(folder, capsys):
    Path("names.json").write_text(json.dumps({"0": "cat", "1": "dog", "2": "fox"}))
    assert score("--class-names", "names.json") == 0
    table = read_table("s.csv")
    assert table["predicted_class"].tolist() == [("cat", "dog", "fox")[index] for index in table["predicted"]]
    Path("few.txt").write_text("cat\ndog\n")
    assert score("--class-names", "few.txt", "--overwrite") == 2
    assert "--class-names: expected 3 names, one for each class, but got 2" in capsys.readouterr().err


def test_an_interrupt_says_how_to_go_on(folder, capsys):
    assert score(out="whole.csv") == 0
    real = []

    def stopping(*given, **more):
        real.append(1)
        if len(real) == 4:
            raise KeyboardInterrupt
        return whole(*given, **more)

    whole = columns.score
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "score", stopping)
        assert score() == 130
    error = capsys.readouterr().err
    assert error.splitlines() == [
        f"nescio: interrupted; 12 of {ROWS} rows are kept in s.csv.parts: the same command goes on from there",
        "nescio: to go on: nescio score --model survivors:build --data x.npz --method entropy --batch-size 4 "
        "--part-rows 4 --out s.csv",
    ]
    assert not Path("s.csv").exists()
    run = json.loads(Path("s.csv.parts", RUNS).read_text())
    assert (run["end"], run["rows"]) == ("interrupted", 12)
    assert score() == 0
    assert capsys.readouterr().err == f"nescio: going on after 12 of {ROWS} rows in s.csv.parts\n"
    assert Path("s.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert not Path("s.csv.parts").exists()
    real.clear()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(columns, "score", stopping)
        score("--debug", "--overwrite")


def test_a_table_that_is_there_is_replaced_only_where_that_is_said(folder, capsys, monkeypatch):
    assert score() == 0
    before = Path("s.csv").read_bytes()

    def refused():
        assert score(method="energy") == 2
        told = capsys.readouterr().err
        assert "s.csv is there already; name another file, or say --overwrite to replace it" in told
        assert Path("s.csv").read_bytes() == before

    refused()
    assert not Path("s.csv.parts").exists()

    def interrupted_after(times, real):
        left = iter(range(times))
        return lambda *given, **more: (
            real(*given, **more) if next(left, None) is not None else signal.raise_signal(signal.SIGINT)
        )

    for place, times in ((columns, 3), (Parts, 0)):  # at work, and when all was done but the parts were there
        name = "score" if place is columns else "remove"
        with monkeypatch.context() as patch:
            patch.setattr(place, name, interrupted_after(times, getattr(place, name)))
            assert score("--overwrite", method="energy") == 130
        assert Path("s.csv.parts").is_dir()
        if place is columns:
            refused()
    after = Path("s.csv").read_bytes()
    assert after != before
    assert score(method="energy") == 0  # the same file again
    assert Path("s.csv").read_bytes() == after
    assert not Path("s.csv.parts").exists()
    assert score("--fresh") == 0
    assert Path("s.csv").read_bytes() == before


class Slow:
    """A model whose rows take so many seconds, by a clock of its own; Ctrl-C after so many rows."""

    def __init__(self, patch, seconds, most=None):
        from nescio import progress
        from nescio.batch import columns

        self.now, self.sizes, whole = 0.0, [], columns.score

        def score(model, x, *given, **more):
            if most is not None and sum(self.sizes) >= most:
                raise KeyboardInterrupt
            self.now += seconds * len(x)
            self.sizes.append(len(x))
            return whole(model, x, *given, **more)

        patch.setattr(columns, "score", score)
        patch.setattr(progress, "clock", lambda: self.now)


def plain(*more, out):
    """The command as people give it."""
    given = ["--model", "survivors:build", "--data", "x.npz", "--method", "regrad"]
    return main(["score", *given, "--out", out, *more])


def test_a_slow_model_loses_half_a_minute_at_most_and_is_said_to_be_slow(folder, capsys):
    with pytest.MonkeyPatch.context() as patch:
        Slow(patch, 7.0)
        assert plain(out="whole.csv") == 0
    assert capsys.readouterr().err == (
        "nescio: scoring after 2 rows will take about 4.4 minutes more: 38 inputs, 7 s each; "
        "faster: --method gen (one forward pass for each input, unlike regrad), or a GPU (--device cuda), or more "
        "processes (--engine ray --workers N)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        clock = Slow(patch, 7.0, 11)
        assert plain("--fresh", out="s.csv") == 130
    kept, again = capsys.readouterr().err.splitlines()[1:]
    done = json.loads(Path("s.csv.parts", MANIFEST).read_text())
    assert sum(part["rows"] for part in done["parts"]) >= 11 - 30 / 7 and set(clock.sizes) == {1}
    assert "rows are kept in s.csv.parts" in kept
    assert again == ("nescio: to go on: nescio score --model survivors:build --data x.npz --method regrad --out s.csv")
    with pytest.MonkeyPatch.context() as patch:  # a quick machine takes the same batches as the slow one
        clock = Slow(patch, 0.001)
        assert plain(out="s.csv") == 0
        assert set(clock.sizes) == {1}
    assert Path("s.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert not Path("s.csv.parts").exists()


def test_batches_that_were_found_and_batches_that_were_given_are_not_mixed(folder, capsys):
    assert plain(out="scores/") == 0
    assert json.loads(Path("scores", MANIFEST).read_text())["identity"]["batch size"] == "64, found by time"
    assert plain("--batch-size", "64", out="scores/") == 2
    assert "not the same batch size" in capsys.readouterr().err
    assert plain(out="scores/") == 0
    assert f"All {ROWS} rows were in scores/ already" in capsys.readouterr().out


ENDED = """
import os, signal, sys, time
import torch
from nescio.cli import main
from nescio.batch import pacing, streaming

torch.set_num_threads(1)
streaming.KEPT, pacing.BATCH = 0.3, 0.05
arguments = ["score", "--model", "slowmodels:build", "--data", "x.npz", "--method", "entropy", "--out"]
kept = lambda: len([n for n in os.listdir("s.csv.parts") if n[:4] == "part"]) if os.path.isdir("s.csv.parts") else 0
for number in (signal.SIGINT, signal.SIGTERM):
    before, child = kept(), os.fork()
    if child == 0:
        os._exit(main([*arguments, "s.csv"]))
    until = time.monotonic() + 60
    while kept() < before + 2 and time.monotonic() < until:
        time.sleep(0.002)
    os.kill(child, number)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), kept(), flush=True)
os.environ["QUICK"] = "1"
sys.exit(main([*arguments, "s.csv"]) or main([*arguments, "whole.csv", "--batch-size", "1"]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ctrl_c_and_sigterm_keep_the_rows_of_a_slow_model_and_say_how_to_go_on(folder):
    (folder / "slowmodels.py").write_text(
        MODELS + "\nimport os, time\n\nclass Slow(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.inner = many()\n"
        "    def forward(self, x):\n        time.sleep(0 if 'QUICK' in os.environ else 0.06 * len(x))\n"
        "        return self.inner(x)\n\nbuild = Slow\n"
    )
    command = [sys.executable, "-c", ENDED]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    codes = [tuple(map(int, line.split())) for line in done.stdout.splitlines()[:2]]
    assert [code for code, _ in codes] == [130, 143] and codes[1][1] > codes[0][1] >= 2
    assert done.stderr.count(" rows are kept in s.csv.parts: the same command goes on from there") == 2
    assert done.stderr.count("nescio: to go on: nescio score --model slowmodels:build") == 2
    assert Path("s.csv").read_bytes() == Path("whole.csv").read_bytes()


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
@pytest.mark.parametrize("good", [5, 18])
def test_a_full_disk_keeps_what_was_done_and_says_so(folder, capsys, monkeypatch, ending, good):
    assert score(out=f"whole.{ending}") == 0
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr("nescio.data.parts.PATIENCE", 0)  # the manifest follows each part, however long it took
        patch.setattr("os.fsync", full_after(good))
        assert score(out=f"s.{ending}") == 2
    error = capsys.readouterr().err
    kept, listed = 4 * (good // 2), 4 * ((good - 1) // 2)  # the journal has the part whose manifest found no room
    assert "No space left on device" in error
    assert f"{kept} of {ROWS} rows are kept in s.{ending}.parts: the same command goes on from there" in error
    assert error.count("\n") == 1
    record = json.loads(Path(f"s.{ending}.parts", MANIFEST).read_text())
    assert record["missing"] == [[listed, ROWS]]
    first = read_table(Path(f"s.{ending}.parts", record["parts"][0]["file"]))
    assert first["index"].tolist() == [0, 1, 2, 3]
    assert score(out=f"s.{ending}") == 0
    assert Path(f"s.{ending}").read_bytes() == Path(f"whole.{ending}").read_bytes()


def test_no_room_for_the_joined_file_keeps_all_parts(folder, capsys, monkeypatch):
    def full(files, joined):
        joined.write_bytes(b"index")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("nescio.data.parts.JOIN", {".csv": full})
        assert score() == 2
    assert f"{ROWS} of {ROWS} rows are kept in s.csv.parts" in capsys.readouterr().err
    assert sorted(name for name in os.listdir() if "s.csv" in name) == ["s.csv.parts"]
    assert score() == 0
    assert capsys.readouterr().out == f"Wrote {ROWS} rows to s.csv: entropy\n"
    assert read_table("s.csv")["index"].tolist() == list(range(ROWS))


def test_a_broken_row_keeps_what_came_before_and_may_be_left_out(folder, capsys):
    x = np.load("x.npz")["x"]
    x[[9, 30], 2] = np.nan
    np.savez("broken.npz", x=x)
    assert score(data="broken.npz") == 2
    error = capsys.readouterr().err
    assert "cannot use broken.npz[9] (row 9): it has NaN or infinite values" in error
    assert f"8 of {ROWS} rows are kept in s.csv.parts" in error
    assert score("--on-error", "skip", data="broken.npz") == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"nescio: going on after 8 of {ROWS} rows in s.csv.parts"
    assert lines[1] == f"nescio: 2 of {ROWS} rows could not be used and were left out:"
    assert read_table("s.csv")["index"].tolist() == [i for i in range(ROWS) if i not in (9, 30)]


def test_what_is_unforeseen_keeps_parts_too(folder, capsys):
    from nescio.batch import columns

    whole, calls = columns.score, []

    def broken(*given, **more):
        calls.append(1)
        if len(calls) > 2:
            raise SystemError("the universe")
        return whole(*given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "score", broken)
        assert score() == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"nescio: 8 of {ROWS} rows are kept in s.csv.parts: the same command goes on from there"
    assert "SystemError: the universe" in lines[1]


def test_a_changed_part_is_made_again_and_said(folder, capsys):
    assert score(out="scores/") == 0
    before = Path("scores/part-000003.parquet").read_bytes()
    Path("scores/part-000003.parquet").write_bytes(before[:-1])
    assert score(out="scores/") == 0
    assert "part-000003.parquet in scores was lost or changed, and is made again" in capsys.readouterr().err
    assert Path("scores/part-000003.parquet").read_bytes() == before


def test_another_machine_is_said(folder, capsys):
    assert score(out="scores/") == 0
    record = json.loads(Path("scores", MANIFEST).read_text())
    record["about"]["machine"] = "an abacus"
    record["parts"].pop()
    Path("scores", MANIFEST).write_text(json.dumps(record))
    assert score(out="scores/") == 0
    assert "nescio: warning: they are of an abacus, not of cpu" in capsys.readouterr().err


def test_errors_of_estimates_are_told_over_all_parts(folder, capsys):
    from nescio.cli.score import _error

    notes = [
        (10, {"middle": 0.01, "largest": 0.5, "checked": 2, "worst": 0.02}),
        (30, {"middle": 0.03, "largest": 0.4}),
    ]
    words = "estimated; median standard error 3.0%, 50.0% at most; 2.0% off at most for 2 inputs computed exactly"
    assert _error(notes) == words
    assert score("--set", "classes=3", method="exgrad", model="survivors:many") == 0
    assert "exgrad: estimated; median standard error " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("nowhere/scores/", "does not exist; create it first"),
        ("x.npz", "--out: expected another file than that of --data"),
        ("mine", "expected an empty folder, or one that this command has written, but mine holds notes.txt"),
        ("file", "is a file; remove it or name another"),
    ],
)
def test_places_that_cannot_be_written_to(folder, capsys, out, words):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("")
    Path("file").write_text("")
    assert score(out=out) == 2
    assert words in capsys.readouterr().err


def test_after_a_long_run_people_are_told_how_the_time_was_spent(folder, capsys, monkeypatch):
    monkeypatch.setattr("nescio.cli.score.LONG", 0.0)
    assert score("--workers", "2") == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert "rows/s in " in line
    assert "% of that time and waited" in line
