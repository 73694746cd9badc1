"""The study of dense outputs: what is pasted where, the network, and a run at the smallest size."""

import json

import numpy as np
import pytest
import torch

from nescio import scores
from nescio_papers.dense import language, network, samples, scenes, segmentation, texts, training
from nescio_papers.dense.network import FCN, UNet
from nescio_papers.dense.scenes import EDGE, Shapes
from nescio_papers.reproduce import render, run

pytestmark = pytest.mark.filterwarnings("ignore:the reference has .* different inputs")
SQUARE = np.zeros((8, 8), np.float32)
SQUARE[2:6, 2:6] = 1.0


def background(seed=0):
    return np.random.default_rng(seed).random((80, 400, 3)).astype(np.float32)


def test_classes_are_where_the_ink_is():
    digits, odd = Shapes(SQUARE[None], np.array([7])), Shapes(SQUARE[None], np.array([0]))
    made = scenes.scenes(30, [background()], "all", digits, 0, odd)
    assert made.x.shape == (30, 3, 64, 64) and made.x.dtype == torch.uint8
    assert set(made.y.unique().tolist()) == {0, 8, EDGE}
    assert (made.y[made.foreign | made.edge] == EDGE).all() and not (made.foreign & made.edge).any()
    sizes = made.foreign.flatten(1).sum(1)
    assert (sizes >= 8 * 8).all() and (sizes <= 15 * 15).all()  # half of 18 to 28 pixels
    inside = made.x.float().movedim(1, -1)
    for i in range(30):
        assert inside[i][made.foreign[i]].std(0).max() < 45  # one colour, but for its edge; the background has 74
    clean = scenes.scenes(30, [background()], "all", digits, 0)
    assert not clean.foreign.any()


def test_strips_share_no_pixel():
    picture = np.zeros((64, 400, 3), np.float32)
    picture[:, :, 0] = np.arange(400) / 400
    blank = Shapes(np.zeros((1, 8, 8), np.float32), np.array([0]))
    reached = {}
    for strip, (low, high) in scenes.STRIPS.items():
        made = scenes.scenes(40, [picture], strip, blank, 1).x[:, 0].double() / 255
        reached[strip] = made.min(), made.max()
        assert low - 0.01 <= reached[strip][0] and reached[strip][1] <= high + 0.01
    assert reached["test"][0] > reached["reference"][1] - 0.01 > reached["train"][1] - 0.02


def test_letters_and_patches():
    draw = np.random.default_rng(0)
    letters, patches = scenes.letters(20, draw), scenes.patches(20, draw, [background()])
    assert letters.ink.shape == patches.ink.shape == (20, 28, 28)
    assert 0.05 < letters.ink.mean() < 0.4 and len({one.tobytes() for one in letters.ink}) > 10
    assert patches.texture is not None and patches.texture.std() > 0.2
    assert set("BDGIOQSZ") & set(scenes.LETTERS) == set()


@pytest.mark.parametrize("kind", ["unet", "fcn"])
def test_a_network_learns_and_depends_on_the_seed_alone(kind, monkeypatch):
    monkeypatch.setattr(network, "LARGER", 2)
    digits = Shapes(SQUARE[None], np.array([7]))
    data = scenes.scenes(16, [background() * 0.2], "all", digits, 0)
    size = samples.Size(0, 6, 4, 0, 0, (0,), 8)
    told: list[str] = []
    before = torch.get_rng_state()
    trained = training.train(kind, data, size, 0, told.append)
    assert torch.equal(torch.get_rng_state(), before) and not trained.training
    assert float(told[-1].split()[-1]) < 0.95 * float(told[0].split()[-1])
    again = training.train(kind, data, size, 0, told.append)
    assert all(torch.equal(a, b) for a, b in zip(trained.parameters(), again.parameters(), strict=True))


def test_a_training_that_was_cut_off_goes_on(tmp_path):
    data = scenes.scenes(16, [background() * 0.2], "all", Shapes(SQUARE[None], np.array([7])), 0)
    size, part = samples.Size(0, 3, 4, 0, 0, (0,), 8), tmp_path / "unet.part"
    whole = training.train("unet", data, size, 0, print)

    def cut(line):
        if "epoch 2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training.train("unet", data, size, 0, cut, part=part)
    told: list[str] = []
    rest = training.train("unet", data, size, 0, told.append, part=part)
    assert len(told) == 2 and "epoch 2" in told[0]
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), rest.parameters(), strict=True))


@pytest.mark.parametrize("bfloat16", [False, True])
def test_a_training_is_ready_in_time(bfloat16, monkeypatch):
    data = scenes.scenes(16, [background() * 0.2], "all", Shapes(SQUARE[None], np.array([7])), 0)
    size = samples.Size(0, 50, 4, 0, 0, (0,), 8)
    clock = iter(range(1000))  # a second a look
    monkeypatch.setattr(training.time, "process_time", lambda: float(next(clock)))
    rates: list[float] = []
    rate = training.Recipe.rate
    monkeypatch.setattr(training.Recipe, "rate", lambda *a: rates.append(rate(*a)) or rates[-1])
    made = training.train("unet", data, size, 0, print, seconds=10.0, bfloat16=bfloat16)
    assert {value.dtype for value in made.parameters()} == {torch.float32}
    assert training.steps(made) == len(rates) == 9
    assert max(rates) > 0.9 * training.RATE and rates[-1] < 0.1 * training.RATE  # the whole cycle in this time


def test_networks_give_logits_of_every_pixel():
    assert UNet(5, 4)(torch.rand(1, 3, 32, 48)).shape == (1, 5, 32, 48)
    assert FCN(5).eval()(torch.rand(1, 3, 32, 48)).shape == (1, 5, 32, 48)
    assert [network.made("fcn", width).larger for width in (1, 4, 16)] == [1, 4, 4]  # small at the smoke scale alone
    assert {training.SIZES["fcn"][scale].width >= 4 for scale in ("small", "quick", "paper")} == {True}


def test_a_network_is_trained_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(samples.UNET, "smoke", samples.Size(8, 1, 2, 0, 0, (0,), 4))
    for count in (1, 1):
        training.main(["unet", "--scale", "smoke", "--work", str(tmp_path), "--device", "cpu"])
        kept = list(tmp_path.rglob("*.*"))
        assert len(kept) == count and kept[0].name == "unet-0.pt"
    said = capsys.readouterr()
    assert said.err.count("epoch") == 1 and said.out.count("unet 0:") == 2


def test_photographs_come_from_the_folder_of_data_first(tmp_path, monkeypatch):
    from PIL import Image

    (tmp_path / "photographs").mkdir()
    Image.new("RGB", (4, 2), (255, 0, 0)).save(tmp_path / "photographs" / "china.jpg")
    monkeypatch.setenv("NESCIO_DATA", str(tmp_path))
    assert scenes.photographs(["china.jpg"])["china.jpg"].shape == (2, 4, 3)
    assert scenes.photographs(["flower.jpg"])["flower.jpg"].shape[0] > 100


def test_every_score_that_gives_a_map_takes_part():
    assert {"entropy", "energy", "gen", "max_probability", "max_logit", "exgrad", "regrad", "evengrad"} <= set(
        segmentation.METHODS
    )
    assert "knn" not in segmentation.METHODS and "negrad" not in segmentation.METHODS
    assert all(getattr(method, "samples", 0) == 0 for method in segmentation.METHODS.values())


@pytest.fixture
def few(monkeypatch):
    chosen = {name: scores.get(name) for name in ("entropy", "exgrad", "energy")}
    monkeypatch.setattr(language, "METHODS", chosen)
    rows = tuple(row for row in segmentation.SCORES if row.method in chosen)
    monkeypatch.setattr(language, "SCORES", rows)


@pytest.mark.parametrize("name", ["segmentation", "segmentation-fcn"])
def test_segmentation_fills_its_tables_at_the_smoke_scale(name, tmp_path):
    found = run(name, "smoke", work=tmp_path, device="cpu")
    parts = {part["title"].split(":")[0].split(",")[0]: part["cells"] for part in found["parts"]}
    assert all(cells and all("metrics" in c or "reason" in c for c in cells) for cells in parts.values())
    rows = {(c["row"], c["column"]): c["metrics"] for c in parts["Foreign pixels"]}
    assert {column for _, column in rows} == set(segmentation.OBJECTS)
    assert {row for row, _ in rows} == {*segmentation.METHODS, *segmentation.GUARDS}
    assert all(0 <= v <= 1 for metrics in rows.values() for v in metrics.values())
    assert found["figures"][0]["image"].startswith("<svg")
    assert json.dumps(found, allow_nan=False) and "Wrong pixels" in render([found])
    again = run(name, "smoke", work=tmp_path, device="cpu")  # from what is kept
    assert [p["cells"] for p in again["parts"]] == [p["cells"] for p in found["parts"]]


def test_flags_are_counted_inside_the_object():
    class Said:
        whole = type("W", (), {"foreign": lambda self, level: torch.tensor([True, False])})()

        def unknown(self, level):
            return torch.tensor([True, True])

        def foreign(self, level, size):
            flags = torch.zeros(2, *size, dtype=torch.bool)
            flags[0, :4] = True
            return flags

    inside = torch.zeros(2, 64, 64, dtype=torch.bool)
    inside[0, :8, :2] = True
    shares = segmentation._flagged({name: Said() for name in segmentation.GUARDS}, inside)
    assert list(shares) == [row.label for row in segmentation.FLAGGED]
    assert list(shares.values()) == [1.0, 1.0, 0.5, 0.5, 0.5]
    shares = segmentation._flagged({name: Said() for name in segmentation.GUARDS}, None)
    assert list(shares.values())[-1] == 4 / 64 / 2


def test_quality_by_hand():
    y = torch.tensor([0, 0, 1, 1, EDGE])
    right, iou = segmentation._quality(torch.tensor([0, 1, 1, 1, 3]), y)
    assert right == 0.75 and iou == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_texts():
    found = texts.texts(30)
    assert found.training and found.docstrings and not set(found.training) & set(found.docstrings) - {""}
    lines = texts.windows(found.docstrings, 40, 5, 0)
    assert [len(line) for line in lines] == [40] * 5 and texts.tokens(lines).shape == (5, 40)
    assert all(any(line in piece for piece in found.docstrings) for line in lines)
    mixed, words = texts.shuffled_characters(lines, 0), texts.shuffled_words(lines, 0)
    assert [sorted(a) for a in mixed] == [sorted(a) for a in lines] and mixed != lines
    assert [sorted(a.split(" ")) for a in words] == [sorted(a.split(" ")) for a in lines] and words != lines
    assert texts.cleaned("naïve\t∂x") == "navex"


def test_a_writer_sees_nothing_of_what_comes():
    torch.manual_seed(0)
    writer = language.Writer(16).eval()
    ids = torch.randint(96, (2, 20))
    other = ids.clone()
    other[:, 12:] = 5
    with torch.no_grad():
        a, b = writer(ids), writer(other)
    torch.testing.assert_close(a[:, :12], b[:, :12], rtol=1e-5, atol=1e-5)
    assert (a[:, 12:] - b[:, 12:]).abs().max() > 1e-3


def test_language_fills_its_tables(tmp_path, monkeypatch, few):
    monkeypatch.setitem(language.SIZES, "smoke", language.Size(8, 4, 8, 6, 2, (0,), 30))
    found = run("language", "smoke", work=tmp_path, device="cpu")
    wrong, apart = (part["cells"] for part in found["parts"])
    assert {c["row"] for c in wrong} == {"entropy", "exgrad", "energy"}
    assert {c["row"] for c in apart} >= {"nll", "exgrad, whole network", "regrad, whole network"}
    assert {c["column"] for c in apart} == set(language.CHANGES)
    assert all(0 <= c["metrics"]["auroc"] <= 1 for c in [*wrong, *apart])
