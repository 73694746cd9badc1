"""What grows with the rows: the program in miniature, and what its committed numbers must show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "growth.json"


def test_a_million_rows_in_a_hundred_thousand_parts_take_what_they_take_each() -> None:
    result = json.loads(RESULT.read_text())
    few, _, many = result["keeping"]
    assert (many["rows"], many["parts"]) == (10**6, 10**5)
    assert all(run["right"] for run in result["keeping"] + result["ray"])
    assert many["last"] < 2 * few["last"]  # a part does not cost more when there are many
    assert many["opening"] < 2 * few["opening"] and many["join"] < 2 * few["join"]
    assert many["manifest"] < 200 and many["memory"] < 1000
    assert many["join_memory_mb"] < 150


def test_the_driver_of_ray_does_not_grow_with_a_hundred_thousand_parts() -> None:
    *_, many = json.loads(RESULT.read_text())["ray"]
    assert (many["rows"], many["parts"]) == (10**6, 10**5)
    assert many["memory"] < 1000 and many["peaks_mb"][-1] - many["peaks_mb"][0] < 100
    assert many["driver"] < 2  # milliseconds


def test_a_small_case_keeps_and_joins_every_row_once(tmp_path: Path) -> None:
    import growth

    found = growth.kept(30, str(tmp_path))
    assert found["right"] is True and (found["parts"], found["rows"]) == (30, 300)
    assert 0 < found["manifest"] < found["files"] and found["join_memory_mb"] >= 0
    assert not (tmp_path / "30").exists() and (tmp_path / "30.parquet").exists()
