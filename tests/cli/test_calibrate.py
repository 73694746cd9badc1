import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nescio import evaluate, posteriors
from nescio.cli import main, parser
from nescio.cli.calibrate import _data
from nescio.models import Classifier
from nescio.models.sources import Source

MODELS = """
import torch
from torch import nn


def build():
    layer = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(4 * torch.eye(3))  # four times as sure as it should be
    return layer
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calibrated_models.py").write_text(MODELS)
    for seed, name in enumerate(("held.npz", "test.npz")):
        random = np.random.default_rng(seed)
        x = random.normal(size=(400, 3)).astype(np.float32)
        p = torch.from_numpy(x).double().softmax(1).numpy()
        y = np.array([random.choice(3, p=row / row.sum()) for row in p])
        np.savez(tmp_path / name, x=x, y=y, short=y[:9], soft=p)
    yield tmp_path
    sys.modules.pop("calibrated_models", None)


def model():
    layer = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        layer.weight.copy_(4 * torch.eye(3))
    return layer


def calibrate(*arguments, data="held.npz", out="out"):
    return main(["calibrate", "--model", "calibrated_models:build", "--data", data, "--out", out, *arguments])


def loaded(name):
    archive = np.load(name)
    return torch.from_numpy(archive["x"]), torch.from_numpy(archive["y"])


def figures(text):
    """The printed table: name -> (before, after)."""
    rows = [line.replace(" %", "").split() for line in text.splitlines()]
    return {row[0]: (float(row[1]), float(row[2])) for row in rows if row and row[0] in ("ECE", "NLL", "accuracy")}


def test_half_is_fitted_and_the_other_half_is_reported(folder, capsys):
    assert calibrate() == 0
    text = capsys.readouterr().out
    posterior = posteriors.load("out", model())
    assert posterior.temperature == pytest.approx(4.0, rel=0.35)
    assert f"Fitted to 200 inputs: T = {posterior.temperature:.4g} (the model was too sure)." in text
    assert "On the other 200 inputs of held.npz" in text
    found = figures(text)
    assert found["ECE"][1] < found["ECE"][0] / 2
    assert found["NLL"][1] < found["NLL"][0]
    assert found["accuracy"][0] == found["accuracy"][1]
    written = sorted(name.split("-")[0] for name in os.listdir("out"))
    assert written == ["model.json", "posterior.json", "reliability.png", "state"]
    assert Path("out/reliability.png").read_bytes().startswith(b"\x89PNG")


def test_no_input_is_in_both_halves(folder):
    arguments = parser().parse_args(["calibrate", "--model", "m:f", "--data", "held.npz", "--out", "out"])
    source = Source(Classifier.of(model()), None, "a layer")
    x, y = loaded("held.npz")
    halves = [{(*row, label) for x, y in part for row, label in zip(x.tolist(), y.tolist(), strict=True)}
              for part in (*_data(arguments, source), [(x, y)])]  # fmt: skip
    assert len(halves[0]) == len(halves[1]) == 200
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == halves[2]


def test_the_split_follows_its_seed(folder, capsys):
    temperatures = {}
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        assert calibrate("--seed", seed, out=name) == 0
        temperatures[name] = posteriors.load(name, model()).temperature
    assert temperatures["a"] == temperatures["b"] != temperatures["c"]


def test_a_test_file_gives_the_figures_and_all_data_are_fitted(folder, capsys):
    assert calibrate("--test", "test.npz", "--batch-size", "7") == 0
    text = capsys.readouterr().out
    assert "Fitted to 400 inputs" in text
    assert "On the 400 inputs of test.npz" in text
    expected = posteriors.Temperature(model()).fit(loaded("held.npz"))
    assert posteriors.load("out", model()).temperature == pytest.approx(expected.temperature, rel=1e-9)
    x, y = loaded("test.npz")
    before, after = model()(x).detach().softmax(1), expected.predict(x)[0]
    for place, p in enumerate((before, after)):
        assert figures(text)["ECE"][place] == pytest.approx(100 * evaluate.ece(p, y), abs=0.006)
        assert figures(text)["NLL"][place] == pytest.approx(evaluate.nll(p, y), rel=1e-3)
        accuracy = float((p.argmax(1) == y).double().mean())
        assert figures(text)["accuracy"][place] == pytest.approx(100 * accuracy, abs=0.006)


def test_figures_of_the_very_data_of_the_fit_are_said_to_be(folder, capsys):
    assert calibrate("--test", "held.npz") == 0
    assert "On the same 400 inputs that it was fitted to, so rather too good" in capsys.readouterr().out


def test_platt(folder, capsys):
    assert calibrate("--kind", "platt", "--test", "test.npz") == 0
    assert "Fitted a scale and a shift for each class to 400 inputs." in capsys.readouterr().out
    assert json.loads(Path("out/posterior.json").read_text())["settings"]["kind"] == "platt"


def test_a_table_with_a_broken_row_and_a_folder_that_knows_its_data(folder, capsys):
    x, y = (part.tolist() for part in loaded("held.npz"))
    lines = [",".join(map(str, (*row, label))) for row, label in zip(x, y, strict=True)]
    Path("held.csv").write_text("\n".join(["a,b,c,label", *lines[:7], "1,2,oh,0", *lines[7:]]) + "\n")
    assert calibrate(data="held.csv") == 2
    assert "column 'c' has 'oh', which is not a number" in capsys.readouterr().err
    assert calibrate("--test", "held.npz", "--on-error", "skip", "--batch-size", "64", data="held.csv") == 0
    shown = capsys.readouterr()
    assert "1 of 401 rows could not be used" in shown.err
    assert "Fitted to 400 inputs" in shown.out
    expected = posteriors.Temperature(model()).fit(loaded("held.npz"))
    assert posteriors.load("out", model()).temperature == pytest.approx(expected.temperature, rel=1e-6)


def test_pictures_in_folders_of_their_classes_with_sizes_that_are_remembered(folder, capsys):
    image = pytest.importorskip("PIL.Image")
    for at, colour in enumerate(("red", "green", "blue") * 4):
        Path("photos", colour).mkdir(parents=True, exist_ok=True)
        image.new("RGB", (3 + at, 4), colour).save(f"photos/{colour}/{at}.png")
    Path("calibrated_models.py").write_text(
        MODELS + "\n\ndef pictures():\n    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), build())\n"
    )
    arguments = ["--model", "calibrated_models:pictures", "--data", "photos", "--out", "out", "--size", "4x4"]
    assert main(["calibrate", *arguments]) == 0
    shown = capsys.readouterr()
    assert "data: 12 pictures in 3 classes in photos" in shown.err
    assert "On the other 6 inputs of photos" in shown.out
    assert "Other commands take it as --model out --base calibrated_models:pictures\n" in shown.out
    scored = [
        "--model",
        "out",
        "--base",
        "calibrated_models:pictures",
        "--data",
        "photos",
        "--method",
        "max_probability",
        "--out",
        "scores.csv",
    ]
    assert main(["score", *scored]) == 0
    assert "pre-processing: resize 4," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"data": "none.npz"}, "expected a data file at none.npz"),
        ({"extra": ["--test", "none.npz"]}, "expected a data file at none.npz"),
        ({"out": "no/where"}, "does not exist; create it first"),
        ({"out": "held.npz"}, "--out: expected a folder, but held.npz is a file"),
        ({"extra": ["--label", "z"]}, "expected an array named 'z' in held.npz"),
        ({"extra": ["--label", "short"]}, "one label for each of the 400 rows as 'short' in held.npz"),
        ({"extra": ["--label", "soft"]}, "got an array of float64 and shape [400, 3]"),
        ({"data": "one.npz"}, "expected at least 2 inputs, one for each half, but one.npz has 1"),
        ({"data": "empty.npz"}, "expected at least one input in empty.npz"),
        ({"extra": ["--label", "none"]}, "expected labelled data, but held.npz has no labels (--label names them)"),
        ({"data": "high.npz"}, "expected class indices from 0 to 2"),
        ({"extra": ["--kind", "isotonic"]}, "invalid choice: 'isotonic'"),
        ({"extra": ["--device", "warp"]}, "--device: cannot use 'warp' here"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(folder, capsys, arguments, words):
    x, y = (part.numpy() for part in loaded("held.npz"))
    np.savez("one.npz", x=x[:1], y=y[:1])
    np.savez("empty.npz", x=x[:0], y=y[:0])
    np.savez("high.npz", x=x, y=y + 1)
    before = sorted(os.listdir())
    extra = arguments.pop("extra", [])
    try:
        assert calibrate(*extra, **arguments) == 2
    except SystemExit as stop:
        assert stop.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert [name for name in sorted(os.listdir()) if name != "__pycache__"] == before


def test_missing_packages_are_named_before_any_work(folder, capsys, monkeypatch):
    import importlib

    real = importlib.import_module

    def without(name, *more):
        if name.startswith("matplotlib"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    monkeypatch.setattr("nescio.models.load", lambda *_, **__: pytest.fail("work was done"))
    assert calibrate() == 2
    assert "pip install 'nescio[demo]'" in capsys.readouterr().err
