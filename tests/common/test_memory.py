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
