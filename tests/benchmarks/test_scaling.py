"""What the committed numbers of `benchmarks/scaling.py` must show."""

from __future__ import annotations

import json
from pathlib import Path

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "scaling.json"


def test_both_engines_gave_the_same_bytes_in_memory_that_did_not_grow() -> None:
    result = json.loads(RESULT.read_text())
    assert result["equal"] is True
    assert [(run["engine"], run["workers"]) for run in result["runs"]] == [("local", 1), ("ray", 1), ("ray", 2)]
    for run in result["runs"]:
        assert run["rows"] == 100_000
        for kind in ("own", "worker"):
            peaks = run["peaks_mb"][kind]
            assert len(peaks) == 10
            assert peaks[-1] <= 1.05 * peaks[0]
