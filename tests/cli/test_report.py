"""`nescio report` from files to a page or its numbers; wrong arguments are one sentence and leave nothing."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import nescio
from nescio import posteriors
from nescio.cli import main
from nescio.data.sources import open_data
from tests.cli.helpers import refusal
from tests.report.reported import opened, write
from tests.report.test_comparison_page import Reader


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    write(folder)
    return folder


@pytest.fixture(autouse=True)
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    yield
    sys.modules.pop("reported_models", None)


def report(*arguments, model="digits", source="held.npz", out="r.json"):
    weights = ("--weights", "digits.pt") if model == "digits" else ()
    few = ("--no-maps", "--no-audit", "--examples", "1", "--method", "entropy")
    few = () if "--all" in arguments else few
    rest = [word for word in arguments if word != "--all"]
    return main(
        ["report", "--model", f"reported_models:{model}", *weights, "--data", source, "--out", out, *few, *rest]
    )


def read(path="r.json"):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_page_and_numbers_are_of_one_result(capsys):
    same = ("--all", "--ood", "other.npz", "--examples", "1", "--method", "entropy", "--method", "regrad")
    assert report(*same, "--set", "regrad.samples=2", out="r.html") == 0
    told = capsys.readouterr().out
    assert report(*same, "--set", "regrad.samples=2", "--format", "json") == 0
    result, page = read(), Path("r.html").read_text(encoding="utf-8")
    Reader(page)
    for sentence in result["summary"]:
        assert sentence in told
    assert "Wrote r.html: 60 inputs of held.npz, by entropy" in told
    for own in result["foreign"]["separation"].values():
        assert f'data-value="{own["auroc"]!r}"' in page and f'data-value="{own["fpr95"]!r}"' in page
    for row in result["by_class"]:
        assert f'data-value="{row["probability"]!r}"' in page and f'data-value="{row["median"]!r}"' in page
    for figure in ("ece", "nll", "brier"):
        assert f'data-value="{result["calibration"]["all"][figure]!r}"' in page
    for row in result["limits"]["rows"]:
        assert f'data-value="{row["limit"]!r}"' in page
    command = "nescio report --model reported_models:digits --weights digits.pt --data held.npz"
    assert command in page and "--method entropy --method regrad --set regrad.samples=2" in page
    assert result["methods"][1]["settings"]["samples"] == 2
    assert page.count("<img ") == 60 + 3 * 2 and "nescio 0" in result["repeat"]["versions"]


def test_a_table_without_labels_with_a_bad_row_and_a_sample(capsys):
    assert report("--label", "none", "--x", "age,pay,name height", model="table", source="table.csv") == 0
    shown = capsys.readouterr()
    assert "1 of 40 rows could not be used" in shown.err and "1 of 40 rows could not be used" in shown.out
    result = read()
    assert result["calibration"] is None and not result["answer"]["judged"]
    assert report("--most", "20", "--seed", "3", model="table", source="table.csv") == 0
    result = read()
    assert result["data"]["sampled"] and result["data"]["read"] == 20 and "--most 20" in result["repeat"]["command"]
    assert result["model"]["class_names"] == ["<b>low", "middle", "high"]


def test_labels_from_a_file_of_their_own():
    y = np.load("held.npz")["y"]
    np.savez("y.npz", y=y)
    Path("y.txt").write_text("\n".join(map(str, y)))
    Path("y.csv").write_text("name,label\n" + "\n".join(f"held.npz[{i}],{y[i]}" for i in range(59, 19, -1)) + "\n")
    found = {}
    for name in ("y.npz", "y.txt", "y.csv"):
        assert report("--label", "none", "--labels", name) == 0
        found[name] = read()
    assert report() == 0
    assert found["y.npz"]["calibration"] == found["y.txt"]["calibration"] == read()["calibration"]
    assert found["y.csv"]["inputs"]["label"] == [None] * 20 + y[20:].tolist()
    assert found["y.npz"]["data"]["labels"] == "given in a file of their own"


@pytest.mark.filterwarnings("default:the reference has:UserWarning")
def test_a_reference_or_a_guard_judges(capsys):
    assert report("--reference", "reference.npz", source="mixed.npz") == 0
    told, result = capsys.readouterr(), read()
    assert "nescio: warning: the reference has 120 different inputs" in told.err
    assert told.out.startswith("Do not trust the answers for ") and result["answer"]["reference"] == 120
    guard, check = result["answer"]["command"]["text"].split("\n")
    assert guard == (
        "nescio guard --model reported_models:digits --weights digits.pt --reference reference.npz --out guard/"
    )
    assert check == "nescio check --guard guard/ --model reported_models:digits --data NEW --out verdicts.csv"
    source, _ = opened("digits", "held.npz")
    nescio.Guard(source.model).fit(open_data("reference.npz")).save("guard")
    assert report("--guard", "guard", "--level", "0.1", source="mixed.npz") == 0
    again = read()
    assert again["inputs"]["guard"]["p_value"] == result["inputs"]["guard"]["p_value"]
    assert again["answer"]["level"] == 0.1 and again["answer"]["command"]["text"].startswith(
        "nescio check --guard guard"
    )


def test_a_posterior_and_training_data():
    sys.path.insert(0, str(Path.cwd()))
    try:
        import reported_models
    finally:
        sys.path.pop(0)
    base = reported_models.table()
    torch.manual_seed(0)
    posteriors.DeepEnsemble([base, nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))]).save("ensemble")
    assert report("--posterior", "ensemble", model="table", source="table.csv") == 0
    assert read()["kinds"]["about"] == "DeepEnsemble" and read()["kinds"]["members"] == 2
    assert report("--fit", "train.npz") == 0
    assert read()["kinds"]["about"].startswith("a Laplace posterior of the last layer")


def test_class_names_from_a_file(capsys):
    names = [f"digit {index}" for index in range(10)]
    Path("names.txt").write_text("\n".join(names))
    assert report("--class-names", "names.txt") == 0
    assert {row["class"] for row in read()["by_class"]} <= set(names)
    Path("names.json").write_text(json.dumps(names[:9]))
    capsys.readouterr()
    assert report("--class-names", "names.json") == 2
    assert "expected 10 names of classes, as the model has, got 9" in capsys.readouterr().err


def test_texts_have_bars_of_tokens(tmp_path):
    transformers = pytest.importorskip("transformers")
    from tests.models.examples import WORDS, tokenizer

    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=12, num_labels=3, id2label={0: "no", 1: "yes", 2: "perhaps"},
        label2id={"no": 0, "yes": 1, "perhaps": 2},
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    texts = ["a good film", "it is very bad", "bad", "very very good", "<i> a film </i>", "is it a good film"]
    Path("reviews.csv").write_text("text\n" + "\n".join(texts) + "\n")
    few = ["--examples", "2", "--method", "entropy"]
    assert main(["report", "--model", f"hf:{tmp_path}", "--data", "reviews.csv", "--out", "t.html", *few]) == 0
    assert main(["report", "--model", f"hf:{tmp_path}", "--data", "reviews.csv", "--out", "t.json", *few]) == 0
    result, page = read("t.json"), Path("t.html").read_text(encoding="utf-8")
    Reader(page)
    one = result["examples"]["most"][0]
    assert (
        one["text"] in texts and one["why"]["form"] == "bars" and one["why"]["labels"][-1] == "marks of begin and end"
    )
    assert not any(mark in label for label in one["why"]["labels"] for mark in ("[CLS]", "[SEP]", "[PAD]"))
    assert len(one["why"]["labels"]) == len(one["text"].split()) + 1 and result["answer"]["kind"] == "texts"
    assert sum(one["why"]["parts"]["total"]) == pytest.approx(one["why"]["of"]["total"], rel=1e-6)
    assert "<blockquote>" in page and "<i> a film" not in page and "[CLS]" not in page


def test_wrong_arguments_are_one_sentence_and_leave_nothing(capsys):
    Path("short.txt").write_text("1\n2\n")
    np.savez("short.npz", x=np.load("reference.npz")["x"][:3])
    np.savez("small.npz", x=np.load("reference.npz")["x"][:40])
    for arguments, out, words in (
        ((), "r.pdf", "--out: expected a file name that ends in .html or .json"),
        (("--format", "html"), "wrong.json", "--format: expected the form that"),
        ((), "held.npz", "expected a file name that ends in"),
        (("--labels", "short.txt"), "wrong.json", "--labels: expected 60, one for each row"),
        (("--labels", "table.csv"), "wrong.json", "--labels: expected 60"),
        (("--most", "0"), "wrong.json", "whole number of at least 1"),
        (("--reference", "held.npz"), "wrong.json", "expected another file than that of --reference"),
        (("--reference", "short.npz"), "wrong.json", "--reference: expected a reference of at least 20 different"),
        (("--reference", "reference.npz", "--guard", "guard"), "wrong.json", "not allowed with argument"),
        (("--guard", "nowhere"), "wrong.json", "nowhere"),
        (("--all", "--set", "samples=3"), "wrong.json", "--set: expected --method too"),
        (("--posterior", "ensemble", "--fit", "train.npz"), "wrong.json", "--posterior: expected it without --fit"),
        (("--method", "mahalanobis"), "wrong.json", "expected training data for 'mahalanobis'"),
        (("--ood", "nowhere"), "wrong.json", "expected a data file at nowhere"),
    ):
        assert words in refusal(capsys, lambda arguments=arguments, out=out: report(*arguments, out=out)), words
    with pytest.MonkeyPatch.context() as patch:  # before the fit, which takes long
        patch.setattr("nescio.specs.fit_guard", lambda *given, **settings: pytest.fail("it was fitted"))
        error = refusal(capsys, lambda: report("--reference", "small.npz", out="wrong.json"))
    assert "expected at least 100 ranks for a level of 0.05, got 40" in error
    assert not Path("wrong.json").exists() and not Path("r.pdf").exists()
    Path("same.json").write_text("[]")
    assert "expected another file than that of --data" in refusal(
        capsys, lambda: report(source="same.json", out="same.json")
    )
