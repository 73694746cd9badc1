"""The comparison with other packages runs from end to end, in miniature, and all that answer give the same answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import nn

pytest.importorskip("torchvision")


@pytest.fixture(scope="module")
def rows(path: None, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    import beside

    from nescio_papers import zoo

    folder = tmp_path_factory.mktemp("beside")
    small = {
        "cnn": (lambda: zoo.small_cnn(1, 12, beside.CLASSES), (1, 12, 12)),
        "normed": (
            lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 10)),
            (1, 6, 6),
        ),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "MODELS", small)
        patch.setenv("OUT", str(folder))
        beside.main(["--batch", "3", "--repeats", "1", "--networks", *small])
    found: list[dict[str, Any]] = json.loads((folder / "beside-cpu.json").read_text())["rows"]
    return found


def test_all_that_answer_agree_with_the_loop(rows: list[dict[str, Any]]) -> None:
    answers = {(row["network"], row["question"], row["way"]): row for row in rows}
    for network in ("cnn", "normed"):
        assert {way for own, _, way in answers if own == network} >= {"forward", "loop", "nescio", "vmap"}
        for question in ("classes", "one", "gradnorm"):
            assert "error" in answers[network, question, "nescio"], answers[network, question, "nescio"]
    measured = [row for row in rows if "error" in row]
    assert max(row["error"] for row in measured) < 1e-3
    assert all(row["seconds"] > 0 and row["forwards"] > 0 for row in rows if "left_out" not in row)


def test_what_cannot_answer_says_why(rows: list[dict[str, Any]], path: None) -> None:
    import beside
    import torch

    def fails() -> Any:
        raise ImportError("no such package")

    bench = beside.Bench("vit", 1, torch.device("cpu"), lambda: 0.0, 1)
    bench.way("one", "other", fails, torch.ones(1))
    assert bench.rows == [
        {"network": "vit", "batch": 1, "question": "one", "way": "other", "left_out": "ImportError: no such package"}
    ]


def test_the_committed_numbers_are_right(path: None) -> None:
    import beside

    rows = json.loads((Path(beside.__file__).parent / "results" / "beside-cpu.json").read_text())["rows"]
    assert "cnn" in {row["network"] for row in rows} <= set(beside.MODELS)
    for row in rows:
        assert "left_out" in row or row["way"] in ("forward", "loop") or row["error"] < 1e-3, row
