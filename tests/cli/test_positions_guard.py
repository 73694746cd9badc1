"""`nescio guard`, `check`, `report` and `explain` with a segmentation network, and with one that gives boxes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from nescio.cli import main

Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.filterwarnings("ignore:the reference has .* different inputs")
MODEL = """
import torch
from torch import nn

def segment():
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 1))
    return body

def boxes():
    from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn
    torch.manual_seed(0)
    return fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None)
"""


def refusal(capsys, *asked: str) -> str:
    """What a command that ends with 2 says last."""
    capsys.readouterr()
    assert main(list(asked)) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as held:
        return dict(held)


def picture(rng, strange: bool):
    y, x = np.mgrid[0:24, 0:32] / 24
    waves = [0.5 + 0.3 * np.sin(3 * x + 2 * y + rng.uniform(0, 6)) for _ in range(3)]
    values = np.stack(waves, -1) + rng.normal(0, 0.004, (24, 32, 3))
    if strange:
        values[14:, :12] = rng.integers(0, 2, (10, 12, 1))
    return Image.fromarray((255 * values.clip(0, 1)).astype(np.uint8))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("scenes"), np.random.default_rng(0)
    (folder / "scene_models.py").write_text(MODEL)
    for name, count in (("ref", 90), ("new", 4)):
        (folder / name).mkdir()
        for i in range(count):
            picture(rng, name == "new" and i < 2).save(folder / name / f"p{i:03}.png")
    return folder


@pytest.fixture(autouse=True)
def here(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)


@pytest.fixture(scope="module")
def guard(place):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.syspath_prepend(place)
        assert main(["guard", "--model", "scene_models:segment", "--reference", "ref", "--out", "g"]) == 0
    return "g"


def test_a_row_for_each_picture_with_its_part_in_words_and_maps(guard, capsys):
    asked = ["--model", "scene_models:segment", "--data", "new", "--level", "0.12"]
    assert main(["check", "--guard", guard, *asked, "--out", "v.csv", "--maps", "m"]) == 0
    assert "2 of 4 inputs are foreign" in capsys.readouterr().out
    with open("v.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["foreign"] for row in rows] == ["True", "True", "False", "False"]
    assert all("unlike" in row["words"] for row in rows[:2]) and "looks like" in rows[3]["words"]
    for at, row in enumerate(rows):
        kept = arrays(next(Path("m").glob(f"*-{at}.maps.npz")))
        assert kept["p_value"].shape == kept["score"].shape == (24, 32)
        assert (kept["foreign"] == (kept["p_value"] <= 0.12)).all()
        assert float(row["foreign_share"]) == pytest.approx(kept["foreign"].mean())
        with Image.open(next(Path("m").glob(f"*-{at}.maps.png"))) as drawn:
            assert drawn.size[0] > 200
    marked = arrays(next(Path("m").glob("*-0.maps.npz")))["foreign"]
    assert marked[16:22, 2:10].mean() > 3 * marked[:10].mean()


def test_another_guard_takes_the_place_of_one_of_regions(guard, capsys):
    from nescio.specs import guard_record

    assert guard_record(guard).name == "regions.json"
    asked = ["--model", "scene_models:segment", "--reference", "ref", "--out", "again", "--doubt", "entropy"]
    assert main(["guard", *asked]) == 0
    assert "--doubt and --nuisances have no effect" in capsys.readouterr().err
    assert "holds a guard already" in refusal(capsys, "guard", *asked)


def test_a_report_shows_maps_over_the_pictures_with_their_colours(guard, capsys):
    asked = ["--model", "scene_models:segment", "--data", "new", "--guard", guard, "--level", "0.12"]
    assert main(["report", *asked, "--out", "r.html"]) == 0
    page = Path("r.html").read_text()
    assert page.count("How foreign each part is") == 2
    assert page.count('class="scale"') >= 2 + 4 and "mean over" not in page
    assert "The model answers at every position" in page
    assert main(["report", *asked, "--out", "r.json", "--method", "entropy"]) == 0
    result = json.loads(Path("r.json").read_text())
    assert main(["check", "--guard", guard, *asked[:4], *asked[6:], "--out", "same.csv"]) == 0
    with open("same.csv", newline="") as file:
        said = [row["words"] for row in csv.DictReader(file)]
    assert result["inputs"]["guard"]["words"] == said
    again = result["answer"]["command"]["text"]
    assert (
        again == f"nescio check --guard {guard} --model scene_models:segment --level 0.12 --data NEW --out verdicts.csv"
    )
    import scene_models
    import torch

    import nescio

    pictures = []
    for i in range(4):
        with Image.open(f"new/p00{i}.png") as one:
            pictures.append(np.asarray(one))
    pixels = np.stack(pictures)
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
    wanted = nescio.score(scene_models.segment(), x, "entropy").flatten(1).mean(1)
    np.testing.assert_allclose(result["inputs"]["scores"]["entropy"], wanted, rtol=1e-5)
    assert result["examples"]["most"][0]["why"]["form"] == "positions"
    assert "every position" in result["limits"]["left_out"]


def test_explain_says_that_a_map_is_there_already(capsys):
    error = refusal(capsys, "explain", "--model", "scene_models:segment", "--data", "new", "--out", "e")
    assert "answers at every position" in error and "nescio score --maps" in error


@pytest.mark.parametrize("command", [["score", "--data", "new"], ["guard", "--reference", "ref"]])
def test_a_network_for_boxes_is_refused_in_words(command, capsys):
    pytest.importorskip("torchvision")
    name, *rest = command
    error = refusal(capsys, name, "--model", "scene_models:boxes", *rest, "--out", f"b-{name}.csv")
    assert "boxes or masks of objects" in error and "semantic segmentation" in error
