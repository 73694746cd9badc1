"""`nescio explain`: pictures, tables and texts in; pictures of their doubt, raw maps and a table out."""

import csv
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import nescio
from nescio import attribution, plots, posteriors, zoo
from nescio.batch.map_files import MapFiles
from nescio.cli import explain as command
from nescio.cli import main
from tests.cli.helpers import refusal

KINDS = ("epistemic", "aleatoric", "total")
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
MODELS = """
import torch
from torch import nn

import nescio


def seeded(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make()


def colour():
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(),
            nn.Linear(8, 3),
        )
    )


def normalised():
    return nescio.Classifier(colour(), preprocess=lambda x: (x - 0.5) / 0.25)


def table():
    return seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))


def many():
    return seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 30)))


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(9, 6), nn.Linear(6, 2)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(-1)
        return self.last(((self.words(input_ids).relu() * mask).sum(1) / mask.sum(1)))


def text():
    return seeded(Text)


def tokens():
    return seeded(lambda: nn.Sequential(nn.Embedding(9, 6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "explained_models.py").write_text(MODELS)
    yield tmp_path
    sys.modules.pop("explained_models", None)


@pytest.fixture
def blank(monkeypatch):
    """Empty pictures, for tests that do not look at them: drawing is what takes the time."""
    monkeypatch.setattr(plots, "maps", lambda *arguments, **settings: Figure())


def made(name):
    return nescio.models.load(f"explained_models:{name}")


def explain(*arguments, model="colour", data="photos", out="maps"):
    return main(["explain", "--model", f"explained_models:{model}", "--data", data, "--out", out, *arguments])


def photo(path, high=9, wide=12, seed=0):
    """A picture whose pixels are random; gives them as they should be read, [3, H, W] in [0, 1]."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (high, wide, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255


def rows(out="maps"):
    with Path(out, "maps.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_of_many_classes_logits_are_drawn_and_the_error_is_told(folder, capsys):
    np.savez("x.npz", x=np.random.default_rng(0).random((2, 4), np.float32))
    assert explain(model="many", data="x.npz") == 0
    out = capsys.readouterr().out
    errors = [float(row[f"error_{kind}"]) for row in rows() for kind in KINDS]
    assert all(0 < error < 0.5 for error in errors)
    share = f"{100 * np.mean(errors):.2g} %"
    assert f"Each map is made of 16 logits that were drawn: about {share} of it lies elsewhere than with all;" in out
    assert all(abs(float(row["residual_total"])) < 1e-5 * float(row["total"]) for row in rows())
    assert explain("--set", "classes=exact", model="many", data="x.npz") == 0
    assert "drawn" not in capsys.readouterr().out and "error_total" not in rows()[0]
    assert "expected classes= to be 'auto'" in refusal(
        capsys, lambda: explain("--set", "classes=few", model="many", data="x.npz")
    )


@pytest.mark.parametrize("kind", ["total", "aleatoric"])
def test_of_many_inputs_the_most_doubtful_are_drawn(folder, capsys, monkeypatch, kind):
    monkeypatch.setattr(plots, "feature_bars", lambda *arguments, **settings: Figure())
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    np.savez("x.npz", x=x)
    doubt = nescio.decompose(posteriors.InsertedDropout(made("table"), samples=10).predict(torch.from_numpy(x)))
    order = getattr(doubt, kind).argsort(descending=True).tolist()
    chosen = ["--of", kind] if kind != "total" else []
    assert explain(*chosen, "--top", "4", "--batch-size", "8", model="table", data="x.npz") == 0
    assert [row["name"] for row in rows()] == [f"x.npz[{at}]" for at in order[:4]]
    assert len(os.listdir("maps")) == 9
    out = capsys.readouterr().out
    assert "Explained 4 of 30 inputs" in out
    assert f"the most doubtful by their {kind} uncertainty, the first in maps.csv the most of all." in out
    assert "--top 8 draws more of them, --top all draws every input." in out


def test_twenty_are_drawn_unless_all_are_asked_for(folder, capsys, monkeypatch):
    monkeypatch.setattr(plots, "feature_bars", lambda *arguments, **settings: Figure())
    np.savez("x.npz", x=np.random.default_rng(0).normal(size=(22, 4)).astype(np.float32))
    assert explain(model="table", data="x.npz") == 0
    assert len(rows()) == 20 and "--top 40 draws more" in capsys.readouterr().out
    assert explain("--top", "all", model="table", data="x.npz", out="every") == 0
    assert [row["name"] for row in rows("every")] == [f"x.npz[{at}]" for at in range(22)]  # in their order
    assert "--top" not in capsys.readouterr().out
    error = refusal(capsys, lambda: explain("--top", "0", model="table", data="x.npz"))
    assert "of at least 1, got 0; give a number, or all" in error


def test_a_folder_of_pictures(folder, capsys):
    pictures = [photo("photos/a.png"), photo("photos/cats/a.png", seed=1), photo("photos/cats/b.bmp", seed=2)]
    Path("photos/notes.txt").write_text("no picture")
    assert explain("--batch-size", "2", "--set", "tau2=0.2") == 0
    found = rows()
    assert [row["name"] for row in found] == ["a.png", "cats/a.png", "cats/b.bmp"]
    assert sorted(os.listdir("maps")) == sorted(
        [*(f"{stem}.maps.{kind}" for stem in ("a", "cats-a", "cats-b") for kind in ("png", "npz")), "maps.csv"]
    )
    posterior = posteriors.InsertedDropout(made("colour"), samples=10)
    x = torch.stack(pictures)
    p = posterior.predict(x)
    doubt = nescio.decompose(p)
    for kind in KINDS:
        expected = nescio.explain(posterior, x, of=kind, tau2=0.2)
        assert [float(row[kind]) for row in found] == pytest.approx(getattr(doubt, kind).tolist(), rel=1e-6)
        for row, one, sum_ in zip(found, expected.maps, expected.uncertainty, strict=True):
            with np.load(Path("maps", row["maps"])) as held:
                assert set(held.files) == {*KINDS, "probabilities"}
                assert held[kind] == pytest.approx(one.numpy(), rel=1e-4, abs=1e-9)
                assert held[kind].sum() - float(row[kind]) == pytest.approx(float(row[f"residual_{kind}"]), abs=1e-12)
            assert abs(float(row[f"residual_{kind}"])) <= 1e-6 * float(sum_)
    assert [int(row["predicted"]) for row in found] == p.mean(0).argmax(1).tolist()
    assert [float(row["probability"]) for row in found] == pytest.approx(p.mean(0).amax(1).tolist(), rel=1e-6)
    for row in found:
        assert opened(Path("maps", row["picture"])).size[0] > 1000  # four panels wide
    out = capsys.readouterr().out
    assert "Explained 3 of 3 inputs: epistemic, aleatoric, total uncertainty of\ninserted dropout (rate 0.4)" in out
    assert "(10 members), by UA-Backprop over fullgrad (tau1 = 0.05, tau2 = 0.2)." in out


def opened(path):
    with Image.open(path) as image:
        image.load()
        return image


def test_a_second_run_replaces_the_first_and_none_writes_among_its_inputs(folder, capsys, blank):
    photo("photos/a.png")
    assert explain("--of", "total", data="photos/a.png", out="photos") == 0  # beside the input, and not over it
    assert sorted(os.listdir("photos")) == ["a.maps.npz", "a.maps.png", "a.png", "maps.csv"]
    assert opened("photos/a.png").size == (12, 9)
    before = Path("photos/maps.csv").read_text()
    assert explain("--of", "total", data="photos/a.png", out="photos") == 0
    assert Path("photos/maps.csv").read_text() == before
    capsys.readouterr()
    for out in ("photos", "photos/maps"):
        error = refusal(capsys, lambda out=out: explain(out=out))
        assert "expected a folder that is not inside of photos" in error


def test_pictures_of_one_name_do_not_meet(folder, blank):
    for name in ("a.png", "a.bmp", "A.gif", "a-2.png", "q/a.png", "q-A.png"):
        photo(f"photos/{name}")
    assert explain("--of", "total") == 0
    stems = [row["maps"].removesuffix(".maps.npz") for row in rows()]
    assert len({stem.casefold() for stem in stems}) == 6
    assert all(Path("maps", row["picture"]).exists() for row in rows())


def broken(path):
    photo(path, 40, 50)
    content = Path(path).read_bytes()
    Path(path).write_bytes(content[: len(content) // 2])


def test_pictures_that_cannot_be_used_are_named_counted_and_left_out(folder, capsys, blank):
    photo("photos/b.png")
    broken("photos/a.png")
    photo("photos/c.png", 10, 12)
    Path("photos/d.jpg").write_bytes(b"this is no picture")
    assert explain("--of", "total") == 0
    assert [row["name"] for row in rows()] == ["b.png"]
    out, error = capsys.readouterr()
    assert "3 of 4 rows could not be used and were left out" in error
    assert [line.split()[0] for line in error.splitlines() if line.startswith("  ")] == ["a.png", "c.png", "d.jpg"]
    assert "expected [3, 9, 12] of float32 as the first row has, got [3, 10, 12]" in error
    assert "Explained 1 of 4" in out
    assert explain("--of", "total", "--size", "9x12", out="sized") == 0
    assert [row["name"] for row in rows("sized")] == ["b.png", "c.png"]
    capsys.readouterr()
    assert explain("--on-error", "stop", "--size", "9x12", out="strict") == 2
    assert "cannot use a.png" in capsys.readouterr().err
    assert not Path("strict").exists()
    assert explain(data="photos/d.jpg", out="one") == 2
    assert "it is not a picture" in capsys.readouterr().err
    for name in ("b", "c"):
        os.remove(f"photos/{name}.png")
    assert explain(out="none") == 2
    assert "none of the 2 rows can be used" in capsys.readouterr().err
    assert not Path("none").exists()


def test_the_pictures_are_given_as_they_are_and_a_classifier_normalises_them(folder, blank):
    x = photo("photos/a.png")[None]
    assert explain("--of", "total", model="normalised", data="photos/a.png") == 0
    inside = nescio.explain(posteriors.InsertedDropout(made("normalised"), samples=10), x, of="total")
    assert float(rows()[0]["total"]) == pytest.approx(float(inside.uncertainty), rel=1e-6)


def test_the_bundled_digits_with_a_saved_ensemble(folder, monkeypatch):
    digits = nescio.data.digits()
    (folder / "explained_models.py").write_text(
        "from nescio import zoo\n\n\ndef build():\n    return zoo.small_cnn(1, 8, 10, 3, seed=9)\n"
    )
    ensemble = posteriors.DeepEnsemble([zoo.small_cnn(1, 8, 10, 3, seed=seed) for seed in range(2)])
    ensemble.save("ensemble")
    np.savez("x.npz", x=digits.held_out.x[:3].numpy())
    Path("names.txt").write_text("\n".join(WORDS) + "\n")
    figures = caught(monkeypatch)
    chosen = [
        "--posterior",
        "ensemble",
        "--class-names",
        "names.txt",
        "--path",
        "gradient",
        "--of",
        "epistemic",
        "total",
    ]
    assert explain(*chosen, model="build", data="x.npz") == 0
    found = rows()
    assert [row["name"] for row in found] == [f"x.npz[{at}]" for at in range(3)]
    assert found[2]["maps"] == "x.npz-2.maps.npz"
    assert "residual_aleatoric" not in found[0]
    expected = nescio.explain(ensemble, digits.held_out.x[:3], of="epistemic", path="gradient")
    assert [float(row["epistemic"]) for row in found] == pytest.approx(expected.uncertainty.tolist(), rel=1e-6)
    best = ensemble.predict(digits.held_out.x[:3]).mean(0).argmax(1)
    assert [row["class"] for row in found] == [WORDS[at] for at in best]
    title = figures[2].get_suptitle().replace("\n", " ")
    assert title.startswith(f"x.npz[2]: the answer is {found[2]['class']}, with a probability of ")
    assert f"Doubt: {float(found[2]['total']):.3g} of at most 2.3 nats: " in title
    assert f"{float(found[2]['epistemic']):.3g} that more training data could remove (epistemic)" in title
    assert f"epistemic: of the model\n{float(found[2]['epistemic']):.3g} nats" == figures[2].axes[1].get_title()
    assert np.array_equal(figures[2].axes[0].images[0].get_array(), digits.held_out.x[2, 0])


def caught(monkeypatch):
    """The figures that are saved."""
    figures, save = [], Figure.savefig

    def keep(figure, *arguments, **settings):
        figures.append(figure)
        save(figure, *arguments, **{**settings, "dpi": 20})

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def test_features_are_bars_with_their_names_and_values(folder, monkeypatch):
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    np.savez("x.npz", x=x)
    Path("columns.txt").write_text("age\nheight\nweight\nincome\n")
    figures = caught(monkeypatch)
    assert explain("--names", "columns.txt", model="table", data="x.npz") == 0
    labels = {label.get_text() for label in figures[1].axes[0].get_yticklabels()}
    assert labels == {f"{name} = {x[1, at]:.4g}" for at, name in enumerate(("age", "height", "weight", "income"))}
    with np.load("maps/x.npz-1.maps.npz") as held:
        assert held["total"].shape == (4,)
        lengths = sorted(bar.get_width() for bar in figures[1].axes[0].containers[2])
        assert lengths == pytest.approx(sorted(held["total"]))


def test_a_laplace_posterior_is_fitted_to_training_data(folder, capsys):
    draw = np.random.default_rng(0)
    np.savez("x.npz", x=draw.normal(size=(2, 4)).astype(np.float32))
    np.savez("train.npz", x=draw.normal(size=(20, 4)).astype(np.float32), y=np.arange(20) % 3)
    assert explain("--fit", "train.npz", model="table", data="x.npz") == 0
    assert "a Laplace posterior of the last layer around" in capsys.readouterr().out


def test_columns_of_a_table_are_named_by_their_heads(folder, monkeypatch):
    Path("x.csv").write_text("id,age,height,weight,income\nann,1,2,3,4\nbob,0.5,0,0,7\n")
    figures = caught(monkeypatch)
    assert explain("--of", "total", model="table", data="x.csv") == 0
    assert [row["maps"] for row in rows()] == ["ann.maps.npz", "bob.maps.npz"]
    labels = {label.get_text() for label in figures[1].axes[0].get_yticklabels()}
    assert labels == {"age = 0.5", "height = 0", "weight = 0", "income = 7"}


def test_tokens_are_named_with_their_places(folder, monkeypatch, capsys):
    np.savez("x.npz", x=np.array([[3, 5, 3, 0]]))
    Path("words.txt").write_text("pad a b the d film\n".replace(" ", "\n"))
    figures = caught(monkeypatch)
    assert explain("--names", "words.txt", "--path", "gradient", model="tokens", data="x.npz") == 0
    labels = {label.get_text() for label in figures[0].axes[0].get_yticklabels()}
    assert labels == {"0: the", "1: film", "2: the", "3: pad"}
    Path("words.txt").write_text("pad\n")
    capsys.readouterr()
    assert "at least 4 words, one for each token, but the file has 1" in refusal(
        capsys, lambda: explain("--names", "words.txt", model="tokens", data="x.npz", out="short")
    )


def test_padding_of_a_text_is_no_word(folder, monkeypatch):
    figures = caught(monkeypatch)
    posterior = posteriors.InsertedDropout(made("text"), samples=3)
    method = attribution.UABackprop(path="gradient")
    work = MapFiles(posterior, method, folder / "maps", names=lambda index: f"w{index}")
    x = {"input_ids": torch.tensor([[3, 5, 3, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 0]])}
    assert len(list(work.explain(["text"], x))) == 1
    labels = {label.get_text() for label in figures[0].axes[0].get_yticklabels()}
    assert labels == {"0: w3", "1: w5", "2: w3"}
    with np.load("maps/text.maps.npz") as held:
        assert held["total"].shape == (4,)
        assert held["total"][3] == 0


def test_one_prediction_has_no_epistemic_part(folder, capsys):
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    posteriors.Deterministic(made("table")).save("single")
    assert explain("--posterior", "single", model="table", data="x.npz") == 0
    assert "there is no epistemic part" in capsys.readouterr().out
    with np.load("maps/x.npz-0.maps.npz") as held:
        assert sorted(held.files) == ["probabilities", "total"]
    error = refusal(
        capsys, lambda: explain("--posterior", "single", "--of", "epistemic", model="table", data="x.npz", out="e")
    )
    assert "at least 2 members" in error


def test_other_methods_and_dimensions(folder, monkeypatch):
    x = np.random.default_rng(0).random((2, 3, 9, 8), dtype=np.float32)
    np.savez("x.npz", x=x)
    figures = caught(monkeypatch)
    assert explain("--method", "integrated_gradients", "--set", "steps=3", "--of", "total", data="x.npz") == 0
    with np.load("maps/x.npz-1.maps.npz") as held:
        expected = nescio.explain(made("colour"), torch.from_numpy(x), "integrated_gradients", of="total", steps=3)
        assert held["total"] == pytest.approx(expected.maps[1].numpy(), rel=1e-3, abs=1e-7)
    assert explain("--method", "gradient", "--of", "total", data="x.npz", out="plain") == 0
    assert figures[-1].axes[1].child_axes[0].get_ylabel() == "units of gradient per pixel"
    assert explain("--channels", "none", "--of", "total", data="x.npz", out="flat") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "expected a data file at nowhere, but there is none"),
        (["--data", "empty"], "expected pictures (.jpg"),
        (["--data", "none.npz"], "expected at least one input, but none.npz has none"),
        (["--data", "x.npz", "--out", "x.npz"], "--out: expected a folder, but x.npz is a file"),
        (["--data", "x.npz", "--out", "no/where"], "does not exist"),
        (["--data", "x.npz", "--names", "short.txt"], "--names: expected 4, one for each feature, but the file has 2"),
        (["--data", "x.npz", "--class-names", "short.txt"], "--class-names: expected 3 names"),
        (["--data", "x.npz", "--class-names", "nowhere.txt"], "a name on each line, but cannot read nowhere.txt"),
        (["--data", "x.npz", "--set", "tau3=1"], "expected settings of 'ua_backprop', got 'tau3'"),
        (["--data", "x.npz", "--set", "clue.steps=1"], "--set: expected settings of ua_backprop, but got one of clue"),
        (["--data", "x.npz", "--method", "gradient", "--path", "gradcam"], "expected settings of 'gradient'"),
        (["--data", "x.npz", "--method", "clue"], "VAE"),
        (["--data", "x.npz", "--posterior", "nowhere"], "posterior"),
        (
            ["--data", "x.npz", "--posterior", "p", "--fit", "x.npz"],
            "--posterior: expected it without --fit and --base",
        ),
        (["--data", "x.npz", "--of", "doubt"], "invalid choice: 'doubt'"),
        (
            ["--data", "x.npz", "--channels", "0"],
            "of at least 1, got 0; give a number, auto or none",
        ),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(folder, capsys, arguments, message):
    np.savez("x.npz", x=np.ones((1, 4), np.float32))
    np.savez("none.npz", x=np.ones((0, 4), np.float32))
    Path("empty").mkdir()
    Path("short.txt").write_text("a\nb\n")
    given = ["--out", "maps"] if "--out" not in arguments else []
    error = refusal(capsys, lambda: main(["explain", "--model", "explained_models:table", *arguments, *given]))
    assert message in error
    assert not Path("maps").exists()


def test_an_interrupt_leaves_whole_files_and_their_table(folder, capsys, monkeypatch, blank):
    for at in range(3):
        photo(f"photos/{at}.png", seed=at)
    save, calls = Figure.savefig, []

    def interrupted(figure, target, **settings):
        calls.append(target)
        if len(calls) == 3:
            Path(target).write_bytes(b"half of a pict")
            raise KeyboardInterrupt
        save(figure, target, **settings)

    monkeypatch.setattr(Figure, "savefig", interrupted)
    assert explain("--of", "total") == 130
    assert capsys.readouterr().err.endswith("nescio: interrupted; 2 of 3 inputs are done, in maps\n")
    assert [row["name"] for row in rows()] == ["0.png", "1.png"]
    left = sorted(os.listdir("maps"))
    assert left == sorted(
        [*(f"{at}.maps.{kind}" for at in range(2) for kind in ("npz", "png")), "2.maps.npz", "maps.csv"]
    )
    with np.load("maps/2.maps.npz") as held:
        assert held["total"].shape == (9, 12)


def test_a_bar_counts_the_inputs(folder, monkeypatch, blank):
    for at in range(3):
        photo(f"photos/{at}.png", seed=at)
    moved = []

    class Counted:
        def __enter__(self):
            return self

        def __exit__(self, *rest):
            return None

        def update(self, n):
            moved.append(n)

    monkeypatch.setattr("nescio.progress.bar", lambda total, **settings: moved.append(-total) or Counted())
    assert explain("--of", "total", "--batch-size", "2") == 0
    assert moved == [-3, 1, 1, 1]


def test_help_names_what_there_is(folder, capsys):
    assert set(command.METHODS) == set(attribution.METHODS)
    assert command.KINDS == attribution.uncertainty.KINDS
    assert set(command.PATHS) == set(attribution.logit_maps.PATHS)
    with pytest.raises(SystemExit) as stop:
        main(["explain", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "NAME.maps.png" in text
    assert "default: 32" in text
    assert all(len(line) <= 120 for line in command.EXAMPLES.splitlines())
