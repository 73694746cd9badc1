"""`nescio score` from a model by name and a folder, a table or a list, to a table of scores."""

import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nescio
from nescio.cli import main
from nescio.data.sources import open_data
from nescio.models.sources import open_model

image = pytest.importorskip("PIL.Image")

MODELS = """
import torch
from torch import nn

def pictures():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 4 * 4, 3))

def numbers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sourcemodels.py").write_text(MODELS)
    for seed, name in enumerate(["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.jpg"]):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        array = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
        image.fromarray(array).save(tmp_path / "pictures" / name)
    yield tmp_path
    sys.modules.pop("sourcemodels", None)


def score(*arguments):
    return main(["score", "--out", "scores.csv", "--overwrite", *arguments])


def table():
    with Path("scores.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_folder_of_pictures_with_settings_of_a_person(folder, capsys):
    flags = ["--size", "4", "--mean", "0.5", "--std", "0.5,0.25,1"]
    assert score("--model", "sourcemodels:pictures", "--data", "pictures", "--method", "exgrad", *flags) == 0
    shown = capsys.readouterr()
    assert shown.err.splitlines() == [
        "model: sourcemodels:pictures, 147 parameters",
        "data: 4 pictures in 2 classes in pictures",
        "pre-processing: resize 4, centre crop 4, mean 0.5, std 0.5 0.25 1",
        "nescio: how the model's classes are called is not known; they are taken to be 0 cat, 1 dog",
        "  If that is not the order of the model's outputs, say how they are called: --class-names FILE",
    ]
    rows = table()
    assert list(rows[0]) == ["index", "name", "exgrad", "predicted", "probability", "label", "label_class"]
    assert [row["label_class"] for row in rows] == ["cat", "cat", "dog", "dog"]
    assert [row["name"] for row in rows] == ["cat/1.png", "cat/2.png", "dog/1.png", "dog/2.jpg"]
    source = open_model("sourcemodels:pictures", size=4, mean=[0.5], std=[0.5, 0.25, 1])
    (batch,) = open_data("pictures", preprocess=source.preprocess).batches(9)
    expected = nescio.score(source.model, batch.inputs, "exgrad")
    assert [float(row["exgrad"]) for row in rows] == pytest.approx(expected.tolist(), rel=1e-6)


def test_what_is_done_to_pictures_is_said_also_where_nothing_is_known(folder, capsys):
    for file in Path("pictures").rglob("*.*g"):
        image.open(file).convert("RGB").resize((4, 4)).save(file)
    assert score("--model", "sourcemodels:pictures", "--data", "pictures", "--method", "entropy") == 0
    assert "pre-processing: none known: pictures as large as they are" in capsys.readouterr().err


def test_broken_pictures_stop_or_are_skipped_with_their_names(folder, capsys):
    Path("pictures/dog/1.png").write_text("I am no picture")
    for i in range(6):
        Path(f"pictures/dog/x{i}.jpg").write_bytes(b"")
    arguments = ["--model", "sourcemodels:pictures", "--data", "pictures", "--size", "4", "--method", "entropy"]
    assert score(*arguments) == 2
    assert "nescio: cannot use dog/1.png (row 2): it is not a picture" in capsys.readouterr().err
    assert not Path("scores.csv").exists()
    assert score(*arguments, "--on-error", "skip") == 0
    lines = capsys.readouterr().err.splitlines()
    assert "nescio: 7 of 10 rows could not be used and were left out:" in lines
    assert lines[-2:] == ["  dog/x3.jpg (row 7): it is not a picture, or one of an unknown kind", "  and 2 more"]
    assert [row["index"] for row in table()] == ["0", "1", "3"]


def test_a_table_with_training_data_of_the_same_kind(folder, capsys):
    generator = np.random.default_rng(0)
    for name, count in (("train", 60), ("test", 5)):
        lines = [f"r{i},{generator.normal():.4f},{generator.normal():.4f},{i % 3}" for i in range(count)]
        Path(f"{name}.csv").write_text("\n".join(["id,a,b,label", *lines]) + "\n")
    methods = ["--method", "mahalanobis", "--method", "entropy"]
    assert score("--model", "sourcemodels:numbers", "--data", "test.csv", "--fit", "train.csv", *methods) == 0
    assert [row["name"] for row in table()] == [f"r{i}" for i in range(5)]
    assert "data: 5 rows of test.csv, columns a, b, labels in label\n" in capsys.readouterr().err
    arguments = ["--model", "sourcemodels:numbers", "--data", "test.csv", "--fit", "train.csv", *methods]
    assert score(*arguments, "--label", "none", "--x", "a,b") == 2
    assert "--fit: expected labelled data, but train.csv has no labels" in capsys.readouterr().err


@pytest.mark.parametrize("spec", ["torchvision:shufflenet_v2_x0_5", "timm:test_vit"])
def test_models_by_name(folder, capsys, spec):
    pytest.importorskip(spec.partition(":")[0])
    assert score("--model", spec, "--data", "pictures", "--method", "entropy") == 0
    assert "random weights" in capsys.readouterr().err
    assert len(table()) == 4


def test_texts_by_the_default_score(folder, capsys):
    transformers = pytest.importorskip("transformers")
    from tests.models.examples import WORDS, tokenizer

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=12, num_labels=2, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1},
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained("kept")
    tokenizer().save_pretrained("kept")
    Path("reviews.csv").write_text("text,label\na good film,yes\nvery bad,no\na film,no\n")
    assert score("--model", "hf:kept", "--data", "reviews.csv", "--batch-size", "1") == 0
    assert [row["label_class"] for row in table()] == ["yes", "no", "no"]
    source = open_model("hf:kept")
    batches = open_data("reviews.csv", preprocess=source.preprocess, classes=source.classes).batches(1)
    expected = nescio.score(source.model, [batch.inputs for batch in batches], "gen")
    assert [float(row["gen"]) for row in table()] == pytest.approx(expected.tolist(), rel=1e-6)
    assert "warning" not in capsys.readouterr().err
    Path("reviews.csv").write_text("text,label\na good film,fine\nvery bad,poor\n")
    assert score("--model", "hf:kept", "--data", "reviews.csv", "--method", "entropy") == 0
    told = "the classes of the data (fine, poor …) are not those of the model (no, yes …)"
    assert told in capsys.readouterr().err
    assert main(["calibrate", "--model", "hf:kept", "--data", "reviews.csv", "--out", "calibrated"]) == 2
    assert told in capsys.readouterr().err


def test_names_of_files_steer_no_terminal(folder, capsys):
    Path("pictures", "dog", "\x1b]0;owned\x07.png").write_bytes(b"none")
    assert score("--model", "sourcemodels:pictures", "--data", "pictures", "--size", "4", "--on-error", "skip") == 0
    told = capsys.readouterr().err
    assert "dog/\\x1b]0;owned\\x07.png (row" in told and "\x1b" not in told
    assert score("--model", "sourcemodels:pictures", "--data", "pictures", "--size", "4") == 2
    assert "\x1b" not in capsys.readouterr().err


def test_an_exported_program_and_its_gradients(folder):
    sys.path.insert(0, str(folder))
    try:
        from sourcemodels import pictures
    finally:
        sys.path.remove(str(folder))
    model = pictures().eval()
    torch.export.save(torch.export.export(model, (torch.rand(1, 3, 4, 4),)), "m.pt2")
    found = []
    for spec in ("m.pt2", "sourcemodels:pictures"):
        assert score("--model", spec, "--data", "pictures", "--size", "4", "--method", "exgrad", "--trust-pickle") == 0
        found.append([float(row["exgrad"]) for row in table()])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def test_a_saved_posterior(folder, capsys):
    pytest.importorskip("safetensors")
    from nescio.posteriors import DeepEnsemble
    from nescio.specs import ModelSpec, remember

    source = open_model("sourcemodels:pictures", size=4)
    other = open_model("sourcemodels:pictures", size=4)
    torch.nn.init.normal_(other.model.module[1].weight)
    DeepEnsemble([source.model, other.model]).save("kept")
    remember("kept", ModelSpec("sourcemodels:pictures", size=4))
    asked = ("--model", "kept", "--data", "pictures", "--method", "mutual_information", "--device", "cpu")
    assert score(*asked) == 2
    assert "--base sourcemodels:pictures" in capsys.readouterr().err
    assert score(*asked, "--base", "sourcemodels:pictures") == 0
    assert all(float(row["mutual_information"]) > 0 for row in table())
    assert "model: DeepEnsemble of kept over sourcemodels:pictures" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--size", "4y"], "expected a number of pixels or HEIGHTxWIDTH, got '4y'"),
        (["--mean", "a"], "expected numbers with commas, or none, got 'a'"),
        (["--mean", "1,2"], "--mean: expected one number or 3, one for each channel, got 2"),
        (["--data", "nowhere"], "expected a data file at nowhere"),
        (["--model", "resnet18"], "expected package.module:factory, torchvision:NAME"),
        (["--on-error", "ignore"], "invalid choice: 'ignore'"),
        (["--base", "x:y"], "expected a folder of a saved posterior beside a base"),
    ],
)
def test_bad_arguments_are_one_sentence_and_status_2(folder, capsys, arguments, words):
    try:
        status = score("--model", "sourcemodels:pictures", "--data", "pictures", *arguments)
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    assert words in capsys.readouterr().err
