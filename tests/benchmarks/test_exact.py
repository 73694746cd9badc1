"""The benchmark of exact norms runs, and its numbers belong together."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchvision")


@pytest.mark.slow
def test_it_measures_a_batch_and_one_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import exact

    monkeypatch.setenv("OUT", str(tmp_path))
    given = ["exact.py", "--networks", "resnet18", "--batch", "2", "--repeats", "1", "--clock", "cpu"]
    monkeypatch.setattr(sys, "argv", given)
    exact.main()
    result = json.loads((tmp_path / "exact-cpu.json").read_text(encoding="utf-8"))
    assert result["clock"] == "cpu"
    assert [(row["batch"], row["channels_last"]) for row in result["rows"]] == [(2, True), (2, False), (1, False)]
    for row in result["rows"]:
        assert row["forwards"] == pytest.approx(row["ms"] / row["forward_ms"])
        assert row["forwards"] > 2  # ten backward passes
        assert row["inputs_per_second"] == pytest.approx(1e3 * row["batch"] / row["ms"])
