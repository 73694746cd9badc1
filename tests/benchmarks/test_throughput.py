"""The program that shows whether a GPU is kept busy runs on a CPU, in miniature."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytest.importorskip("torchvision")


def test_a_small_case_runs(tmp_path: Path) -> None:
    import throughput

    given = ["--device", "cpu", "--pictures", "12", "--seconds", "0.01", "--folder", str(tmp_path)]
    result = throughput.main([*given, "--cases", "mobilenet_v3_small:entropy:4"])
    assert json.loads((tmp_path / "throughput-cpu.json").read_text()) == json.loads(json.dumps(result))
    (run,) = result["runs"]
    assert (run["pictures"], run["batch"], run["driver"]) == (8, 4, None)
    assert run["ratio"] == pytest.approx(run["rate"] / min(run["read"], run["compute"]), rel=0.02)
    assert 0 < run["busy"] < 1
    assert run["bound_by"] == ("compute" if run["compute"] < run["read"] else "read")
