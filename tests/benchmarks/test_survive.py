"""What the committed numbers of `benchmarks/survive.py` must show."""

from __future__ import annotations

import json
from pathlib import Path

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "survive.json"


def test_ten_kills_left_the_bytes_of_an_undisturbed_run_and_memory_did_not_grow() -> None:
    result = json.loads(RESULT.read_text())
    assert result["equal"] is True
    assert result["left_behind"] == []
    assert len(result["kills"]) == 10
    assert all(kill["parts"] >= kill["parts_before"] for kill in result["kills"])
    assert result["kills"][-1]["parts"] * result["part_rows"] < result["undisturbed"][-1]["rows"] == 100_000
    few, many = (run["peak_mb"] for run in result["undisturbed"])
    assert many < 1.05 * few
