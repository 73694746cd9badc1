"""The benchmark of the first call runs, each network in processes of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torchvision")


@pytest.mark.slow
def test_it_measures_two_fresh_processes_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import first_call

    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["first_call.py", "--networks", "squeezenet1_1", "--batch", "2"])
    first_call.main()
    result = json.loads((tmp_path / "first-call-cpu.json").read_text(encoding="utf-8"))
    assert [(row["network"], row["cache"]) for row in result["rows"]] == [
        ("squeezenet1_1", "cold"), ("squeezenet1_1", "warm")
    ]  # fmt: skip
    for row in result["rows"]:
        assert 0 < row["look_s"] < row["first_call_s"]
        assert row["beyond_s"] == row["first_call_s"] - row["second_call_s"]
        assert row["kernels_on_disk"] == 0  # on a CPU
