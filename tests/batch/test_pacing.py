"""The size of a batch, found by time: with a clock that is moved by hand, so that slow models are quick to test."""

from pathlib import Path

import numpy as np
import pytest

from nescio import progress, scores
from nescio.batch import columns, pacing
from nescio.batch.jobs import Job, identity
from nescio.batch.streaming import stream
from nescio.data.parts import KEPT, Parts, part_rows
from nescio.specs import DataSpec, ModelSpec

MODEL = """
import torch
from torch import nn

def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
"""


class Clock:
    """Time passes while rows are scored: `first` seconds for the first call, then `row` seconds for each row."""

    def __init__(self, monkeypatch, row, first=0.0):
        self.now, self.row, self.first, self.sizes = 0.0, row, first, []
        whole = columns.score

        def timed(model, x, *given, **more):
            self.now += self.first + (self.row(len(x)) if callable(self.row) else self.row * len(x))
            self.first = 0.0
            self.sizes.append(len(x))
            return whole(model, x, *given, **more)

        monkeypatch.setattr(columns, "score", timed)
        monkeypatch.setattr(progress, "clock", lambda: self.now)


@pytest.fixture
def ready(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pacedmodels.py").write_text(MODEL)

    def opened(rows=300, broken=(), on_error="skip"):
        x = np.random.default_rng(0).normal(size=(rows, 4))
        x[list(broken)] = np.nan
        np.savez("x.npz", x=x)
        return Job(
            ModelSpec("pacedmodels:build"), DataSpec("x.npz", on_error=on_error), (scores.get("entropy"),)
        ).open()

    return opened


@pytest.mark.parametrize(
    ("row", "first", "size", "scored"),
    [
        (0.001, 0.0, 256, [1, 1, 2, 12, 48, 192]),
        (0.001, 20.0, 1, [1]),  # a first row that takes so long is kept before another is begun
        (0.001, 10.0, 256, [1, 1, 2, 12, 48, 192]),  # what is found out about the model is not what a row takes
        (0.05, 1.0, 64, [1, 1, 2, 12, 48]),
        (0.3, 1.0, 16, [1, 1, 2, 12]),
        (1.5, 1.0, 4, [1, 1, 2]),
        (2.5, 1.0, 1, [1, 1]),
        (37.0, 5.0, 1, [1]),
        (lambda n: 0.2, 0.0, 256, [1, 1, 2, 12, 48, 192]),  # many together cost what one does
    ],
)
def test_a_batch_takes_seconds(ready, monkeypatch, row, first, size, scored):
    clock = Clock(monkeypatch, row, first)
    found = pacing.begin(ready())
    assert (found.ready.job.batch, found.ready.job.ramp, clock.sizes) == (size, True, scored)
    assert found.stop == sum(scored) and len(found.gathered.joined().columns["index"]) == found.stop
    if size < 256 and not callable(row) and len(scored) > 1:
        assert found.seconds == pytest.approx(row) and row * size <= 1.5 * pacing.BATCH


@pytest.mark.parametrize("rows", [1, 2, 3, 25, 64, 256])
def test_few_quick_rows_are_done_at_once_and_a_run_that_goes_on_cuts_them_the_same(ready, monkeypatch, rows):
    clock = Clock(monkeypatch, 0.001)
    found = pacing.begin(ready(rows))
    assert found.stop == rows
    assert [len(places) for places in found.ready.job.batches(range(rows))] == clock.sizes


def test_rows_that_cannot_be_used_are_no_measure_and_stop_where_they_are_met(ready, monkeypatch):
    clock = Clock(monkeypatch, 0.3, 1.0)
    assert pacing.begin(ready(broken=[0, 1])).ready.job.batch == 16
    assert clock.sizes == [2, 12]
    assert pacing.begin(ready(broken=[5], on_error="stop")).stop == 4


@pytest.mark.parametrize("cut", [None, 3])
def test_a_slow_model_is_kept_every_half_minute_and_cut_off_it_ends_with_the_same_bytes(ready, monkeypatch, cut):
    """Rows take two seconds at first and then six: parts, made for two, are kept piece by piece."""
    opened = ready(40)
    clock = Clock(monkeypatch, 2.0)
    begun = pacing.begin(opened)
    size = part_rows(40, begun.ready.job.batch, 20)

    def run(name, most=None, begun=begun):
        times, known = [], identity(begun.ready.job, begun.ready)
        with Parts(name, 40, size, known, ending=".csv") as parts:
            add = parts.add

            def noted(part, *given):
                add(part, *given)
                times.append(clock.now)
                clock.row = 6.0
                if most is not None and len(times) == most:
                    raise KeyboardInterrupt

            parts.add = noted
            try:
                stream(begun.ready, parts, begun=begun)
            except KeyboardInterrupt:
                return times, parts.rows
            parts.join(f"{name}.csv")
        return times, 40

    since = clock.now - begun.took
    times, _ = run("whole")
    assert len(times) > 6 and max(np.diff([since, *times])) <= KEPT
    clock.row = 2.0
    begun = pacing.begin(opened)
    if cut is not None:
        _, kept = run("cut", cut, begun)
        assert 0 < kept < 40
        begun = pacing.Beginning(begun.ready, begun.gathered, 0, None, 0.0)  # a new process has begun nothing
    run("cut", None, begun)
    assert Path("cut.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_a_size_that_was_found_is_known_by_its_words(ready):
    opened = pacing.with_batch_size(ready(4), 16)
    assert pacing.noted_size(identity(opened.job, opened)["batch size"]) == 16
    assert pacing.noted_size(256) is None and pacing.noted_size(None) is None
