"""How many inputs and cotangents go through at once: as many as the memory holds."""

from __future__ import annotations

import pytest
import torch

from nescio._common import memory
from nescio.trace.runtime import batch_sizes


@pytest.mark.parametrize("copies", [1, 5, 100])
@pytest.mark.parametrize("rows", [1, 10, 1000])
@pytest.mark.parametrize("activations", [1e3, 1e6, 1e8])
def test_the_choice_keeps_to_its_budget(
    activations: float, rows: int, copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients = activations / 3
    for device in (torch.device("cpu"), torch.device("cuda")):
        for free in (1e6, 1e9, 1e11):
            monkeypatch.setattr(memory, "free_bytes", lambda device, most=0.0, free=free: free)
            many, at_once = batch_sizes.choose(device, activations, gradients, rows, copies)
            assert many >= 1
            assert 1 <= at_once <= rows
            least = copies * (activations + gradients)
            used = many * copies * (activations + at_once * gradients)
            assert used <= free * memory.SHARE or (many, at_once) == (1, 1) or used <= least
    monkeypatch.setattr(memory, "free_bytes", lambda device, most=0.0: 1e12)
    assert batch_sizes.choose(torch.device("cuda"), 1e6, 1e5, 10)[1] == 10


def test_more_memory_is_never_less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    work = []
    for free in (1e5, 1e6, 1e7, 1e8, 1e9):
        monkeypatch.setattr(memory, "free_bytes", lambda device, most=0.0, free=free: free)
        many, at_once = batch_sizes.choose(torch.device("cpu"), 1e5, 1e4, 20, 3)
        work.append(many * at_once)
    assert work == sorted(work)
    assert work[0] == 1


@pytest.mark.parametrize(
    ("gradients", "free", "inputs"), [(1e6, 1e9, 2), (1e6, 5e8, 1), (1e9, 1e10, 1), (1e4, 1e9, 32)]
)
def test_two_inputs_at_once_leave_a_cache_but_not_the_memory(
    gradients: float, free: float, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device, most=memory.CPU_BYTES: min(free, most / memory.SHARE))
    assert batch_sizes.choose(torch.device("cpu"), 1e6, gradients, 32)[0] == inputs
    assert batch_sizes.choose(torch.device("cpu"), 1e6, gradients, 32, most=1.1 * 192 * gradients)[0] == 1
