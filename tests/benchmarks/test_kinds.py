"""What the benchmark of the kinds of doubt shows, and that the committed figures show it too."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("kinds", BENCHMARKS / "kinds.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "kinds", module)
    spec.loader.exec_module(module)
    return module


def check(found: dict[str, dict[str, float]]) -> None:
    one, scaled, ensemble = found["one network"], found["temperature"], found["ensemble"]
    assert ensemble["ece"] < one["ece"] and ensemble["nll"] < one["nll"]
    assert scaled["ece"] < one["ece"] and scaled["accuracy"] == one["accuracy"] and scaled["temperature"] > 1
    assert found["evidential"]["auroc of vacuity"] > 0.8


def test_the_committed_figures() -> None:
    check(json.loads((BENCHMARKS / "results" / "kinds.json").read_text())["means"])


@pytest.mark.slow
def test_an_ensemble_and_a_temperature_calibrate_and_vacuity_finds_what_is_no_digit(kinds: ModuleType) -> None:
    check(kinds.measured(0)[0])


def test_the_benchmark_runs(kinds: ModuleType) -> None:
    found, (decomposition, right) = kinds.measured(0, epochs=1, members=2)
    assert set(found) == {"one network", "temperature", "ensemble", "evidential"}
    assert len(decomposition.total) == len(right) + 400
    assert found["temperature"]["accuracy"] == found["one network"]["accuracy"]
