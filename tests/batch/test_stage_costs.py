"""What a job costs here: each stage apart, and nothing is left behind."""

import os
import sys
import threading
import time

import numpy as np
import pytest

from nescio import scores
from nescio.batch import stage_costs
from nescio.batch.jobs import Job
from nescio.batch.stage_costs import measure, waiting
from nescio.specs import DataSpec, ModelSpec
from nescio.types import InputError

MODELS = """
import time
import torch
from torch import nn

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        time.sleep(0.001 * len(x))
        return self.layer(x)

def build():
    return Slow()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slowmodels.py").write_text(MODELS)
    np.savez("x.npz", x=np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32))
    monkeypatch.setattr(stage_costs, "SECONDS", 0.02)
    monkeypatch.setattr(stage_costs, "_import", lambda: stage_costs._Timed(1.0, 0.5))
    yield tmp_path
    sys.modules.pop("slowmodels", None)


def job(data="x.npz", batch=8, on_error="stop"):
    return Job(ModelSpec("slowmodels:build"), DataSpec(data, on_error=on_error), (scores.get("entropy"),), batch=batch)


def test_a_model_that_sleeps_is_seen_in_compute_and_nowhere_else(folder):
    before = sorted(os.listdir())
    ready, costs = measure(job(), 16, folder, find_batch=False)
    assert ready.job.batch == costs.batch == 8
    assert costs.compute.seconds >= 0.001 and costs.compute.cpu < costs.compute.seconds
    assert costs.decode.seconds < 0.001 and costs.store.seconds < 0.001 and costs.transfer.seconds == 0
    assert costs.compute.low <= costs.compute.seconds <= costs.compute.high
    assert costs.start >= 1.0 and costs.numbers and costs.part > 0
    assert costs.row_bytes == 4 * 8  # index, entropy, predicted and probability
    assert sorted(set(os.listdir()) - {"__pycache__"}) == before  # nothing is left behind


def test_the_size_of_a_batch_is_found_as_a_run_finds_it(folder):
    ready, costs = measure(job(), 16, folder)
    assert ready.job.ramp and costs.batch == ready.job.batch == 64


def test_rows_that_tell_the_size_of_a_batch_are_counted_once(folder):
    """They are rows of the run in one process; on Ray they are scored again, and that is before all workers begin."""
    models = (folder / "slowmodels.py").read_text()
    (folder / "slowmodels.py").write_text(models.replace("0.001", "0.02"))
    for find, more in ((True, 32 * 0.02), (False, 0.0)):
        _, costs = measure(job(), 16, folder, find_batch=find)
        assert costs.start < 1.0 + 16 * 0.02 and costs.worker_start < stage_costs.WORKER_IMPORTS + 16 * 0.02
        assert costs.ray_start == pytest.approx(stage_costs.RAY_IMPORTS + more, abs=0.1)


def test_data_that_cannot_be_measured_are_refused(folder):
    np.savez("none.npz", x=np.zeros((0, 4), dtype=np.float32))
    with pytest.raises(InputError, match=r"expected rows to measure in none\.npz, but there are none"):
        measure(job("none.npz"), 32, folder)
    np.savez("broken.npz", x=np.full((9, 4), np.nan, dtype=np.float32))
    with pytest.raises(InputError, match=r"none of the first 32 rows of broken\.npz can be used"):
        measure(job("broken.npz", on_error="skip"), 32, folder, find_batch=False)


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="the system does not count it")
def test_time_that_was_spent_waiting_for_a_core_is_counted_and_sleep_is_not():
    before = waiting("thread-self")
    time.sleep(0.05)
    assert waiting("thread-self") - before < 0.05
    assert waiting("no such thread") == 0.0
    others = threading.Thread(target=time.sleep, args=(0.01,))
    others.start()
    assert waiting(*stage_costs._own_threads()) >= before
    others.join()


def test_names_of_files_grow_with_the_rows_and_what_a_list_takes_of_its_own_does_not_count(folder):
    from PIL import Image

    np.savez("many.npz", x=np.zeros((5000, 4), dtype=np.float32))
    assert stage_costs._row_bytes(job("many.npz").open()) == 0  # numbers have no names, and lie on the disk
    (folder / "pictures").mkdir()
    for number in range(200):
        Image.new("L", (2, 2)).save(folder / "pictures" / f"a-name-of-some-length-{number:06d}.png")
    each = stage_costs._row_bytes(job("pictures").open())
    assert 50 < each < 1000
