"""Scores on their way to the CPU, on a GPU where there is one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nescio.quantities.bringing import on_one_device, on_the_host
from nescio.types import NormTable

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]


@pytest.mark.parametrize("device", DEVICES)
def test_scores_and_flags_arrive_as_they_were(device: str) -> None:
    here = {"a": torch.tensor([1.0, torch.nan, -torch.inf]), "b": torch.tensor([4.0, 5.0, 1e-300]), "c": torch.eye(3)}
    here = {key: value.double() for key, value in here.items()}
    there = {key: value.to(device) for key, value in here.items()}
    for flags in ([], [True], [True, False], [False]):
        brought, hold = on_the_host(there, [torch.tensor(flag, device=device) for flag in flags])
        assert list(brought) == list(here) and hold == all(flags)
        for key, value in brought.items():
            assert value.device.type == "cpu" and value.dtype == torch.float64
            torch.testing.assert_close(value, here[key], rtol=0, atol=0, equal_nan=True)


def test_what_lies_away_from_the_cpu_comes_in_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = []

    class Away(torch.Tensor):
        """Stands for a tensor on another device."""

        device: Any = torch.device("meta")

        def cpu(self, *args: Any) -> torch.Tensor:
            copies.append(tuple(self.shape))
            return self.as_subclass(torch.Tensor)

    scores = {key: torch.rand(3, dtype=torch.float64) for key in "abcd"}
    away = {key: value.as_subclass(Away) for key, value in scores.items()}
    brought, hold = on_the_host(away, [torch.tensor(False).as_subclass(Away)])
    assert copies == [(5, 3)] and not hold
    assert all(brought[key].equal(value) for key, value in scores.items())


def test_values_of_one_device_stay_there() -> None:
    table = NormTable(torch.ones(2, 3, 1), torch.ones(2, 3), ("fc",))
    values = [table, torch.zeros(2)]
    assert on_one_device(values) is values
