"""The benchmark of small work: its loop computes what `nescio.score` computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import nescio

pytest.importorskip("timm")
pytest.importorskip("torchvision")
pytest.importorskip("transformers")


def test_the_loop_gives_the_same_score() -> None:
    import small

    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(3, 4)
    wanted = nescio.score(model, x, "regrad", tolerance=0.0, progress=False)
    found = torch.tensor(small.loop(model, x), dtype=torch.float64)
    assert torch.allclose(found, wanted, rtol=1e-5)


def test_ratios_are_to_the_loop_and_the_summary_has_their_median() -> None:
    import small

    row = small.measured(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), torch.randn(3, 4))
    assert row["loop_ms"] > 0 and row["first"] > 0 and row["second"] > 0
    rows = {"a": row, "b": row | {"second": 3 * row["second"]}, "c": {"left_out": "does not build"}}
    found = small.summary(rows)
    assert found["networks"] == 2 and found["left_out"] == 1
    assert found["second"]["median"] == pytest.approx(2 * row["second"], rel=1e-2)
    assert found["second"]["worst"] == 3 * row["second"]
