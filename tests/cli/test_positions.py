"""`nescio score` with models that answer at every position: one row for each input, and maps in a folder."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import nescio
from nescio.cli import main
from nescio.dense import DenseScores

MODEL = """
import torch
from torch import nn

def segment():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 1))

def whole():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 12 * 10, 4))
"""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("position_models.py").write_text(MODEL)
    x = torch.rand(5, 3, 12, 10, generator=torch.Generator().manual_seed(1))
    np.savez("x.npz", x=x.numpy())
    return tmp_path


def rows(path: str) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_for_each_input_and_its_maps(here):
    import position_models

    asked = ["--method", "entropy", "--method", "exgrad", "--batch-size", "2"]
    assert (
        main(
            ["score", "--model", "position_models:segment", "--data", "x.npz", *asked, "--out", "s.csv", "--maps", "m"]
        )
        == 0
    )
    x = torch.from_numpy(np.load("x.npz")["x"])
    maps = nescio.score(position_models.segment(), x, ["entropy", "exgrad"])
    table = rows("s.csv")
    for name in ("entropy", "exgrad"):
        own = DenseScores(maps[name])
        np.testing.assert_allclose([float(row[name]) for row in table], own.summary("mean"), rtol=1e-5)
        np.testing.assert_allclose([float(row[f"{name}_max"]) for row in table], own.summary("max"), rtol=1e-5)
    with torch.no_grad():
        p = position_models.segment()(x).softmax(1)
    classes = p.argmax(1)
    for at, row in enumerate(table):
        assert int(row["predicted"]) == int(classes[at].flatten().bincount().argmax())
        assert float(row["probability"]) == pytest.approx(float(p[at].amax(0).mean()), rel=1e-5)
        (arrays,) = Path("m").glob(f"*-{at}.maps.npz")
        kept = np.load(arrays)
        np.testing.assert_allclose(kept["exgrad"], maps["exgrad"][at], rtol=1e-5)
        np.testing.assert_array_equal(kept["predicted"], classes[at])
    assert len(list(Path("m").glob("*.png"))) == 5


def test_maps_of_a_model_with_one_answer_are_refused(here, capsys):
    assert main(["score", "--model", "position_models:whole", "--data", "x.npz", "--out", "s.csv", "--maps", "m"]) != 0
    assert "nescio explain" in capsys.readouterr().err
    assert not Path("m").exists()


def test_tokens_of_transformers_without_their_padding(here):
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "minister", "said", "no"]
    tokenizer = transformers.BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=16, num_labels=3, id2label={0: "O", 1: "PERSON", 2: "PLACE"},
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForTokenClassification(config).eval()
    model.save_pretrained("kept")
    tokenizer.save_pretrained("kept")
    with open("t.csv", "w", newline="") as file:
        csv.writer(file).writerows([["text"], ["the minister said no"], ["no"]])
    asked = ["--task", "token-classification", "--data", "t.csv", "--x", "text", "--method", "entropy"]
    assert main(["score", "--model", "hf:kept", *asked, "--out", "s.csv", "--batch-size", "2"]) == 0
    alone = tokenizer("no", return_tensors="pt")
    with torch.no_grad():
        p = model(**alone).logits.softmax(-1)
    expected = float(-(p * p.log()).sum(-1).mean())
    table = rows("s.csv")
    assert float(table[1]["entropy"]) == pytest.approx(
        expected, rel=1e-4
    )  # as if it were alone: padding does not count
    assert {row["predicted_class"] for row in table} <= {"O", "PERSON", "PLACE"}


def test_a_task_that_there_is_not_and_one_for_another_source_are_said(here, capsys):
    assert (
        main(
            [
                "score",
                "--model",
                "position_models:segment",
                "--task",
                "token-classification",
                "--data",
                "x.npz",
                "--out",
                "s.csv",
            ]
        )
        != 0
    )
    assert "hf:" in capsys.readouterr().err
