"""`nescio audit` from files to words, a page and a table; wrong arguments are one sentence and leave nothing."""

import html
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from nescio import data, limits
from nescio.cli import main

MODELS = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        model[2].weight.mul_(10)
    return model


def smooth():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audited_models.py").write_text(MODELS)
    x = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(30) % 3, whole=(10 * x).astype(np.int64))
    yield tmp_path
    sys.modules.pop("audited_models", None)


def audit(*arguments: str, model: str = "build", source: str = "x.npz") -> int:
    few = ("--starts", "2", "--count", "1")
    return main(["audit", "--model", f"audited_models:{model}", "--data", source, *few, *arguments])


def test_words_page_and_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = ("--score", "max_probability", "entropy", "--score", "ungrad")
    assert audit(*scores, "--feature-names", "age, pay", "--out", "a.html", "--table", "a.json", "--radius", "64") == 0
    text = capsys.readouterr().out
    sys.path.insert(0, str(folder))
    try:
        import audited_models
    finally:
        sys.path.remove(str(folder))
    x = torch.from_numpy(np.load("x.npz")["x"])
    expected = limits.audit(
        audited_models.build(), x, scores=("max_probability", "entropy", "ungrad"), starts=2, count=1, radius=64,
        names=["age", "pay"],
    )  # fmt: skip
    assert text.startswith(expected.text())
    assert "age +" in text and "(proven)" in text and "ungrad still rises, from" in text and "(measured)" in text
    assert f"What to do:\n- {expected.advice()[0]}" in text
    page = html.unescape(Path("a.html").read_text(encoding="utf-8"))
    assert page.index("The nearest directions") < page.index("What the scores do on the way")
    assert all(f'<tr><th scope="row">{row.direction}</th>' in page for row in expected.nearest())
    assert "RANGES = {\n    'age': (" in page
    assert "nescio guard --model audited_models:build --reference HELD-OUT --out guard" in page
    assert "nescio check --guard guard --model audited_models:build --data NEW --out verdicts.csv" in page
    table = data.read_table("a.json")
    assert table["direction"].tolist() == [row.direction for row in expected.rows]
    assert table["limit"].tolist() == [row.limit for row in expected.rows]
    assert table["proven"].tolist() == [row.score != "ungrad" for row in expected.rows]
    assert [value is None for value in table["reached"]] == [np.isinf(row.reached) for row in expected.rows]
    page = Path("a.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "age +" in page and page.count("<svg") == 3
    command = "nescio audit --model audited_models:build --data x.npz"
    assert command in page and "--radius 64.0" in page and "'age, pay'" in html.unescape(page)


def test_a_table_names_its_features_and_its_labels_are_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{a},{b},{i % 3}" for i, (a, b) in enumerate(np.load("x.npz")["x"].tolist())]
    Path("x.csv").write_text("\n".join(["age,pay,y", *lines]) + "\n")
    for more in ((), ("--label", "none")):
        assert audit("--directions", "features", *more, source="x.csv") == 0
        shown = capsys.readouterr()
        assert "age +" in shown.out and "pay -" in shown.out
        assert "columns age, pay" in shown.err


def test_texts_have_no_directions(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from nescio.models.sources import Source, Texts

    class Words:
        def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
            return {"input_ids": [len(text)]}

    found = Source(lambda input_ids: input_ids, Texts(Words()), "texts")  # type: ignore[arg-type]
    monkeypatch.setattr("nescio.specs.open_source", lambda spec: found)
    assert audit() == 2
    assert "among which there are no directions" in capsys.readouterr().err


def test_the_kinds_of_directions_and_training_data(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--directions", "away", "random", "--score", "mahalanobis", "--fit", "x.npz", "--table", "a.csv")
    assert audit(*arguments, model="smooth") == 0
    out = capsys.readouterr().out
    assert "measured, not proven: expected a piecewise-linear network, got tanh in '1' (Tanh), which is not" in out
    table = data.read_table("a.csv")
    assert table["direction"].tolist() == ["random 1", "away from the mean"] and not table["proven"].any()
    assert sorted(name for name in os.listdir() if name.startswith("a.")) == ["a.csv"]
    assert audit("--directions", "away", "--measured", "--x", "whole") == 0
    assert "it was asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--directions", "sideways"], "invalid choice: 'sideways'"),
        (["--score", "entropi"], "did you mean 'entropy'"),
        (["--score", "knn"], "expected training data for 'knn'"),
        (["--out", "a.pdf"], "--out: expected a file name that ends in .html"),
        (["--table", "a.txt"], "expected a file name that ends in .parquet, .csv, .json"),
        (["--out", "no/where.html"], "does not exist"),
        (["--feature-names", "age"], "expected 2 names of features, got 1"),
        (["--radius", "1"], "radius"),
        (["--starts", "0"], "starts"),
        (["--exact", "--measured"], "not allowed with"),
        (["--model", "audited_models:smooth", "--exact"], "got tanh in '1' (Tanh)"),
        (["--data", "none.npz"], "none.npz"),
    ],
)
def test_bad_arguments_are_one_sentence_and_leave_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    before = sorted(os.listdir())
    try:
        assert audit(*arguments) == 2
    except SystemExit as stop:
        assert stop.code == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert [name for name in sorted(os.listdir()) if name != "__pycache__"] == before


def test_a_table_has_no_infinity(folder: Path) -> None:
    assert audit("--score", "ungrad", "--directions", "away", "--table", "a.json") == 0
    records = json.loads(Path("a.json").read_text())
    assert records[0]["reached"] is None and records[0]["rises"] is True


@pytest.mark.parametrize("option", ["--data", "--fit"])
def test_what_is_read_is_not_written_over(folder: Path, capsys: pytest.CaptureFixture[str], option: str) -> None:
    np.savetxt("x.csv", np.load("x.npz")["x"], delimiter=",", header="a,b", comments="")
    before = Path("x.csv").read_bytes()
    more = ("--fit", "x.csv") if option == "--fit" else ()
    source = "x.npz" if option == "--fit" else "x.csv"
    assert audit("--table", "x.csv", *more, source=source) == 2
    assert f"--table: expected another file than that of {option}" in capsys.readouterr().err
    assert Path("x.csv").read_bytes() == before
