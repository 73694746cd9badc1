"""The simulation of promises runs, its picture can be drawn, and on a reduced scale the promises hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_it_runs_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    import guard_promise
    import promises

    cases = [
        promises.threshold_case("sharp", True, 100, 0.1, 0.9, 3),
        promises.quantile_case(True, 50, 0.9, 3),
        promises.conformal_case("adaptive", 20, 0.9, 3, new=10),
        promises.monitor_case("threshold", 1000, 4.0, 2),
        promises.drift_case(50, 2.0, 2),
        promises.batch_case(50, 20, True, 0.0, 3),
    ]
    risks = [promises.risk_case(kind, 20, 0.1, 3, new=5) for kind in ("misses", "miscoverage")]
    monkeypatch.setitem(promises.PARTS, "risk control", lambda repetitions: iter(risks))
    guards = guard_promise.guard_rows(40, 2, new=10) + guard_promise.guard_rows(40, 2, harmless=True, new=10)
    monkeypatch.setitem(promises.PARTS, "guard", lambda repetitions: iter(guards))
    monkeypatch.setattr(promises, "rows", lambda repetitions: iter(cases))
    assert promises.main(["--repetitions", "3", "--folder", str(tmp_path)]) == [*cases, *risks, *guards]
    assert "promised" in capsys.readouterr().out
    monkeypatch.setitem(promises.PARTS, "guard", lambda repetitions: iter(guards[:3]))
    assert promises.main(["--part", "guard", "--folder", str(tmp_path)]) == [*cases, *risks, *guards[:3]]
    found = json.loads((tmp_path / "promises.json").read_text())
    assert found["rows"] == [*cases, *risks, *guards[:3]]
    assert set(found["machines"]) == {"decide", "risk control", "guard"}
    assert (tmp_path / "promises.png").stat().st_size > 1000
    assert cases[3]["detected"] == cases[4]["detected"] == 1.0


def test_a_broken_promise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rule that only looks at the error among accepted examples, most repetitions break the promise."""
    import numpy as np
    import promises

    from nescio import decide

    def hopeful(scores: object, correct: object, risk: float, confidence: float, seed: int) -> decide.Policy:
        order = np.argsort(scores, kind="stable")
        good = np.flatnonzero(np.cumsum(~np.asarray(correct)[order]) <= risk * np.arange(1, len(order) + 1))
        t = float(np.asarray(scores)[order][good[-1]]) if good.size else None
        return decide.Policy("threshold", t, len(order), 1, 1, risk, confidence)

    assert not promises.broken(promises.threshold_case("sharp", False, 300, 0.1, 0.9, 40))
    monkeypatch.setattr(decide, "threshold", hopeful)
    assert promises.broken(promises.threshold_case("sharp", False, 300, 0.1, 0.9, 40))


def test_the_committed_result_has_no_broken_promise() -> None:
    import promises

    rows = json.loads((BENCHMARKS / "results" / "promises.json").read_text())["rows"]
    parts = {row["part"] for row in rows}
    assert parts == {"threshold", "quantile", "conformal", "risk control", "monitor", "drift", "drift test", "guard"}
    assert all(row["repetitions"] >= (200 if row["part"] == "guard" else 500) for row in rows)
    assert not any(promises.broken(row) for row in rows)


@pytest.mark.slow
def test_every_promise_holds() -> None:
    import promises

    broken = [row for row in (*promises.rows(100), *promises.risk_rows(100)) if promises.broken(row)]
    assert broken == []
