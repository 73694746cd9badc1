"""`nescio guard` and `nescio check`: from a model and a reference to verdicts, by hand and after an interrupt."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from nescio import Guard
from nescio.batch.jobs import Job
from nescio.batch.streaming import score_part
from nescio.cli import main
from nescio.data import read_table
from nescio.data.parts import RUNS
from nescio.specs import DataSpec, GuardSpec, ModelSpec

image = pytest.importorskip("PIL.Image")

MODELS = """
import torch
from torch import nn

def build():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

def other():
    model = build()
    nn.init.zeros_(model[0].bias)
    return model

def pictures():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
        )
"""
NEW = 30
COLUMNS = ["predicted", "confidence", "p_value", "foreign", "unsure", "doubt", "strangeness", "appearance"]
WRONG = ["wrong", "wrong_low", "wrong_high"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guarded.py").write_text(MODELS)
    rng = np.random.default_rng(0)
    x = (4 + 0.5 * rng.normal(size=(320, 4))).astype(np.float32)
    np.savez("ref.npz", x=x)
    np.savez("labelled.npz", x=x, y=rng.integers(0, 3, 320))
    middle = np.where(np.arange(NEW) % 5 < 4, 4, 0)[:, None]  # one in five is foreign
    np.savez("new.npz", x=(middle + 0.5 * rng.normal(size=(NEW, 4))).astype(np.float32))
    monkeypatch.setattr("nescio.data.parts.PATIENCE", 0)
    yield tmp_path
    sys.modules.pop("guarded", None)


def guard(*more, reference="ref.npz", model="guarded:build", out="guard"):
    return main(["guard", "--model", model, "--reference", reference, "--out", out, *more])


def check(*more, out="v.csv", data="new.npz", model="guarded:build", batch="8"):
    given = ["--data", data, "--out", out, "--batch-size", batch, "--part-rows", batch]
    return main(["check", "--guard", "guard", *(["--model", model] if model else []), *given, *more])


def test_a_guard_is_fitted_and_says_how_to_go_on(folder, capsys):
    assert guard() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "Wrote guard: a guard fitted to 320 inputs; its witnesses: doubt, strangeness, appearance",
        "It compares a new input with 320 of them, so it can flag at a level of 0.016 or more.",
        "Next: nescio check --guard guard --model guarded:build --data NEW --out verdicts.csv",
    ]
    assert json.loads(Path("guard/model.json").read_text())["model"] == "guarded:build"


@pytest.mark.parametrize("names", [["low", "high"], ["low", "middle", "high", "higher"]])
def test_names_that_are_not_one_for_each_class_are_refused(folder, capsys, names):
    Path("names.txt").write_text("\n".join(names))
    assert guard() == 0
    assert check("--class-names", "names.txt") != 0
    said = f"--class-names: expected 3 names, one for each class, but got {len(names)}"
    assert said in capsys.readouterr().err
    assert not Path("v.csv").exists()


@pytest.mark.parametrize("ending", ["csv", "json", "parquet"])
@pytest.mark.parametrize("reference", ["ref.npz", "labelled.npz"])
def test_the_table_is_what_the_library_says(folder, capsys, ending, reference):
    assert guard(reference=reference) == 0
    assert check(out=f"v.{ending}") == 0
    table = read_table(f"v.{ending}")
    labelled = reference == "labelled.npz"
    assert list(table) == ["index", *COLUMNS, *(WRONG if labelled else []), "words"]
    sys.path.insert(0, ".")
    import guarded

    own = Guard.load("guard", guarded.build()).check(torch.from_numpy(np.load("new.npz")["x"]).split(8))
    assert table["index"].tolist() == list(range(NEW))
    for name in ("predicted", "confidence", "p_value"):
        np.testing.assert_allclose(table[name], getattr(own, name).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(table["foreign"], own.foreign(0.05).numpy())
    np.testing.assert_allclose(table["doubt"], own.witnesses["doubt"].numpy(), atol=1e-4)
    assert table["words"].tolist() == own.words()
    if labelled:
        np.testing.assert_allclose(table["wrong_high"], own.wrong.high.numpy(), rtol=1e-5)
    shown = capsys.readouterr().out
    assert own.foreign(0.05)[4::5].all()
    assert f"{int(own.foreign(0.05).sum())} of {NEW} inputs are foreign" in shown
    assert f"Wrote {NEW} rows to v.{ending}" in shown


def test_the_worst_are_named_with_their_reasons(folder, capsys):
    assert guard() == 0
    capsys.readouterr()
    assert check("--level", "0.5") == 0
    lines = capsys.readouterr().out.splitlines()
    table = read_table("v.csv")
    foreign = int(table["foreign"].sum())
    assert foreign > 6
    assert lines[0] == (
        f"{foreign} of {NEW} inputs are foreign: unlike the 320 inputs of the reference (of {NEW} inputs like it up to "
        "15 would be flagged by chance)."
    )
    worst = int(np.lexsort((-(table["doubt"] + table["strangeness"] + table["appearance"]), table["p_value"]))[0])
    assert lines[1] == f"  {worst} (p = {table['p_value'][worst]:.2g}): {table['words'][worst]}"
    assert lines[6] == f"  and {foreign - 5} more, where the column foreign says so"
    assert "Do not trust the answers to these" in lines[7]


@pytest.mark.parametrize(("value", "said"), [(4.0, "not foreign: it is like"), (-40.0, "foreign: unlike")])
def test_one_input_is_spoken_of_as_one(folder, capsys, value, said):
    assert guard() == 0
    capsys.readouterr()
    np.savez("one.npz", x=np.full((1, 4), value, dtype=np.float32))
    assert check(data="one.npz") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"The one input is {said} the 320 inputs of the reference (of 1 input like it up to 0.05 would be flagged by "
        "chance)."
    )
    assert lines[-1] == "Wrote 1 row to v.csv"


def test_a_share_of_mistakes_is_settled_over_all_rows(folder, capsys):
    assert guard() == 0
    assert check("--fdr", "0.4") == 0
    table = read_table("v.csv")
    from scipy.stats import false_discovery_control

    flagged = false_discovery_control(table["p_value"]) <= 0.4
    assert 0 < flagged.sum() < (table["p_value"] <= 0.4).sum()
    np.testing.assert_array_equal(table["foreign"], flagged)
    chance = (table["p_value"] <= 0.4) & ~flagged
    assert set(table["words"][chance]) == {"It is unusual, but among so many inputs that may be chance."}
    assert f"{flagged.sum()} of {NEW} inputs" in capsys.readouterr().out
    assert not Path("v.csv.parts").exists()
    assert check("--fdr", "0.4", out="v/") == 2
    assert "expected a file as --out" in capsys.readouterr().err
    assert not Path("v").exists()


def test_an_interrupt_goes_on_with_the_same_bytes(folder, capsys, monkeypatch):
    assert guard("--overwrite") == 0
    assert check(out="whole.csv") == 0
    whole, calls = Guard.check, []

    def stopping(self, *given, **more):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, *given, **more)

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(Guard, "check", stopping)
        assert check() == 130
    assert f"16 of {NEW} rows are kept in v.csv.parts" in capsys.readouterr().err
    assert check() == 0
    assert f"going on after 16 of {NEW} rows" in capsys.readouterr().err
    assert Path("v.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_parts_of_another_guard_or_level_are_refused(folder, capsys):
    assert guard() == 0
    assert check(out="v/") == 0
    assert sorted(os.listdir("v"))[:2] == ["_manifest.json", RUNS]
    assert check("--level", "0.1", out="v/") == 2
    assert "not the same guard" in capsys.readouterr().err
    assert guard("--overwrite", "--doubt", "entropy") == 0
    assert check(out="v/") == 2
    assert "not the same guard" in capsys.readouterr().err
    assert check("--fresh", out="v/") == 0


def test_any_part_of_the_work_can_be_done_by_another_process(folder):
    """What `--engine ray` rests on: a job that can be pickled, and a pure function of it."""
    assert guard() == 0
    assert check() == 0
    job = Job(ModelSpec("guarded:build"), DataSpec("new.npz"), (), batch=8, guard=GuardSpec("guard"))
    found = score_part(job, 8, 24)
    table = read_table("v.csv")
    assert list(found.columns) == list(table)
    for name, column in found.columns.items():
        assert column.tolist() == table[name][8:24].tolist()
    assert found.notes["guard"]["foreign"] == int(table["foreign"][8:24].sum())


def test_rows_that_cannot_be_used_are_left_out_of_a_part_that_has_no_others(folder, capsys):
    x = np.load("new.npz")["x"]
    x[8:16] = np.nan
    np.savez("broken.npz", x=x)
    assert guard() == 0
    assert check(data="broken.npz") == 2
    assert "broken.npz[8] (row 8): it has NaN" in capsys.readouterr().err
    assert check("--on-error", "skip", "--fresh", data="broken.npz", out="v.parquet") == 0
    assert read_table("v.parquet")["index"].tolist() == [i for i in range(NEW) if not 8 <= i < 16]
    assert "8 of 30 rows could not be used" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "guarded:other"}, "expected the model that this was saved with, got Sequential with other weights"),
        ({"model": None}, "guard names the function guarded:build, and opening it would run that: name it yourself"),
        ({"data": "ref3.npz"}, "expected inputs of shape [4] as in the reference"),
        ({"out": "guard"}, "--out: expected another file than that of --guard"),
    ],
)
def test_what_does_not_fit_is_said(folder, capsys, given, words):
    np.savez("ref3.npz", x=np.ones((9, 3), np.float32))
    assert guard() == 0
    assert check(**given) == 2
    assert words in capsys.readouterr().err
    assert not Path("v.csv").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--level", "0.001"], "expected at least 5000 ranks for a level of 0.001, got 320"),
        (["--level", "0"], "expected --level to be a share above 0 and below 1"),
        (["--fdr", "1.5"], "expected --fdr to be a share above 0 and below 1"),
        (["--fdr", "0.1", "--level", "0.1"], "--fdr: expected either --fdr or --level"),
        (["--guard", "nowhere"], "--guard: expected a folder of `nescio guard`, but there is no guard.json in nowhere"),
    ],
)
def test_levels_and_folders_that_cannot_be_used(folder, capsys, more, words):
    assert guard() == 0
    assert check(*more) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "reference", "words"),
    [
        ([], "few.npz", "--reference: expected a reference of at least 20 different inputs, got 12 (of 12)"),
        (["--nuisances", "jpeg,blur"], "ref.npz", "expected auto, none or some of resize,brightness,noise,rotation"),
        (["--doubt", "nothing"], "ref.npz", "argument --doubt: expected the name of a method"),
        (["--doubt", "knn"], "ref.npz", "neither training data nor a posterior as doubt="),
        (["--out", "mine"], "ref.npz", "--out: expected an empty folder or one with a guard, but mine holds notes.txt"),
        (["--out", "ref.npz"], "ref.npz", "--out: expected another file than that of --reference"),
    ],
)
def test_a_guard_that_cannot_be_made(folder, capsys, more, reference, words):
    np.savez("few.npz", x=np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32))
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("")
    try:
        status = guard(*more, reference=reference)
    except SystemExit as left:
        status = left.code
    assert status == 2
    assert words in capsys.readouterr().err
    assert not Path("guard").exists()


def test_a_guard_is_replaced_only_where_that_is_asked_for(folder, capsys):
    assert guard() == 0
    before = Path("guard/guard.json").read_bytes()
    assert guard("--doubt", "entropy") == 2
    assert "holds a guard already; name another folder, or say --overwrite" in capsys.readouterr().err
    assert Path("guard/guard.json").read_bytes() == before
    assert guard("--doubt", "entropy", "--overwrite") == 0
    assert Path("guard/guard.json").read_bytes() != before
    assert len(os.listdir("guard")) == 3


def photographs(place, count, seed=0):
    rng = np.random.default_rng(seed)
    for i in range(count):
        file = Path(place, "some" if i % 2 else "more", f"{i:03}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        small = image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        small.resize((20, 16), image.Resampling.BILINEAR).save(file)


@pytest.mark.filterwarnings("ignore:the reference has:UserWarning")
def test_pictures_of_folders_with_their_preparation_remembered(folder, capsys):
    photographs("photos", 110)
    photographs("new", 6, seed=1)
    Path("photos/some/broken.png").write_bytes(b"no picture")
    Path("names.txt").write_text("ant\nbee\ncow\n")
    flags = ["--size", "12", "--mean", "0.5", "--std", "0.25", "--class-names", "names.txt"]
    assert guard("--out", "pg", *flags, model="guarded:pictures", reference="photos") == 2
    assert capsys.readouterr().err.count("broken.png") == 1
    assert guard("--on-error", "skip", *flags, model="guarded:pictures", reference="photos") == 0
    shown = capsys.readouterr()
    assert "1 of 111 rows could not be used" in shown.err
    assert "are not known to be classes of the model, and are left out" in shown.err
    assert "a guard fitted to 110 inputs and " in shown.out
    assert check(model="guarded:pictures", data="new") == 0
    shown = capsys.readouterr()
    assert "pre-processing: resize 12, centre crop 12, mean 0.5, std 0.25" in shown.err
    table = read_table("v.csv")
    assert list(table)[:4] == ["index", "name", "predicted", "predicted_class"]
    assert "wrong" not in table  # the folders of the reference are no classes of the model
    assert set(table["predicted_class"]) <= {"ant", "bee", "cow"}
    assert check("--trust-pickle", "--overwrite", model=None, data="new") == 0
    assert check("--overwrite", "--size", "16", model="guarded:pictures", data="new") == 2
    assert "expected inputs of shape [3, 12, 12] as in the reference" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:the reference has:UserWarning")
def test_a_model_of_a_known_collection_needs_not_be_named_again(folder, capsys):
    x = np.random.default_rng(0).random((110, 1, 28, 28)).astype(np.float32)
    np.savez("digits.npz", x=x)
    assert guard("--nuisances", "none", model="nescio.zoo:small_cnn", reference="digits.npz") == 0
    assert "Next: nescio check --guard guard --data NEW --out verdicts.csv" in capsys.readouterr().out
    assert check(model=None, data="digits.npz", batch="64") == 0
    assert len(read_table("v.csv")["p_value"]) == 110
