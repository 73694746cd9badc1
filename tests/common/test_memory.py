"""Free memory is a number that can be planned with, and only errors about memory are taken for them."""

import pytest
import torch

from nescio._common import memory


def test_free_memory_of_this_machine_is_within_its_bounds() -> None:
    assert 0 < memory.free_bytes(torch.device("cpu")) <= memory.CPU_BYTES / memory.SHARE


def test_free_memory_has_a_guess_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr(memory.os, "sysconf", unknown)
    assert memory.free_bytes(torch.device("cpu")) == memory.CPU_BYTES / memory.SHARE


@pytest.mark.parametrize(
    ("error", "exhausted"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("expected a matrix"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_only_errors_about_memory_are_taken_for_them(error: Exception, exhausted: bool) -> None:
    assert memory.exhausted(error) is exhausted


def test_release_collects_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(memory.gc, "collect", lambda: calls.append("collect"))
    memory.release(torch.device("cpu"))
    assert calls == ["collect"]


@pytest.mark.parametrize(
    ("fraction", "expected"),
    [(1.0, 60 + 20 - 5), (0.5, 50 - 5), (0.1, 10 - 5), (0.01, 0)],
)
def test_a_process_plans_for_its_own_share_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, fraction: float, expected: float
) -> None:
    """Of 100 bytes 60 are free, this process holds 20 and uses 5 of them."""
    held = {"reserved_bytes": {"all": {"current": 20}}, "allocated_bytes": {"all": {"current": 5}}}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60, 100))
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda device: held)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: fraction, raising=False)
    assert memory.free_bytes(torch.device("cuda")) == expected
