"""`nescio plan`: what it prints, and what it refuses."""

import json
import re
import sys

import numpy as np
import pytest

from nescio import progress
from nescio.batch import stage_costs
from nescio.cli import main
from tests.cli.helpers import refusal

MODELS = """
from torch import nn

def build():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planmodels.py").write_text(MODELS)
    np.savez("x.npz", x=np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32))
    monkeypatch.setattr(stage_costs, "SECONDS", 0.01)
    monkeypatch.setattr(stage_costs, "_import", lambda: stage_costs._Timed(1.0, 0.5))
    yield tmp_path
    sys.modules.pop("planmodels", None)


def plan(*more, data="x.npz"):
    return main(["plan", "--model", "planmodels:build", "--data", data, "--method", "entropy", *more])


def test_it_says_hours_the_bottleneck_parts_memory_what_to_change_and_what_it_cannot_know(folder, capsys):
    assert plan("--rows", "1e9", "--gpus", "64") == 0
    text = capsys.readouterr().out
    for words in (
        "1,000,000,000 rows by 64 GPUs", "GPU-hours", "bottleneck", "parts", "results", "driver", "What to change:",
        "What this cannot know:", "whether the 1,000,000,000 rows are like the 64 that were there",
        "how fast a GPU is: the model was timed on a processor",
    ):  # fmt: skip
        assert words in text


def test_neither_long_nor_short_times_have_powers_of_ten():
    from nescio.cli.plan import _hours, _size

    assert [_hours(s) for s in (0.0159, 71.1, 5400, 3600 * 12_345)] == ["15.9 ms", "71.1 s", "1.5 h", "12,345 h"]
    assert [_size(b) for b in (999.7, 4e7, 9.997e14, 2e15)] == ["1 kB", "40 MB", "1,000 TB", "2,000 TB"]


def test_json_holds_the_plan_and_what_it_was_made_from(folder, capsys):
    assert plan("--rows", "1000000", "--workers", "4", "--cores", "16", "--part-rows", "640", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["plan"]["rows"] == 10**6 and known["plan"]["crew"]["workers"] == 4
    assert known["plan"]["part_rows"] == 640 and known["plan"]["parts"] == 1563
    assert known["hours_low"] <= known["hours"] <= known["hours_high"]
    assert known["hours"] == pytest.approx(known["plan"]["seconds"] / 3600)
    assert known["worker_hours"] == pytest.approx(4 * known["hours"]) and known["gpu_hours"] == 0
    assert known["measured"]["compute"]["seconds"] > 0 and known["changes"]


def test_without_workers_it_plans_one_process_over_the_rows_that_are_there(folder, capsys):
    assert plan("--json", "--batch-size", "16") == 0
    known = json.loads(capsys.readouterr().out)["plan"]
    assert (known["rows"], known["crew"]["engine"], known["crew"]["workers"]) == (64, "local", 1)


@pytest.mark.filterwarnings("ignore:the reference has:UserWarning")
def test_a_guard_is_planned_as_check_runs_it(folder, capsys):
    np.savez("reference.npz", x=np.random.default_rng(1).normal(size=(120, 4)).astype(np.float32))
    assert main(["guard", "--model", "planmodels:build", "--reference", "reference.npz", "--out", "guard"]) == 0
    capsys.readouterr()
    given = ["plan", "--model", "planmodels:build", "--guard", "guard", "--data", "x.npz", "--json"]
    assert main(given) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["row_bytes"] > 60  # words, and a column for each witness
    assert "expected it without --method" in refusal(capsys, lambda: main([*given, "--method", "entropy"]))


def test_what_does_not_go_together_is_refused_in_a_sentence(folder, capsys):
    assert "a GPU has one worker" in refusal(capsys, lambda: plan("--gpus", "2", "--workers", "2"))
    assert "expected a folder that exists" in refusal(capsys, lambda: plan("--out", "none"))
    assert "such as 1000000 or 1e9, got '1.5'" in refusal(capsys, lambda: plan("--rows", "1.5"))
    assert "such as 1000000 or 1e9, got 'many'" in refusal(capsys, lambda: plan("--rows", "many"))
    assert "or a --guard that knows its own" in refusal(capsys, lambda: main(["plan", "--data", "x.npz"]))


def test_long_timing_says_how_long_and_what_takes_less(folder, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SOON", 0.0)
    monkeypatch.setattr(progress, "LONG", 0.0)
    assert plan("--rows", "1e6") == 0
    err = capsys.readouterr().err
    said = r"nescio: timing will take about .* more: \d+ batches, .* each; a smaller --sample takes less"
    assert re.search(said, err)
