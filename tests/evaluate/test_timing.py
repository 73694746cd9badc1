"""Seconds per map, with a clock that is set by hand."""

import pytest
import torch

from nescio.evaluate import time_per_map, timing
from nescio.types import InputError


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless it is moved."""
    now = [100.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def test_the_median_over_runs_without_the_first_worked_by_hand(clock):
    seen, cost = [], iter([50.0, 50.0, 4.0, 8.0, 1.0, 1.0, 3.0, 3.0])

    def explain(x):
        seen.append(x.clone())
        clock[0] += next(cost)

    found = time_per_map(explain, torch.arange(4.0), batch=3, warm_up=1, repeats=3)
    assert found.runs.tolist() == [12 / 4, 2 / 4, 6 / 4]  # two batches a run; the 100 s of the first are left out
    assert found.seconds == 1.5
    assert found.inputs == 4
    assert [len(x) for x in seen] == [3, 1] * 4
    assert torch.equal(torch.cat(seen[:2]), torch.arange(4.0))


def test_without_a_batch_all_inputs_go_at_once(clock):
    sizes = []
    found = time_per_map(lambda x: sizes.append(len(x)), torch.zeros(5, 2), warm_up=0, repeats=2)
    assert sizes == [5, 5]
    assert found.runs.tolist() == [0, 0]


def test_a_gpu_is_waited_for_before_each_reading_of_the_clock(clock, monkeypatch):
    pending = [0.0]

    def synchronise(device):
        assert device in (0, 1)
        clock[0] += pending[0]
        pending[0] = 0.0

    def explain(x):
        pending[0] += 2.0  # starts work, and returns at once

    for name, value in (("is_available", True), ("is_initialized", True), ("device_count", 2)):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronise)
    assert time_per_map(explain, torch.zeros(4), repeats=2).runs.tolist() == [0.5, 0.5]
    pending[0] = 7.0  # work that somebody else had left is not counted
    assert time_per_map(explain, torch.zeros(4), warm_up=0, repeats=1).runs.tolist() == [0.5]


@pytest.mark.parametrize(
    ("x", "settings", "message"),
    [
        ([1.0], {}, "x: expected a tensor of at least one input, .* but got list"),
        (torch.zeros(0, 3), {}, r"but got one of shape \[0, 3\]"),
        (torch.zeros(3), {"batch": 0}, "expected batch to be a whole number of at least 1, got 0"),
        (torch.zeros(3), {"repeats": 0}, "expected repeats to be a whole number of at least 1"),
        (torch.zeros(3), {"warm_up": -1}, "expected warm_up to be a whole number of at least 0"),
    ],
)
def test_it_refuses(x, settings, message):
    with pytest.raises(InputError, match=message):
        time_per_map(lambda x: None, x, **settings)
