"""A model of several inputs from a terminal: the arrays of an .npz file by the names of its arguments."""

import csv
from pathlib import Path

import numpy as np
import pytest

from nescio.cli import main

FACTORY = """
import torch
from torch import nn


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture, self.pulse, self.last = nn.Linear(16, 8), nn.Linear(5, 8), nn.Linear(16, 3)

    def forward(self, picture, pulse):
        return self.last(torch.cat([self.picture(picture.flatten(1)), self.pulse(pulse)], 1).relu())


def build():
    torch.manual_seed(0)
    return Two()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("two_inputs.py").write_text(FACTORY)
    draw = np.random.default_rng(0)
    for name, count, scale in (("reference", 400, 1), ("known", 20, 1), ("far", 6, 30)):
        x = {"picture": draw.normal(size=(count, 4, 4)), "pulse": draw.normal(size=(count, 5))}
        np.savez(f"{name}.npz", **{key: (scale * value).astype(np.float32) for key, value in x.items()})
    return tmp_path


def test_guard_check_score_and_report(folder, capsys):
    common = ["--model", "two_inputs:build", "--x", "picture,pulse"]
    assert main(["guard", *common, "--reference", "reference.npz", "--out", "guard"]) == 0
    for name in ("known", "far"):
        check = ["check", *common, "--guard", "guard", "--data", f"{name}.npz", "--out", f"{name}.csv"]
        assert main(check) == 0
    flagged = {}
    for name in ("known", "far"):
        with open(f"{name}.csv") as file:
            flagged[name] = [row["foreign"] == "True" for row in csv.DictReader(file)]
    assert all(flagged["far"]) and sum(flagged["known"]) < 5
    assert main(["score", *common, "--data", "far.npz", "--method", "regrad", "--out", "scores.csv"]) == 0
    told = ["--no-audit", "--no-maps", "--out", "page.html"]
    assert main(["report", *common, "--data", "far.npz", "--guard", "guard", *told]) == 0
    assert "Do not trust the answers for" in capsys.readouterr().out


def test_a_name_that_the_model_does_not_take_is_told(folder, capsys):
    assert main(["score", "--model", "two_inputs:build", "--data", "far.npz", "--x", "picture", "--out", "s.csv"]) == 2
    assert "pulse" in capsys.readouterr().err
