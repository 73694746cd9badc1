import csv
import errno
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import nescio
from nescio.cli import main, parser
from tests.cli.helpers import refusal

MODELS = """
import torch
from torch import nn


def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def softened():
    return nn.Sequential(build(), nn.Softmax(dim=1))


def binary():
    return nn.Linear(4, 1)


class Broken(nn.Module):
    def forward(self, x):
        raise SystemError("the disk of the universe is full")


class Full(nn.Module):
    def forward(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 154.00 MiB.")


def interrupted():
    raise KeyboardInterrupt
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "climodels.py").write_text(MODELS)
    x = np.random.default_rng(0).random((7, 4), dtype=np.float32)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(7))
    yield tmp_path
    sys.modules.pop("climodels", None)


def model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def inputs(folder):
    return torch.from_numpy(np.load(folder / "x.npz")["x"])


def score(*arguments, model="climodels:build", data="x.npz", out="scores.csv"):
    return main(["score", "--model", model, "--data", data, "--out", out, "--overwrite", *arguments])


def read_csv(path):
    with Path(path).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in rows[0]}


def test_score_writes_index_methods_prediction_and_probability(folder, capsys):
    assert score("--method", "entropy", "--method", "exgrad") == 0
    found = read_csv("scores.csv")
    assert list(found) == ["index", "entropy", "exgrad", "predicted", "probability", "label"]
    expected = nescio.score(model(), inputs(folder), ["entropy", "exgrad"])
    assert found["index"] == list(range(7))
    assert found["entropy"] == pytest.approx(expected["entropy"].tolist(), rel=1e-6)
    assert found["exgrad"] == pytest.approx(expected["exgrad"].tolist(), rel=1e-6)
    probability, predicted = model()(inputs(folder)).softmax(dim=1).max(dim=1)
    assert found["predicted"] == predicted.tolist()
    assert found["probability"] == pytest.approx(probability.tolist(), rel=1e-6)
    assert found["label"] == list(range(7))
    assert capsys.readouterr().out == "Wrote 7 rows to scores.csv: entropy, exgrad\n"


def test_the_default_is_said_and_settings_reach_it(folder, capsys):
    assert score("--set", "top=2", out="scores.json") == 0
    records = json.loads(Path("scores.json").read_text())
    expected = nescio.score(model(), inputs(folder), nescio.scores.default_method().name, top=2)
    assert [record["gen"] for record in records] == pytest.approx(expected.tolist(), rel=1e-6)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("nescio: the score is gen, ")] == lines


def test_no_command_takes_gradients_unasked():
    """The default costs one forward pass, whatever the number of classes."""
    name, why = nescio.scores.default_method()
    assert {info.name: info for info in nescio.methods()}[name].cost == "1" and "one forward pass" in why


def test_methods_that_need_training_data_are_fitted_to_a_file(folder):
    generator = np.random.default_rng(1)
    x, y = generator.random((30, 4), dtype=np.float32), np.arange(30) % 3
    np.savez("train.npz", x=x, y=y)
    chosen = ["--method", "mahalanobis", "--method", "knn", "--method", "laplace", "--method", "entropy"]
    assert score(*chosen, "--set", "k=4", "--set", "samples=5", "--fit", "train.npz", "--batch-size", "8") == 0
    methods = ["mahalanobis", nescio.scores.KNN(k=4), nescio.scores.Laplace(samples=5), "entropy"]
    training = (torch.from_numpy(x), torch.from_numpy(y))
    expected = nescio.score(model(), inputs(folder), methods, fit=training)
    found = read_csv("scores.csv")
    assert list(found) == ["index", "mahalanobis", "knn", "laplace", "entropy", "predicted", "probability", "label"]
    for name, truth in expected.items():
        assert found[name] == pytest.approx(truth.tolist(), rel=1e-3)


def test_a_setting_can_go_to_one_method_or_to_all_that_have_it(folder):
    chosen = ["--method", "regrad", "--method", "exgrad", "--method", "entropy"]
    assert score(*chosen, "--set", "samples=0", "--set", "exgrad.norm=1", "--set", "select=2*") == 0
    found = read_csv("scores.csv")
    for name, settings in {"regrad": {"samples": 0}, "exgrad": {"norm": 1}}.items():
        expected = nescio.score(model(), inputs(folder), name, select="2*", **settings)
        assert found[name] == pytest.approx(expected.tolist(), rel=1e-6)


def test_batches_make_no_difference_and_parquet_is_written(folder):
    import pyarrow.parquet

    for size in ("2", "256"):
        assert score("--batch-size", size, "--method", "energy", out=f"{size}.parquet") == 0
    tables = [pyarrow.parquet.read_table(f"{size}.parquet").to_pydict() for size in ("2", "256")]
    assert tables[0]["index"] == list(range(7))
    assert tables[0]["energy"] == pytest.approx(tables[1]["energy"], rel=1e-6)
    assert tables[0]["predicted"] == tables[1]["predicted"]


def test_weights_are_loaded_and_the_device_is_used(folder):
    import safetensors.torch

    other = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    safetensors.torch.save_file(other.state_dict(), "w.safetensors")
    assert score("--weights", "w.safetensors", "--method", "entropy", "--device", "cpu") == 0
    expected = nescio.score(other, inputs(folder), "entropy").tolist()
    assert read_csv("scores.csv")["entropy"] == pytest.approx(expected, rel=1e-6)


def test_outputs_other_than_logits(folder):
    assert score("--method", "entropy", "--output", "probabilities", model="climodels:softened") == 0
    expected = nescio.score(model(), inputs(folder), "entropy").tolist()
    assert read_csv("scores.csv")["entropy"] == pytest.approx(expected, rel=1e-5)
    assert score("--method", "entropy", "--output", "binary", model="climodels:binary") == 0
    assert set(read_csv("scores.csv")["predicted"]) <= {0, 1}


@pytest.mark.filterwarnings("default")
def test_warnings_are_one_line(folder, capsys):
    assert score("--method", "entropy", model="climodels:softened") == 0
    error = capsys.readouterr().err
    assert error.startswith("nescio: warning: the output of Sequential looks like probabilities")
    assert error.count("\n") == 1


def test_no_inputs_give_a_table_without_rows(folder):
    np.savez("none.npz", x=np.zeros((0, 4), dtype=np.float32))
    assert score("--method", "entropy", data="none.npz") == 0
    assert Path("scores.csv").read_text() == "index,entropy,predicted,probability\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"out": "scores.txt"}, "ends in .parquet, .csv, .json, but got 'scores.txt'"),
        ({"out": "nowhere/scores.csv"}, "does not exist; create it first"),
        ({"data": "no.npz"}, "expected a data file at no.npz"),
        ({"model": "climodels"}, "expected package.module:factory"),
        ({"model": "clmodels:build"}, "clmodels"),
        ({"extra": ["--key", "z"]}, "it holds: x, y"),
        ({"extra": ["--key", "y"]}, "floating-point"),
        ({"extra": ["--weights", "no.safetensors"]}, "no.safetensors"),
        (
            {"extra": ["--set", "sigm=1"]},
            "expected a setting of any of the chosen methods, but got 'sigm'; there are regrad",
        ),
        ({"extra": ["--set", "entropy.sigma=1"]}, "expected a setting of 'entropy'"),
        ({"extra": ["--set", "samples=-1"]}, "expected samples to be a whole number of at least 0, got -1"),
        ({"extra": ["--set", "samples"]}, "expected KEY=VALUE or METHOD.KEY=VALUE, got 'samples'"),
        ({"extra": ["--method", "regard"]}, "did you mean 'regrad'?"),
        ({"extra": ["--batch-size", "0"]}, "expected a whole number of at least 1, got 0"),
        ({"extra": ["--device", "warp"]}, "--device: cannot use 'warp' here"),
        ({"extra": ["--outputs", "logits"]}, "there is no option --outputs; did you mean --output?"),
        ({"extra": ["--method", "knn"]}, "expected training data for 'knn', got none"),
        ({"extra": ["--fit", "x.npz"]}, "expected a method that has to be fitted beside training data, got 'regrad'"),
        ({"extra": ["--fit", "no.npz"]}, "expected a data file at no.npz"),
        ({"extra": ["--method", "mutual_information"]}, "expected a posterior for 'mutual_information'"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(folder, capsys, arguments, words):
    before = sorted(os.listdir())
    extra = arguments.pop("extra", [])
    assert words in refusal(capsys, lambda: score("--method", "regrad", *extra, **arguments))
    assert [name for name in sorted(os.listdir()) if name != "__pycache__"] == before


def test_training_data_without_labels_are_said(folder, capsys):
    x = np.zeros((5, 4), dtype=np.float32)
    run = lambda: score("--method", "knn", "--fit", "train.npz")  # noqa: E731
    np.savez("train.npz", x=x)
    assert "expected an array named 'y' in train.npz, but it holds: x" in refusal(capsys, run)
    np.savez("train.npz", x=x, y=np.zeros(4, dtype=np.int64))
    assert "--fit: expected as many labels y as inputs x in train.npz, but got 4 and 5" in refusal(capsys, run)
    np.savez("train.npz", x=x, y=np.zeros(5))
    assert "whole numbers, one class index for each input" in refusal(capsys, run)
    np.savez("train.npz", x=x, y=np.zeros(5, dtype=np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run() == 0
    said = "nescio: warning: knn: expected at least k = 50 training inputs, got 5; k is 5 now"
    assert said in capsys.readouterr().err


def test_the_end_of_the_output_name_is_checked_before_any_work(folder, capsys, monkeypatch):
    monkeypatch.setattr("nescio.models.load", lambda *_, **__: pytest.fail("work was done"))
    refusal(capsys, lambda: score(out="scores.xlsx"))


def test_a_full_disk_leaves_no_part(folder, capsys, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    assert "No space left on device" in refusal(capsys, lambda: score("--method", "entropy"))
    assert not [name for name in os.listdir() if "scores" in name]


def test_what_is_unforeseen_is_said_without_a_traceback_and_shown_with_debug(folder, capsys):
    run = lambda *more: score("--method", "entropy", *more, model="climodels:Broken")  # noqa: E731
    error = refusal(capsys, run, status=1)
    assert "SystemError: the disk of the universe is full; run again with --debug" in error
    with pytest.raises(SystemError, match="universe"):
        run("--debug")


def test_full_memory_is_told_with_what_to_do(folder, capsys):
    error = refusal(capsys, lambda: score("--method", "entropy", model="climodels:Full"), status=1)
    assert "memory ran out" in error and "--batch-size" in error and "154.00 MiB" in error
    assert "unforeseen" not in error


def test_an_interrupt_gives_130_and_leaves_nothing(folder, capsys):
    assert "interrupted" in refusal(
        capsys, lambda: score("--method", "entropy", model="climodels:interrupted"), status=130
    )
    assert "scores.csv" not in os.listdir()
    with pytest.raises(KeyboardInterrupt):
        score("--debug", model="climodels:interrupted")


def test_an_interrupt_while_the_commands_are_imported_is_a_sentence(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("nescio.cli.import_module", interrupted)
    assert "interrupted; nothing was written" in refusal(capsys, lambda: main(["methods"]), status=130)


def test_methods_in_three_formats(capsys):
    assert main(["methods"]) == 0
    assert capsys.readouterr().out == f"{nescio.methods()}\n"
    assert main(["methods", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("| method |")
    assert main(["methods", "--format", "json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == nescio.scores.names()


@pytest.mark.parametrize("command", [[], ["demo"], ["methods"], ["score"]])
def test_help_shows_examples(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([*command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "examples:\n  nescio " in text


def test_every_example_of_every_help_can_be_given():
    whole = parser()
    (commands,) = (one.choices for one in whole._actions if isinstance(one.choices, dict))
    for command in (whole, *commands.values()):
        lines = [line.strip() for line in command.epilog.splitlines() if line.startswith("  nescio ")]
        assert lines, command.prog
        for line in lines:
            words = shlex.split(re.split(r"  +| [|>] ", line)[0].replace("*", "a"))  # what follows says what it does
            if "--help" not in words:
                assert whole.parse_args(words[1:]).run, line


def test_missing_packages_are_named_with_the_command_that_installs_them(folder, capsys, monkeypatch):
    import importlib

    real = importlib.import_module

    def without(name, *more):
        if name.partition(".")[0] in {"sklearn", "pyarrow", "safetensors"}:
            raise ImportError(f"No module named {name!r}")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    assert "pip install 'nescio[files]'" in refusal(capsys, lambda: score(out="scores.parquet"))
    (folder / "w.safetensors").write_bytes(b"")
    assert "pip install 'nescio[files]'" in refusal(capsys, lambda: score("--weights", "w.safetensors"))
    assert "pip install 'nescio[demo]'" in refusal(capsys, lambda: main(["demo"]))


def test_demo_prints_the_table_and_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nescio.scores.names", lambda: ["entropy", "energy"])
    assert main(["demo", "--inputs", "6", "--epochs", "1", "--out", "page.html", "--seed", "3"]) == 0
    text = capsys.readouterr().out
    assert "method" in text
    reads, caught, wrote = text.splitlines()[-3:]
    assert reads.startswith("The network reads ") and caught.startswith("In the whole test the guard calls ")
    assert wrote == "Wrote page.html: open it in a browser to see which, and why."
    names = {line.split()[0] for line in text.splitlines() if "µs" in line or " ms" in line}
    assert names == {"entropy", "energy", "guard"}
    assert "nescio demo --seed 3 --inputs 6 --epochs 1" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", "page.pdf"], "ends in .html, but got 'page.pdf'"),
        (["--out", "nowhere/page.html"], "does not exist"),
        (["--inputs", "1"], "4 to 1000 inputs"),
        (["--epochs", "0"], "expected epochs to be a whole number of at least 1, got 0"),
        (["--seed", "x"], "invalid int value: 'x'"),
    ],
)
def test_demo_refuses_bad_arguments(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refusal(capsys, lambda: main(["demo", *arguments]))
    assert os.listdir() == []


def test_the_command_without_torch_is_quick_and_knows_its_version():
    code = (
        "import sys, nescio.cli\n"
        "assert not any(f'nescio.cli.{name}' in sys.modules for name in nescio.cli.COMMANDS)\n"
        "try: nescio.cli.main(['--version'])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "parser = nescio.cli.parser()\n"
        "commands, = (one.choices for one in parser._actions if isinstance(one.choices, dict))\n"
        "assert len(commands) > 9 and all(one.format_help() for one in (parser, *commands.values()))\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"nescio {nescio.__version__}\n"


def test_a_reader_that_leaves_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "nescio", "methods"], stdout=closed, stderr=subprocess.PIPE, text=True, env=buffered
        )
    said = [line for line in done.stderr.splitlines() if "getting ready" not in line]  # of a busy machine
    assert (done.returncode, said) == (0, [])


def test_a_command_speaks_from_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while arguments are read, some of which need torch."""
    from nescio import progress

    spoken = []

    class Plugged:
        @staticmethod
        def add(commands, common):
            spoken.append(progress._speech.get())
            commands.add_parser("plugged", parents=[common]).set_defaults(run=lambda args: 0)

    assert main(["plugged"], {"plugged": Plugged}) == 0
    assert spoken[0] is not None and progress._speech.get() is None
