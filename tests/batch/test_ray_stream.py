"""The stream on Ray: the bytes of the local engine, whoever is killed meanwhile."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch

from nescio import scores
from nescio._common.formatting import count
from nescio.batch import ray_parquet, ray_stream, streaming
from nescio.batch.columns import Scores
from nescio.batch.jobs import Job, identity
from nescio.batch.ray_cluster import Node, share
from nescio.batch.ray_stream import Usage
from nescio.batch.ray_worker import ATTEMPTS, PartResult, Work, Worker, portable
from nescio.batch.streaming import score_part
from nescio.cli import main
from nescio.data import read_table
from nescio.data.parts import MANIFEST, Parts, WorkerFolder
from nescio.specs import DataSpec, ModelSpec
from nescio.types import InputError, ModelError

MODELS = """
import os, signal, time
from pathlib import Path
import torch
from torch import nn

class Deadly(nn.Module):
    "It ends its process once where the file `deadly` lies, at the input that begins with 9, and is slow beside `slow`."

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()

    def forward(self, x):
        if Path("deadly").exists() and bool((x[:, 0] == 9).any()):
            os.remove("deadly")
            os.kill(os.getpid(), signal.SIGKILL)
        if Path("slow").exists():
            time.sleep(0.1)
        return self.layers(x)

def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Deadly()

def failing():
    def model(x):
        raise ZeroDivisionError("by the model")
    return model
"""
ROWS, SIZE = 40, 4


def parquet(x):
    """The rows in two files of a folder, in groups that are not those of parts or batches."""
    Path("tables").mkdir()
    table = pyarrow.table({"x": x.tolist(), "unused": list(range(len(x)))})
    pyarrow.parquet.write_table(table.slice(0, 15), "tables/a.parquet", row_group_size=6)
    pyarrow.parquet.write_table(table.slice(15), "tables/b.parquet", row_group_size=11)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raymodels.py").write_text(MODELS)
    x = np.random.default_rng(0).normal(size=(ROWS, 4))
    np.savez("train.npz", x=x, y=np.arange(ROWS) % 3)
    x[13, 0] = 9
    np.savez("x.npz", x=x)
    x[[4, 5, 6, 7, 18], 1] = np.nan
    np.savez("broken.npz", x=x)
    parquet(x)
    monkeypatch.setattr(streaming, "_last", None)
    yield tmp_path
    sys.modules.pop("raymodels", None)


@pytest.fixture(scope="module")
def cluster():
    """A Ray for all tests, and its address: to start one takes seconds."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'nescio[ray]'")
    pytest.importorskip("pandas", reason="Ray Data is not installed: pip install 'nescio[ray]'")
    with ray_stream.ray_cluster.quiet(), ray_stream.ray_cluster._silent():
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def job(*methods, model="raymodels:build", data="broken.npz", x=None, on_error="skip", **more):
    chosen = tuple(scores.get(one) for one in methods or ("entropy",))
    return Job(ModelSpec(model), DataSpec(data, x, on_error=on_error), chosen, batch=SIZE, **more)


def locally(asked, ending=".csv"):
    """The table that the local engine makes in the folder `local`."""
    ready = asked.open()
    with Parts("local", ROWS, SIZE, identity(asked, ready), ending=ending) as parts:
        streaming.stream(ready, parts)
        parts.join(f"local{ending}")
    return Path(f"local{ending}").read_bytes()


def noting(reader, where):
    """The stage that reads Parquet, with a file for each part that it has sent."""
    where.mkdir()

    def noted(*given):
        plain = reader(*given)

        def read(batch):
            for one in plain(batch):
                if one["table"][0]:
                    (where / str(one["start"][0])).touch()
                yield one

        return read

    return noted


def manifest(name):
    """What is known of the parts in a folder, less on what they were made."""
    record = json.loads(Path(name, MANIFEST).read_text())
    return record.pop("about"), record


@pytest.mark.slow  # Ray takes longer to begin than all of this room together
def test_ray_gives_the_bytes_of_the_local_engine_though_a_worker_is_killed_and_rows_are_broken(
    folder, cluster, capfd, monkeypatch
):
    asked = job("regrad", "perturb_x", "mahalanobis", fit=DataSpec("train.npz"), data="tables", x="x")
    local = locally(asked, ".parquet")
    Path("deadly").touch()
    monkeypatch.setattr(ray_parquet, "reader", noting(ray_parquet.reader, folder / "read"))
    told, usage = [], Usage()
    ready = ray_stream.opened(asked)
    adopted = []
    with Parts("ray", ROWS, SIZE, identity(asked, ready)) as parts:
        adopt = parts.adopt
        parts.adopt = lambda part, *more: (adopted.append(part.start), adopt(part, *more))
        ray_stream.stream(ready, parts, workers=2, usage=usage, tell=told.append)
        parts.join("ray.parquet")
        assert [problem.index for problem in parts.problems] == [4, 5, 6, 7, 18]
    assert not Path("deadly").exists()
    assert Path("ray.parquet").read_bytes() == local
    starts = list(range(0, ROWS, SIZE))
    assert sorted(map(int, os.listdir("read"))) == starts  # by a stage of its own
    assert sorted(adopted) == starts  # written by workers
    assert sorted(os.listdir("ray")) == [MANIFEST, *(f"part-{i:06d}.parquet" for i in range(ROWS // SIZE))]
    about, record = manifest("ray")
    assert record == manifest("local")[1]
    assert about["machine"] == f"cpu, {count(torch.get_num_threads(), 'thread')}, {_capability()}"
    assert told == ["a worker was lost at the rows 12 to 15, which were scored again"]
    assert usage.rows == ROWS and usage.workers == 2 and 0 < usage.working < usage.seconds
    assert capfd.readouterr().err == ""  # Ray itself says nothing


@pytest.mark.slow  # Ray takes longer to begin than all of this room together
def test_a_run_whose_driver_was_killed_goes_on_and_ends_with_the_same_bytes(folder, cluster, capfd):
    given = ["score", "--model", "raymodels:build", "--data", "x.npz", "--batch-size", "4", "--part-rows", "4"]
    assert main([*given, "--out", "local.csv"]) == 0
    Path("slow").touch()
    mine = [*given, "--engine", "ray", "--workers", "1", "--out", "ray.csv"]
    driver = subprocess.Popen([sys.executable, "-m", "nescio", *mine, "--address", cluster])
    try:
        _until(lambda: len(list(Path().glob("ray.csv.parts/part-*"))) >= 2, driver)
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    before = len(list(Path().glob("ray.csv.parts/part-*")))
    assert 2 <= before < ROWS // SIZE
    Path("slow").unlink()
    capfd.readouterr()
    assert main(mine) == 0
    assert Path("ray.csv").read_bytes() == Path("local.csv").read_bytes()
    assert not Path("ray.csv.parts").exists()
    assert "nescio: going on after" in capfd.readouterr().err


@pytest.mark.slow  # Ray takes longer to begin than all of this room together
@pytest.mark.parametrize("data", ["many.npz", "many.parquet"])
def test_what_the_driver_holds_of_ray_does_not_grow_with_the_parts(folder, cluster, data):
    from ray._private.worker import global_worker

    x = np.zeros((2400, 4))
    np.savez("many.npz", x=x)
    pyarrow.parquet.write_table(pyarrow.table({"x": x.tolist()}), "many.parquet", row_group_size=100)
    asked = job(data=data, x=None if data == "many.npz" else "x")
    ready, held = ray_stream.opened(asked), {}
    for many in (60, 600):
        work = Work(asked, 1, str(folder), WorkerFolder("/no folder", ".csv", ""))
        parts = [range(start, start + SIZE) for start in range(0, SIZE * many, SIZE)]
        results = ray_stream._results(work, ready.rows, parts, 2, False)
        counts = [(one.start, len(global_worker.core_worker.get_all_reference_counts())) for one in results]
        assert sorted(start for start, _ in counts) == [part.start for part in parts]
        held[many] = max(number for _, number in counts)
    assert held[600] <= held[60] + 20


def _capability():
    return torch.backends.cpu.get_cpu_capability()


def _until(there, process, seconds=300):
    end = time.monotonic() + seconds
    while not there():
        assert process.poll() is None and time.monotonic() < end, "the run ended, or did nothing"
        time.sleep(0.02)


# --- without a cluster -----------------------------------------------------------------------------------------------


def test_threads_are_those_of_one_process_while_there_is_room_and_cores_are_never_shared():
    eight = Node(8, 0)
    assert share([eight], None, 8) == (1, 8)
    assert share([eight], None, 2) == (4, 2)
    assert share([eight, eight, Node(4, 0)], None, 8) == (2, 8)
    assert share([eight], 4, 8) == (4, 2)
    assert share([eight], 3, 8) == (3, 2)
    assert share([eight] * 3, 4, 8) == (4, 4)  # 24 cores would be six for each, but then a machine has room for one
    assert share([Node(4, 0)], None, 64) == (1, 4)
    assert share([Node(16, 4), eight], None, 4, gpu=True) == (4, 4)
    assert share([Node(16, 4)], 2, 16, gpu=True) == (2, 8)
    with pytest.raises(InputError, match="expected a core for each of 9 workers, but there is room for 8; give fewer"):
        share([eight], 9, 1)
    with pytest.raises(InputError, match="core and a GPU for each of 1 workers, but there is room for 0; give another"):
        share([eight], None, 1, gpu=True)


def test_a_worker_gives_errors_back_as_they_are_and_gives_a_part_up_that_has_ended_many(folder):
    def done(asked, attempts=1, where=None, weights=None):
        shared = WorkerFolder(str(folder), ".csv", "none")
        worker = Worker(Work(asked, torch.get_num_threads(), str(where or folder), shared, weights))
        return pickle.loads(pickle.dumps(worker.result(4, 8, attempts)))

    broken = done(job(on_error="stop")).outcome
    assert isinstance(broken, InputError) and str(broken).startswith("cannot use broken.npz[4] (row 4)")
    assert "in a worker of Ray:\nTraceback" in broken.__notes__[0]
    failed = done(job(model="raymodels:failing")).outcome
    assert isinstance(failed, Exception) and "by the model" in str(failed)
    assert "expected the folder" in str(done(job(), where=folder / "none").outcome)
    lost = done(job(), attempts=ATTEMPTS + 1).outcome
    assert isinstance(lost, ModelError) and "5 workers were lost at the rows 4 to 7" in str(lost)
    other = done(job(), weights="another").outcome
    assert isinstance(other, ModelError)
    assert "expected the same weights of raymodels:build in every process" in str(other)
    good = done(job("entropy", data="x.npz"), attempts=ATTEMPTS)
    assert good.outcome.columns["index"].tolist() == [4, 5, 6, 7]

    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one}{two}")

    assert str(portable(Odd("a", "b"))) == "Odd: ab"  # it cannot be made again from its text


def test_a_worker_takes_the_rows_that_were_read_and_writes_its_part(folder):
    asked = job(data="tables", x="x")
    ready = ray_stream.opened(asked)
    found = ray_parquet.groups(ready.rows)
    (known,) = ray_parquet.tasks([[range(20, 24)]], found)
    (sent,) = ray_parquet.reader(ready.rows)({"run": [known["run"]]})
    with Parts("p", ROWS, SIZE, identity(asked, ready), ending=".csv") as parts, parts.worker_folder() as shared:
        work = Work(asked, torch.get_num_threads(), str(folder), shared, parts.identity["weights"])
        done = Worker(work).result(8, 12, 1, sent["table"][0])  # rows of another part, to tell them apart
        assert done.outcome.columns == {} and done.written.rows == SIZE
        parts.adopt(range(8, 12), done.written, done.outcome.problems, done.outcome.notes)
        ours = read_table("p/part-000002.csv")
    assert ours["index"].tolist() == [8, 9, 10, 11]
    assert ours["entropy"].tolist() == score_part(asked, 20, 24).columns["entropy"].tolist()


@pytest.fixture
def played(folder, monkeypatch):
    """Streams with results that a test makes up."""

    class Bare:
        def __enter__(self):
            pass

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(ray_stream.ray_cluster, "quiet", Bare)
    monkeypatch.setattr(ray_stream.ray_cluster, "connected", lambda address: Bare())
    monkeypatch.setattr(ray_stream.ray_cluster, "nodes", lambda: [Node(64, 0)])

    def play(asked, change, name="played", tell=lambda words: None):
        def results(work, rows, parts, workers, gpu):
            found = [(part.start, score_part(asked, part.start, part.stop)) for part in parts]
            yield from change([PartResult(start, one, 0.1, 1, machine="here") for start, one in found])

        monkeypatch.setattr(ray_stream, "_results", results)
        ready = ray_stream.opened(asked)
        with Parts(name, ROWS, SIZE, identity(asked, ready), ending=".csv") as parts:
            try:
                ray_stream.stream(ready, parts, tell=tell)
                parts.join(f"{name}.csv")
            finally:
                play.rows = parts.rows
        return Path(f"{name}.csv").read_bytes()

    return play


def test_results_in_any_order_count_once(played):
    asked = job("entropy", "perturb_x")
    whole = locally(asked)
    assert played(asked, lambda all: [*all[::-1], *all[:3]]) == whole


def test_what_ray_has_lost_is_an_error_and_a_later_run_brings_it(played):
    asked = job(data="x.npz")
    with pytest.raises(ModelError, match="expected scores of 40 rows, but Ray has given 36; run the command again"):
        played(asked, lambda all: all[:4] + all[5:])
    assert played.rows == ROWS - SIZE
    assert played(asked, lambda all: all) == locally(asked)


def test_an_error_of_a_worker_is_raised_and_what_came_before_is_kept(played):
    def change(all):
        return [*all[:2], PartResult(8, InputError("no"), 0.0, 1), *all[3:]]

    with pytest.raises(InputError, match=r"^no$"):
        played(job(data="x.npz"), change)
    assert played.rows == 2 * SIZE
    with pytest.raises(InputError, match=r"cannot use broken.npz\[4\] \(row 4\)"):
        played(job(), lambda all: all, "broken")
        played(job(on_error="stop"), lambda all: all, "broken")


def test_people_are_told_of_other_machines_lost_workers_and_rows_that_were_not_fitted(played):
    from dataclasses import replace

    def change(all):
        unfit = tuple(all[1].outcome.problems)
        return [
            replace(all[0], attempts=3),
            replace(all[1], machine="there"),
            *(replace(one, machine="there", unfit=unfit) for one in all[2:]),
        ]

    told = []
    played(job(), change, tell=told.append)
    assert told == [
        "2 workers were lost at the rows 0 to 3, which were scored again",
        "warning: some rows are of there, others of here: last digits may differ",
        f"4 rows to fit with could not be used; the first: {told[2].partition('first: ')[2]}",
    ]
    assert "broken.npz[4]" in told[2]
    assert manifest("played")[0]["machine"] == "here and there"


def test_the_time_that_is_left_is_told_from_the_work_and_not_from_the_start_of_ray(played, monkeypatch, capsys):
    from nescio import progress

    now = [0.0]
    monkeypatch.setattr(progress, "clock", lambda: now[0])
    monkeypatch.setattr(progress, "SOON", 60.0)  # words of progress do not belong to this

    def change(all):
        now[0] += 3600.0  # an hour until the first result
        return [replace(one, seconds=seconds) for one in all]

    with progress.speaking():
        seconds = 1.0
        played(job(data="x.npz"), change)
        assert capsys.readouterr().err == ""
        seconds = 80.0
        played(job(data="x.npz"), change, "slow")
    assert "scoring will take about " in capsys.readouterr().err


def test_opening_the_job_does_not_foretell_the_rest(played, monkeypatch, capsys):
    from nescio import progress

    monkeypatch.setattr(progress, "SOON", 60.0)

    def told(first, later):
        def change(all):
            one, *others = all
            yield replace(one, seconds=first, opening=3600.0)
            said.append(capsys.readouterr().err)
            yield from (replace(other, seconds=later) for other in others)

        said = []
        with progress.speaking():
            played(job(data="x.npz"), change, f"{first} {later}")
        return [*said, capsys.readouterr().err]

    assert told(3600.5, 0.1) == ["", ""]
    first, after = told(3605.0, 80.0)  # what comes first is slower, and tells nothing
    assert first == "" and "scoring will take about " in after
    first, after = told(3700.0, 0.1)  # 100 seconds without the hour tell enough
    assert "scoring will take about " in first and "hour" not in first and after == ""


def test_lines_in_the_place_of_a_bar_say_what_the_workers_foretell(monkeypatch, capsys):
    from nescio import progress

    now = [0.0]
    monkeypatch.setattr(progress, "clock", lambda: now[0])
    pace, ready = ray_stream._Pace(), PartResult(0, Scores({}, [], {}), 3605.0, 1, opening=3600.0)
    shown = progress._Lines(progress._Speech(), 400, "scoring", "input", pace.left)
    pace.workers, now[0] = 2, 3700.0
    shown.update(4)
    pace.add(ready, 4)
    shown.say()
    pace.add(replace(ready, seconds=8.0, opening=0.0), 4)
    shown.update(4)
    shown.say()
    assert capsys.readouterr().err.splitlines() == [
        "nescio: scoring: 4 of 400 inputs after 62 minutes",
        "nescio: scoring: 8 of 400 inputs after 62 minutes, about 6.5 minutes left",
    ]


def test_a_worker_opens_the_job_with_its_first_part(folder):
    asked = job(data="x.npz")
    worker = Worker(Work(asked, torch.get_num_threads(), ".", WorkerFolder("/no folder", ".csv", "")))
    first, second = worker.result(0, 4, attempts=1), worker.result(4, 8, attempts=1)
    assert 0 < first.opening < first.seconds and second.opening == 0 < second.seconds


def test_a_gpu_is_named_by_ray(folder):
    ready = ray_stream.opened(job())
    assert not ray_stream._gpu(ready)

    def asking(device):
        asked = Job(ModelSpec("raymodels:build", device=device), DataSpec("x.npz"), (), batch=SIZE)
        return ray_stream._gpu(ray_stream.opened(asked))  # opened without it

    assert asking("cuda") and not asking("cpu")
    with pytest.raises(InputError, match="--device: expected cuda, since Ray gives each worker a GPU of its own"):
        asking("cuda:1")


def test_the_use_of_time_in_words():
    usage = Usage(rows=1000, seconds=4.0, working=3.0, workers=2)
    assert str(usage) == "250 rows/s in 4 s by 2 workers, at work 75% of that time"
    assert usage.record()["workers"] == 2
    assert str(Usage(rows=12_345, seconds=1.0, working=1.0, workers=1)).startswith("12,345 rows/s in 1 s by 1 worker,")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the reference has:UserWarning")
def test_verdicts_of_a_guard_are_those_of_the_local_engine(folder, cluster):
    np.savez("reference.npz", x=np.random.default_rng(1).normal(size=(120, 4)))
    assert main(["guard", "--model", "raymodels:build", "--reference", "reference.npz", "--out", "guard"]) == 0
    given = ["--guard", "guard", "--model", "raymodels:build", "--data", "broken.npz", "--on-error", "skip"]
    given += ["--batch-size", str(SIZE), "--part-rows", str(SIZE)]
    assert main(["check", *given, "--out", "here.csv"]) == 0
    assert main(["check", *given, "--out", "there.csv", "--engine", "ray", "--address", cluster]) == 0
    assert Path("there.csv").read_bytes() == Path("here.csv").read_bytes()
