"""What the committed numbers of `benchmarks/plan.py` must show, and its arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RESULT = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "plan.json"


def test_plans_foretold_the_runs_that_were_measured_within_a_fifth() -> None:
    result = json.loads(RESULT.read_text())
    runs = {(run["rows"], run["engine"], run["workers"]): run for run in result["runs"]}
    crews = [("local", 1), ("ray", 1), ("ray", 2), ("ray", 4)]
    assert {(rows, *crew) for rows in (10_000, 100_000) for crew in crews} == set(runs)
    assert len(runs) == len(result["runs"])
    for run in result["runs"]:
        assert run["ratio"] == pytest.approx(run["planned"] / run["quiet"], abs=0.01)
        assert 0.8 <= run["ratio"] <= 1.2
        assert run["quiet"] <= run["seconds"] * 1.05
    assert result["furthest_off"] == pytest.approx(max(abs(run["ratio"] - 1) for run in result["runs"]))


def test_todays_arithmetic_foretells_the_runs_whose_measurements_are_kept_within_a_fifth() -> None:
    import plan

    result = json.loads(RESULT.read_text())
    cores, checked = result["cores"], 0
    for run in result["runs"]:
        for costs in result["measured"].get(str(run["rows"]), []):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(plan, "CORES", cores)
                now = plan.planned(costs, run["rows"], run["workers"] if run["engine"] == "ray" else None)
            assert 0.8 <= now.seconds / run["quiet"] <= 1.2
            checked += 1
    assert checked == len(result["runs"])


@pytest.mark.parametrize(
    ("ran", "waited", "alone"),
    [
        (2.0, 0.0, 2.0),  # a thread at work, alone
        (0.5, 0.0, 2.0),  # a thread that mostly sleeps
        (0.5, 1.5, 0.5),  # a thread that had a core for a quarter of the time
        (1.0, 3.0, 0.5),  # two threads that had half a core, and would have had two
        (1.0, 7.0, 0.5),  # four, and there are two cores
    ],
)
def test_the_time_without_other_work_is_found_from_how_long_threads_ran_and_waited(
    monkeypatch: pytest.MonkeyPatch, ran: float, waited: float, alone: float
) -> None:
    import plan

    now, known = [10.0], [(0.0, 0.0)]
    monkeypatch.setattr(plan.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(plan, "CORES", 2)
    monkeypatch.setattr(plan, "_below", lambda process: [])
    monkeypatch.setattr(plan, "_threads", lambda process: [1])
    monkeypatch.setattr(plan, "_scheduled", lambda process, thread: known[0])
    watched = plan.Alone(0)
    now[0], known[0] = 12.0, (ran, waited)
    watched.look()
    assert watched.seconds == pytest.approx(alone)
    assert watched.cpu == ran


def test_while_parts_come_only_what_the_thread_of_the_model_waited_is_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import plan

    now, waits = [10.0], {7: 0.0, 8: 0.0}
    monkeypatch.setattr(plan.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(plan, "_below", lambda process: [])
    monkeypatch.setattr(plan, "_read", lambda process, what: b"")
    monkeypatch.setattr(plan, "_threads", lambda process: [7, 8])  # the first is the process itself
    monkeypatch.setattr(plan, "_scheduled", lambda process, thread: (0.0, waits[thread]))
    watched = plan.Alone(7)
    now[0], waits = 12.0, {7: 0.5, 8: 1.9}
    watched.look(working=True)
    assert watched.seconds == pytest.approx(1.5)


@pytest.mark.slow  # two minutes: Ray has to start
@pytest.mark.filterwarnings("ignore")  # of Ray, in this process
def test_a_small_case_is_planned_and_run(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'nescio[ray]'")
    pytest.importorskip("pandas", reason="Ray Data is not installed: pip install 'nescio[ray]'")
    import plan

    given = ["--rows", "300", "--workers", "2", "--folder", str(tmp_path)]
    plan.main(given)
    runs = _kept(tmp_path)["runs"]
    assert [(run["engine"], run["workers"]) for run in runs] == [("local", 1), ("ray", 2)]
    assert all(run["quiet"] > 3 and run["planned"] > 3 for run in runs)  # 300 rows sleep 10 ms each
    (costs,) = _kept(tmp_path)["measured"]["300"]
    assert costs["compute"]["seconds"] > 0.01
    assert plan.planned(costs, 300, 2).seconds == pytest.approx(runs[1]["planned"], abs=1e-3)


def _kept(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return found
