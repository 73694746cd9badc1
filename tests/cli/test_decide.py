import json
import os
from pathlib import Path

import numpy as np
import pytest

from nescio import decide
from nescio.cli import main
from nescio.data import write_table
from nescio.data.tables import read_table
from tests.cli.helpers import refusal

SIZE = 400


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table as `nescio score` writes it, and labels; wrong answers have high scores."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    scores = random.random(SIZE)
    correct = random.random(SIZE) > scores**4 / 2
    predicted = random.integers(0, 10, SIZE)
    labels = np.where(correct, predicted, (predicted + 1) % 10)
    table = {"index": np.arange(SIZE), "entropy": scores, "energy": scores - 5, "predicted": predicted}
    write_table("scores.csv", table | {"probability": 1 - scores / 2})
    names = np.array([f"class {i}" for i in range(10)], dtype=object)
    odd = {"label": labels, "right": correct, "name": names[labels], "gap": np.where(scores > 0.5, np.nan, labels)}
    write_table("labelled.parquet", table | odd)
    np.savez("y.npz", y=labels, other=labels[::-1], short=labels[:9], soft=np.eye(10)[labels])
    return tmp_path


def make(*arguments, scores="scores.csv", column="entropy", out="policy.json"):
    return main(["decide", "--scores", scores, "--column", column, "--out", out, *arguments])


def apply(*arguments, scores="scores.csv", policy="policy.json", out="decisions.csv"):
    return main(["apply", "--policy", policy, "--scores", scores, "--out", out, *arguments])


def truth():
    table = read_table("labelled.parquet")
    return table["entropy"], table["right"]


def fails(capsys, run, *words):
    """Status 2, one line that holds the words, and no new file."""
    before = sorted(os.listdir())
    error = refusal(capsys, run)
    for word in words:
        assert word in error
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    ("scores", "source"),
    [
        ("scores.csv", ["--labels", "y.npz"]),
        ("labelled.parquet", ["--label", "label"]),
        ("labelled.parquet", ["--correct", "right"]),
    ],
)
def test_every_source_of_labels_gives_the_policy_of_the_library(folder, capsys, scores, source):
    assert make(*source, scores=scores) == 0
    expected = decide.threshold(*truth(), about={"score": "entropy"})
    assert expected.threshold is not None
    assert decide.load("policy.json") == expected
    assert capsys.readouterr().out == f"{expected}\nWrote policy.json\n"


def test_risk_confidence_and_keep_reach_the_library(folder, capsys):
    assert make("--labels", "y.npz", "--risk", "0.1", "--confidence", "0.99") == 0
    assert decide.load("policy.json") == decide.threshold(*truth(), 0.1, 0.99, about={"score": "entropy"})
    assert make("--keep", "0.8", column="energy") == 0
    assert decide.load("policy.json") == decide.quantile(truth()[0] - 5, 0.8, about={"score": "energy"})


def test_the_only_score_of_a_table_needs_no_name(folder, capsys):
    table = read_table("scores.csv")
    write_table("one.csv", {name: column for name, column in table.items() if name != "energy"})
    assert main(["decide", "--scores", "one.csv", "--labels", "y.npz", "--out", "policy.json"]) == 0
    assert decide.load("policy.json") == decide.threshold(*truth(), about={"score": "entropy"})
    write_table("none.csv", {"index": table["index"]})
    for name, words in (("scores.csv", "has several scores: entropy, energy"), ("none.csv", "has no score among its")):
        run = lambda name=name: main(["decide", "--scores", name, "--keep", "0.9", "--out", "p.json"])  # noqa: E731
        fails(capsys, run, words)


def test_rows_that_were_moved_or_left_out_find_their_labels(folder, capsys):
    table = read_table("scores.csv")
    order = np.random.default_rng(1).permutation(SIZE)[:300]
    write_table("moved.csv", {name: column[order] for name, column in table.items()})
    assert make("--labels", "y.npz", scores="moved.csv") == 0
    scores, right = truth()
    assert decide.load("policy.json") == decide.threshold(scores[order], right[order], about={"score": "entropy"})


def test_no_promise_is_no_error_and_is_said(folder, capsys):
    assert make("--labels", "y.npz", "--risk", "0.0001") == 0
    assert "No threshold can promise this with 400 examples" in capsys.readouterr().out
    assert json.loads(Path("policy.json").read_text())["threshold"] is None
    assert apply() == 0
    text = capsys.readouterr().out
    assert text.startswith("Abstained from 400 of 400 inputs (100.0 %).\nNo threshold can promise this")


@pytest.mark.parametrize(("name", "start"), [("rc.png", b"\x89PNG"), ("rc.SVG", b"<?xml"), ("rc.pdf", b"%PDF")])
def test_the_curve_is_drawn(folder, name, start):
    assert make("--labels", "y.npz", "--plot", name) == 0
    assert Path(name).read_bytes().startswith(start)
    assert sorted(os.listdir()) == sorted(["labelled.parquet", "policy.json", name, "scores.csv", "y.npz"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"extra": []}, "expected the true classes, but scores.csv has no column 'label'"),
        ({"extra": ["--labels", "y.npz", "--keep", "0.9"]}, "not allowed with argument"),
        ({"scores": "none.csv"}, "expected a table at none.csv, but there is none"),
        ({"scores": "y.npz", "extra": ["--keep", "0.9"]}, "ends in .parquet, .csv, .json, but got 'y.npz'"),
        ({"column": "regrad"}, "expected the column 'regrad' in scores.csv, but it has: index, entropy, energy"),
        ({"column": "name", "scores": "labelled.parquet"}, "expected numbers in the column 'name'"),
        ({"extra": ["--labels", "none.npz"]}, "expected a data file at none.npz"),
        ({"extra": ["--labels", "y.npz", "--labels-key", "z"]}, "an array named 'z' in y.npz"),
        ({"extra": ["--labels", "y.npz", "--labels-key", "short"]}, "needs (400, one for each row), got 9"),
        ({"extra": ["--labels", "y.npz", "--labels-key", "soft"]}, "its shape is [400, 10]"),
        ({"extra": ["--label", "label"]}, "expected the column 'label' in scores.csv"),
        ({"extra": ["--label", "name"], "scores": "labelled.parquet"}, "holds 'class"),
        ({"extra": ["--label", "gap"], "scores": "labelled.parquet"}, "the column 'gap' has empty cells"),
        ({"extra": ["--correct", "label"], "scores": "labelled.parquet"}, "expected True or False"),
        ({"extra": ["--correct", "name"], "scores": "labelled.parquet"}, "expected numbers in the column 'name'"),
        ({"extra": ["--label", "label", "--labels-key", "y"]}, "--labels-key: expected --labels FILE.npz with it"),
        ({"extra": ["--keep", "0.9", "--risk", "0.1"]}, "--risk: expected labels with it"),
        ({"extra": ["--keep", "0.9", "--plot", "rc.png"]}, "--plot: expected labels with it"),
        ({"extra": ["--keep", "1.5"]}, "expected keep to be"),
        ({"extra": ["--labels", "y.npz", "--risk", "0"]}, "expected risk to be"),
        ({"extra": ["--labels", "y.npz", "--risk", "much"]}, "invalid float value: 'much'"),
        ({"extra": ["--labels", "y.npz", "--plot", "rc.txt"]}, "--plot: expected a file name that ends in .png"),
        ({"extra": ["--labels", "y.npz", "--plot", "policy.json.png", "--out", "no/p.json"]}, "does not exist"),
        ({"out": "scores.csv"}, "--out: expected another file than that of --scores"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(folder, capsys, arguments, words):
    extra = arguments.pop("extra", ["--labels", "y.npz"])
    fails(capsys, lambda: make(*extra, **arguments), words)


def test_an_empty_cell_is_named(folder, capsys):
    Path("holes.csv").write_text('entropy\n1.0\n""\n2.0\n')
    assert make("--keep", "0.9", scores="holes.csv") == 2
    assert "but it holds '' (row 1)" in capsys.readouterr().err


def test_the_decision_is_added_and_all_else_is_kept(folder, capsys):
    assert make("--labels", "y.npz") == 0
    capsys.readouterr()
    policy = decide.load("policy.json")
    for name in ("scores.csv", "labelled.parquet"):
        out = f"decided{Path(name).suffix}"
        assert apply(scores=name, out=out) == 0
        before, after = read_table(name), read_table(out)
        assert list(after) == [*before, "decision"]
        for column in before:
            assert after[column].dtype == before[column].dtype
            assert np.array_equal(after[column], before[column], equal_nan=column == "gap")
        expected = ["accept" if score <= policy.threshold else "abstain" for score in before["entropy"]]
        assert after["decision"].tolist() == expected
        refused = expected.count("abstain")
        assert 0 < refused < SIZE
        share = f"{100 * refused / SIZE:.1f} %"
        assert capsys.readouterr().out == f"Abstained from {refused} of {SIZE} inputs ({share}).\nWrote {out}\n"
    lines, old = (Path(name).read_text().splitlines() for name in ("decided.csv", "scores.csv"))
    assert [line.rpartition(",")[0] for line in lines] == old


def test_names_of_classes_are_compared_with_indices_and_written(folder, capsys):
    Path("names.txt").write_text("".join(f"class {i}\n" for i in range(10)))
    assert make("--label", "label", scores="labelled.parquet", out="plain.json") == 0
    assert make("--label", "name", "--class-names", "names.txt", scores="labelled.parquet") == 0
    plain, named = (json.loads(Path(file).read_text()) for file in ("plain.json", "policy.json"))
    assert plain == named
    assert apply("--class-names", "names.txt") == 0
    found = read_table("decisions.csv")
    assert found["predicted_class"].tolist() == [f"class {i}" for i in found["predicted"]]
    Path("few.txt").write_text("a\nb\n")
    fails(capsys, lambda: apply("--class-names", "few.txt", out="new.csv"), "there are 2 names, and none for class 9")


def test_another_column_is_taken_only_when_it_is_named(folder, capsys):
    assert make("--keep", "0.9") == 0
    table = read_table("scores.csv")
    write_table("renamed.csv", {"doubt": table["entropy"], "energy": table["energy"]})
    fails(capsys, lambda: apply(scores="renamed.csv"), "expected the column 'entropy' in renamed.csv", "--column")
    assert apply("--column", "doubt", scores="renamed.csv") == 0
    assert "was made for the column 'entropy' and is used for 'doubt'" in capsys.readouterr().out
    decide.quantile(table["entropy"]).save("nameless.json")
    fails(capsys, lambda: apply(policy="nameless.json"), "--column: expected the name of the column of scores")


def test_a_table_may_be_decided_in_place_but_not_twice_and_may_be_empty(folder, capsys):
    assert make("--keep", "0.9") == 0
    assert apply(out="scores.csv") == 0
    fails(capsys, lambda: apply(out="other.csv"), "expected no column 'decision' in scores.csv")
    Path("none.csv").write_text("index,entropy\n")
    assert apply(scores="none.csv") == 0
    assert Path("decisions.csv").read_text() == "index,entropy,decision\n"
    assert "Abstained from 0 of 0 inputs." in capsys.readouterr().out


def test_the_monitor_counts_run_after_run_and_gives_the_alarm(folder, capsys):
    assert make("--keep", "0.9") == 0
    for run in (1, 2):
        assert apply("--monitor", "watch.json") == 0
        assert f"watch.json: {39 * run} of {SIZE * run} inputs were not accepted" in capsys.readouterr().out
    table = read_table("scores.csv")
    write_table("drifted.csv", {"entropy": table["entropy"] + 1})
    assert apply("--monitor", "watch.json", scores="drifted.csv") == 0
    assert "watch.json: Alarm: 478 of 1200 inputs" in capsys.readouterr().out
    assert make("--keep", "0.8") == 0
    fails(capsys, lambda: apply("--monitor", "watch.json", out="new.csv"), "watch.json belongs to another policy")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"out": "decisions.txt"}, "ends in .parquet, .csv, .json"),
        ({"out": "no/decisions.csv"}, "does not exist"),
        ({"out": "policy.json"}, "--out: expected another file than that of --policy"),
        ({"extra": ["--monitor", "policy.json"]}, "--monitor: expected another file than that of --policy"),
        ({"policy": "none.json"}, "at none.json, but there is none"),
        ({"policy": "scores.csv"}, "scores.csv"),
        ({"policy": "sets.json"}, "sets.json makes sets of classes"),
        ({"scores": "nan.csv"}, "1 of 2 are NaN"),
        ({"scores": "none.csv"}, "expected a table at none.csv"),
        ({"extra": ["--column", "name"], "scores": "labelled.parquet"}, "expected numbers in the column 'name'"),
    ],
)
def test_what_cannot_be_applied_is_one_sentence_and_leaves_nothing(folder, capsys, arguments, words):
    assert make("--keep", "0.9") == 0
    Path("nan.csv").write_text("entropy\n0.1\nnan\n")
    decide.conformal(np.full((30, 2), 0.5), np.zeros(30, int), 0.9).save("sets.json")
    extra = arguments.pop("extra", [])
    fails(capsys, lambda: apply(*extra, **arguments), words)


@pytest.mark.parametrize("command", ["calibrate", "decide", "apply"])
def test_help_shows_examples(capsys, command):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"examples:\n  nescio {command} " in text
    with pytest.raises(SystemExit):
        main(["--help"])
    assert f"nescio {command} --" in capsys.readouterr().out


def test_the_labels_that_score_wrote_are_found(folder, capsys):
    assert make("--label", "label", scores="labelled.parquet", out="named.json") == 0
    capsys.readouterr()
    assert make("--label", "target", scores="labelled.parquet", out="other.json") == 0
    error = capsys.readouterr().err
    assert "labelled.parquet has no column 'target'; the labels are taken from 'label'" in error
    assert make(scores="labelled.parquet", out="none.json") == 0
    assert capsys.readouterr().err == ""
    policies = [Path(f"{name}.json").read_text() for name in ("named", "other", "none")]
    assert policies[0] == policies[1] == policies[2]
    fails(capsys, make, "expected the true classes, but scores.csv has no column 'label'", "--keep SHARE")
    fails(capsys, lambda: make("--label", "target"), "expected the column 'target' in scores.csv")


def test_decide_reads_what_score_wrote(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("tiny_decided.py").write_text(
        "import torch\ndef build():\n    torch.manual_seed(0)\n    return torch.nn.Linear(2, 3)\n"
    )
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    write_table("data.csv", {"a": x[:, 0], "b": x[:, 1], "target": random.integers(0, 3, 60)})
    score = ["score", "--model", "tiny_decided:build", "--data", "data.csv", "--x", "a,b", "--method", "entropy"]
    assert main([*score, "--label", "target", "--out", "scores.csv"]) == 0
    assert make("--label", "target", "--risk", "0.9") == 0
    assert make("--risk", "0.9", out="same.json") == 0
    assert Path("policy.json").read_text() == Path("same.json").read_text()


def test_labels_that_are_numbered_otherwise_than_the_models_classes_are_refused(folder, capsys):
    """Folders called after cameras are no classes: `nescio score` numbers them from 0, as it numbers the classes."""
    table = read_table("labelled.parquet")
    names = np.array([f"class {i}" for i in range(10)], dtype=object)
    own = {key: table[key] for key in ("index", "entropy", "predicted", "label")}
    named = own | {"predicted_class": names[own["predicted"]], "label_class": names[own["label"]]}
    write_table("alike.csv", named)
    assert make(scores="alike.csv") == 0
    cameras = np.array([f"camera {i}" for i in range(10)], dtype=object)
    write_table("cameras.csv", named | {"label_class": cameras[own["label"]]})
    words = ["to the model and 'camera ", "--keep SHARE without labels"]
    fails(capsys, lambda: make(scores="cameras.csv", out="other.json"), *words)


def test_a_folder_of_labels_is_told_where_the_labels_are(folder, capsys):
    Path("photos").mkdir()
    fails(
        capsys,
        lambda: make("--labels", "photos", out="p.json"),
        "photos is a folder",
        "give the folder to `nescio score`",
    )
    write_table("with.csv", read_table("labelled.parquet"))
    fails(capsys, lambda: make("--labels", "photos", scores="with.csv", out="p.json"), "leave --labels out")
