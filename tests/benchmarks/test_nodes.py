"""Machines that go away while a run is at work: the program in miniature, and what its committed numbers must show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "nodes.json"


def test_no_row_was_lost_or_doubled_when_machines_were() -> None:
    result = json.loads(RESULT.read_text())
    assert [case["case"] for case in result["cases"]] == ["replaced", "fewer"]
    for case in result["cases"]:
        assert case["rows"] == case["given_rows"] and case["doubled"] == 0
        assert case["equal"] is True and case["left_behind"] == []
        assert len(case["lost"]) == 2 and all(0 < one["parts_before"] < case["parts"] for one in case["lost"])
    assert [one["machines_left"] for one in result["cases"][1]["lost"]] == [2, 1]


@pytest.mark.slow  # a minute: three raylets have to start
@pytest.mark.filterwarnings("ignore")  # of Ray, in this process
def test_a_machine_that_goes_takes_no_row_with_it(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'nescio[ray]'")
    pytest.importorskip("pandas", reason="Ray Data is not installed: pip install 'nescio[ray]'")
    import nodes

    given = ["--rows", "640", "--machines", "2", "--kills", "1", "--cases", "fewer", "--folder", str(tmp_path)]
    (case,) = nodes.main(given)["cases"]
    assert case["equal"] is True and (case["rows"], case["doubled"]) == (640, 0)
    assert [one["machines_left"] for one in case["lost"]] == [1]
