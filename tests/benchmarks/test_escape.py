"""The page about limits holds the committed numbers, and the program that makes them runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_has_the_committed_numbers() -> None:
    import escape

    result = json.loads((ROOT / "benchmarks" / "results" / "escape.json").read_text())
    text = (ROOT / "docs" / "limits.md").read_text()
    assert escape.fill(text, "escape", escape.table(result)) == text
    flagged = {(row["case"], row["score"]): row["flagged"][-1] for row in result["rows"]}
    for case in ("moons", "wine"):  # what the page says in words
        assert all(flagged[case, score] == 0 for score in ("entropy", "gen", "energy", "exgrad", "regrad", "evengrad"))
        assert flagged[case, "ungrad"] == flagged[case, "mahalanobis"] == 1
        assert flagged[f"{case}, tie", "regrad"] == 1 and flagged[f"{case}, tie", "entropy"] == 0
        assert 0.99 < result["cases"][case]["rate_least"] < result["cases"][case]["rate_largest"] < 1.01
        assert result["cases"][case]["one_hot"] == result["cases"][case]["rays"]
    assert (ROOT / "docs" / "figures" / "escape.png").stat().st_size < 150_000


def test_a_small_case_runs_and_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    import escape

    monkeypatch.setattr(escape, "SCORES", ("max_probability", "entropy", "regrad", "ungrad"))
    monkeypatch.setattr(escape, "MEMBERS", 2)
    found = escape.case("moons", escape.moons(), (2, 8, 2), 2, 1)
    rows = {(row["case"], row["score"]): row for row in found["rows"]}
    assert rows["moons", "entropy"]["flagged"][-1] == rows["moons", "regrad"]["flagged"][-1] == 0
    assert rows["moons", "ungrad"]["flagged"][-1] == 1
    assert found["about"]["rate_median"] == pytest.approx(1, abs=0.02)
    figure = escape.draw(found["rows"])
    figure.savefig(tmp_path / "escape.png")
    assert (tmp_path / "escape.png").stat().st_size > 1000


def test_a_doubled_class_ties() -> None:
    import escape

    model = escape.trained(torch.randn(8, 2).double(), torch.arange(8) % 2, (2, 4, 2), 0, steps=1)
    z = escape.doubled(model)(torch.randn(5, 2).double())
    assert z.shape == (5, 3) and torch.equal(z[:, 1], z[:, 2])
