"""Processes that read: the batches of threads, problems in their turn, and none left behind."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
import torch

from nescio.data.prefetch import read_ahead
from nescio.data.processes import Processes, can_fork
from nescio.data.sources import open_data
from nescio.types import InputError
from tests.data.conftest import same_reads

pytest.importorskip("PIL")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes read on Linux alone")
COUNT, BROKEN = 30, (4, 5, 6, 7, 17)


@pytest.fixture
def pictures(tmp_path):
    from PIL import Image

    draw = np.random.default_rng(0)
    for number in range(COUNT):
        file = tmp_path / f"{number:02d}.png"
        Image.fromarray(draw.integers(0, 256, (5, 4, 3), dtype=np.uint8)).save(file)
        if number in BROKEN:
            file.write_bytes(b"no picture")
    return lambda on_error="skip": open_data(tmp_path, on_error=on_error)


def ranges(size):
    return [range(first, min(first + size, COUNT)) for first in range(0, COUNT, size)]


def ahead(rows, size):
    return read_ahead(rows, ranges(size), workers=2, device=torch.device("cuda"))


@pytest.mark.parametrize("size", [2, 4, 5])
def test_batches_are_those_of_threads(pictures, lane, monkeypatch, size):
    forked, real = [], Processes.__init__
    monkeypatch.setattr(Processes, "__init__", lambda self, *given: (forked.append(self), real(self, *given))[1])
    truth, rows = list(read_ahead(pictures(), ranges(size), workers=2)), pictures()
    for ours, theirs in zip(ahead(rows, size), truth, strict=True):
        assert same_reads(ours, theirs)
    assert len(forked) == 1
    assert [problem.index for problem in rows.problems] == list(BROKEN)


def test_a_problem_is_raised_in_its_turn(pictures, lane):
    reads = ahead(pictures("stop"), 2)
    assert [next(reads).places, next(reads).places] == [range(0, 2), range(2, 4)]
    with pytest.raises(InputError, match=r"04.png \(row 4\): it is not a picture"):
        next(reads)


def test_a_process_that_was_ended_is_told_and_none_is_left(pictures, lane, monkeypatch):
    before = set(_children())
    monkeypatch.setattr("nescio.data.sources.picture_files.decode", lambda file: os.kill(os.getpid(), signal.SIGKILL))
    rows = pictures()
    rows.__dict__["_form"] = ((3, 5, 4), torch.float32)  # known before
    with pytest.raises(InputError, match=r"expected the rows 0 to 1, but the process that read them was killed"):
        next(ahead(rows, 2))
    assert set(_children()) <= before


def test_a_pool_that_broke_before_the_next_rows_is_told_too(pictures, lane, monkeypatch):
    class Broken(ProcessPoolExecutor):
        def submit(self, *args):
            raise BrokenProcessPool("a process was ended")

    monkeypatch.setattr("nescio.data.processes.ProcessPoolExecutor", Broken)
    with pytest.raises(InputError, match=r"expected the rows 0 to 1, but the process that read them was killed"):
        next(ahead(pictures(), 2))


def test_few_rows_and_other_data_are_read_by_threads(pictures, lane, monkeypatch, tmp_path):
    monkeypatch.setattr(Processes, "__init__", None)
    assert len(list(ahead(pictures(), 20))) == 2
    np.save(tmp_path / "x.npy", np.zeros((COUNT, 2)))
    rows = open_data(tmp_path / "x.npy")
    assert not can_fork(rows) and len(list(ahead(rows, 1))) == COUNT


def test_they_end_with_the_process_that_they_work_for(pictures, tmp_path):
    code = f"""
import sys, time
from nescio.data.processes import Processes
from nescio.data.sources import open_data
processes = Processes(open_data({str(tmp_path)!r}, on_error="skip"), 2, 4, 1)
processes.read(0, 0, range(2)).result()
print(*processes._pool._processes, flush=True)
time.sleep(60)
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    children = [int(one) for one in run.stdout.readline().split()]
    assert len(children) == 2 and all(map(_alive, children))
    run.kill()
    run.wait()
    run.stdout.close()
    end = time.monotonic() + 10
    while any(map(_alive, children)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(_alive, children))


def _alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _children():
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat") as file:
                    if int(file.read().rpartition(")")[2].split()[1]) == os.getpid() and _alive(name):
                        yield int(name)
            except OSError:
                pass
