"""Every command that takes long says so after its first rows, with the time left and a cheaper way."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from nescio import plots, progress
from nescio.cli import main
from nescio.models import load

ROWS = 400
SLOW = """
import torch
from torch import nn

now, rows, said = [0.0], [0], []


class Slow(nn.Module):
    # every row takes a second, by a clock of its own

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        now[0] += 1.0 * len(x)
        rows[0] += len(x)
        return self.last(self.first(x).relu())


def build():
    with torch.random.fork_rng(devices=[]):
        return Slow()
"""
SETTINGS = {
    "score": ("--out", "s.csv", "--method", "entropy"),
    "check": ("--guard", "guard", "--out", "verdicts.csv"),
    "guard": ("--out", "another", "--nuisances", "none"),
    "explain": ("--out", "maps", "--top", "3"),
    "report": ("--out", "report.html", "--no-audit", "--no-maps"),
    "report --reference": ("--out", "report.json", "--no-audit", "--no-maps", "--reference", "y.npz"),
    "calibrate": ("--out", "calibrated"),
    "audit": ("--measured", "--starts", "200"),
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, labelled data and a guard."""
    folder = tmp_path_factory.mktemp("long")
    draw = np.random.default_rng(0)
    (folder / "slow_models.py").write_text(SLOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("x", "y"):
            x = draw.normal(size=(ROWS, 4)).astype(np.float32)
            likely = load("slow_models:build")(torch.from_numpy(x)).argmax(1).numpy()
            np.savez(f"{name}.npz", x=x, y=np.where(draw.random(ROWS) < 0.7, likely, draw.integers(0, 3, ROWS)))
        assert main(["guard", "--model", "slow_models:build", "--reference", "y.npz", "--out", "guard"]) == 0
    sys.modules.pop("slow_models")
    return folder


@pytest.fixture
def slow(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(prepared)
    monkeypatch.syspath_prepend(prepared)
    import slow_models  # type: ignore[import-not-found]

    monkeypatch.setattr(progress, "clock", lambda: slow_models.now[0])
    write = progress._write
    monkeypatch.setattr(progress, "_write", lambda line: (slow_models.said.append(slow_models.rows[0]), write(line)))
    monkeypatch.setattr(plots, "feature_bars", lambda *given, **settings: Figure())
    yield
    sys.modules.pop("slow_models")


@pytest.mark.parametrize("name", SETTINGS)
def test_a_slow_model_is_said_to_be_slow_after_its_first_rows(
    slow: None, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    import slow_models

    command = name.split()[0]
    data = "--reference" if command == "guard" else "--data"
    given = [command, "--model", "slow_models:build", data, "x.npz", *SETTINGS[name]]
    assert main(given) == 0
    error = capsys.readouterr().err
    told = re.findall(r"nescio: (.+) will take about (.+) more: ([\d,]+) (inputs?), (.+) each; (.+)", error)
    assert told, error
    _, left, rows, _, _, cheaper = told[0]
    assert "minutes" in left or "hours" in left
    assert int(rows.replace(",", "")) > 0.4 * ROWS and len(cheaper) > 10
    assert slow_models.said[0] <= 50, "the first estimate comes after so many rows"


def test_an_estimate_is_near_the_truth(slow: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A report looks at a row once, for its score and its answer."""
    import slow_models

    assert main(["report", "--model", "slow_models:build", "--data", "x.npz", *SETTINGS["report"]]) == 0
    (minutes,) = re.findall(r"scoring will take about ([\d.]+) minutes", capsys.readouterr().err)
    assert 0.8 < float(minutes) * 60 / ROWS < 1.25
    assert slow_models.rows[0] < 1.1 * ROWS
