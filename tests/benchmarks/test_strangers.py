"""Networks of others against the oracle: the committed numbers, and the judge itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import trace

ROOT = Path(__file__).resolve().parents[2]


def test_none_of_them_is_wrong() -> None:
    import strangers

    result = json.loads((ROOT / "benchmarks" / "results" / "strangers.json").read_text(encoding="utf-8"))
    rows = result["networks"]
    assert result["counts"] == strangers.counts(rows)
    assert result["counts"]["wrong"] == result["counts"]["crashed"] == 0
    right = [name for name, row in rows.items() if row["verdict"] in ("exact", "float32")]
    assert sum(name.startswith("hf") for name in right) >= 40
    assert len(right) >= 150
    assert all(row["error"] <= 1e-9 for row in rows.values() if row["verdict"] == "exact")
    assert all(row["error"] <= 10 * row["own"] < 1e-2 for row in rows.values() if row["verdict"] == "float32")
    assert all(row["says"] for row in rows.values() if row["verdict"] in ("refused", "left out"))


class Net(nn.Module):
    def __init__(self, inside: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.first, self.head, self.inside = nn.Linear(4, 5), nn.Linear(5, 3), inside

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).to(self.inside).tanh().to(x.dtype))


def test_the_judge_tells_all_verdicts_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    import strangers

    torch.manual_seed(0)
    x = torch.randn(2, 4, dtype=torch.float64)
    verdicts: dict[str, Any] = {"exact": strangers.judge(Net().double(), x)}
    verdicts["float32"] = strangers.judge(Net(torch.float32).double(), x)

    class Lost(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.first(x).detach())

    verdicts["refused"] = strangers.judge(Lost().double(), x)
    right = trace.class_gradients

    def slightly_off(*args: Any, **settings: Any) -> Any:
        found = right(*args, **settings)
        found.norms[0, 0, 0] *= 1 + 1e-7
        return found

    monkeypatch.setattr(trace, "class_gradients", slightly_off)
    verdicts["wrong"] = strangers.judge(Net().double(), x)
    monkeypatch.setattr(trace, "class_gradients", lambda *a, **k: [][0])
    verdicts["crashed"] = strangers.judge(Net().double(), x)
    assert {name: row["verdict"] for name, row in verdicts.items()} == {name: name for name in verdicts}
    assert strangers.counts(verdicts) == {**dict.fromkeys(verdicts, 1), "left out": 0}
