"""What people give: pictures, texts and numbers, good and bad; and desks of any model."""

import io
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from nescio import decide, scores
from nescio.app import Backend, bundled, doubt_scale, opened
from nescio.app.policies import NONE
from nescio.data.sources import open_data
from nescio.guard import Guard
from nescio.models import Classifier
from nescio.models.sources import Numbers, Source
from nescio.posteriors import DeepEnsemble, Deterministic
from nescio.serve import bundled as service
from nescio.serve.engine import Engine
from nescio.types import InputError


def picture(file: Path, mode: str = "RGB", size: tuple[int, int] = (8, 8)) -> Path:
    Image.new(mode, size).save(file)
    return file


def said(answers) -> str:
    with pytest.raises(InputError) as info:
        list(answers())
    return str(info.value)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK", "1"])
def test_any_channels_of_a_picture_become_those_of_the_model(backend: Backend, tmp_path: Path, mode: str) -> None:
    file = picture(tmp_path / ("x.tif" if mode == "CMYK" else "x.png"), mode, (30, 20))
    first = next(backend.of_picture(file))
    assert first.picture is not None
    assert first.picture.shape == (1, 8, 8)
    assert first.maps is None


def test_first_the_answer_then_the_maps(backend: Backend) -> None:
    fresh = replace(backend)
    first, last = fresh.of_example(1)
    assert first.maps is None
    assert last.maps is not None
    assert list(last.maps.parts) == ["total", "aleatoric", "epistemic"]
    assert replace(last, maps=None) == first
    assert list(fresh.of_example(1)) == [last]  # what was made once comes whole
    assert next(fresh.of_example(0)).maps is None  # and is of this example alone
    assert len(list(replace(fresh).of_example(1))) == 2  # and of this backend


def test_what_is_no_picture_is_refused_in_words(backend: Backend, tmp_path: Path) -> None:
    text = tmp_path / "x.png"
    text.write_text("hello")
    assert said(lambda: backend.of_picture(text)).startswith("expected a picture (PNG, JPEG")
    assert "5 bytes of something else" in said(lambda: backend.of_picture(text))
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(whole, "PNG")
    text.write_bytes(whole.getvalue()[:2000])
    assert "damaged" in said(lambda: backend.of_picture(text))
    assert said(lambda: backend.of_picture(None)) == "expected a picture, got none; drop one here, or choose an example"
    assert "it cannot be read" in said(lambda: backend.of_picture(tmp_path / "nothing.png"))


def test_what_is_too_large_is_refused_before_it_is_read(backend: Backend, tmp_path: Path) -> None:
    assert "expected at most 25000000 pixels" in said(
        lambda: backend.of_picture(picture(tmp_path / "x.png", "1", (6000, 5000)))
    )
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.truncate(10_000_001)
    assert (
        said(lambda: backend.of_picture(large)) == "expected a file of at most 10 MB, got a larger one; save it smaller"
    )
    assert "got a larger one" in said(lambda: backend.of_picture("/dev/zero"))


def test_an_example_that_is_not_there(backend: Backend) -> None:
    assert said(lambda: backend.of_example(2)) == "expected an example from 0 to 1, got 2; load the page again"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> tuple[Source, Path]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    file = tmp_path_factory.mktemp("data") / "x.csv"
    x = np.random.default_rng(0).normal(size=(60, 3)).round(3)
    lines = [",".join(map(str, [*row, at % 2])) for at, row in enumerate(x)]
    file.write_text("\n".join(["tall,wide,deep,label", *lines]))
    return Source(Classifier.of(model, None), Numbers(), "a table", ("no", "yes")), file


def guard(source: Source) -> Guard:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a small reference
        x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        return Guard(source.model).fit(x, progress=False)


def test_numbers_of_a_table(numbers: tuple[Source, Path]) -> None:
    source, file = numbers
    rows = open_data(file, preprocess=source.preprocess, x=["tall", "wide", "deep"], label="label", classes=("0", "1"))
    backend = opened(source, rows, rows, guard=guard(source), most=40, progress=False)
    assert backend.kind == "numbers"
    assert backend.names == ("tall", "wide", "deep")
    assert len(backend.examples) == 12
    assert backend.scale is not None
    assert len(backend.scale) == 40
    assert backend.notes == ()
    assert list(backend.levels) == ["9 % of known inputs", "10 % of known inputs", "20 % of known inputs"]
    assert (backend.level(None), backend.level("20 % of known inputs"), backend.level("nonsense")) == (0.09, 0.2, 0.09)
    shown = {one.text for one in backend.examples}
    *_, last = backend.of_text(" 0.1; 2,-3 ")
    assert last.maps is not None
    assert last.maps.names == ("tall", "wide", "deep")
    assert [one.name for one in last.doubts] == ["total"]  # nothing was fitted or trained that could tell it apart
    assert last.verdict is not None
    assert last.answers[0].name in ("no", "yes")
    assert len(shown) == 12
    assert "expected finite numbers with commas" in said(lambda: backend.of_text("one, two"))
    assert "expected finite numbers with commas" in said(lambda: backend.of_text("1, nan, 2"))
    assert "expected an input of shape [3], as known inputs have, got [2]" in said(lambda: backend.of_text("1, 2"))
    assert "expected a text, got none" in said(lambda: backend.of_text(" "))
    assert "expected at most 20000 characters" in said(lambda: backend.of_text("1," * 10001))


def test_without_a_reference_there_is_no_verdict_and_no_rule(numbers: tuple[Source, Path]) -> None:
    source, file = numbers
    rows = open_data(file, preprocess=source.preprocess, x=["tall", "wide", "deep"], label="label", classes=("0", "1"))
    backend = opened(source, rows, methods=["entropy"])
    assert (backend.scale, backend.levels, backend.level(None)) == (None, {}, None)
    assert backend.policies.names == [NONE]
    found = next(backend.of_example(0))
    assert found.verdict is None
    assert backend.ruling(found, None, NONE, None) is None


def test_few_known_inputs_give_no_scale(numbers: tuple[Source, Path]) -> None:
    source, file = numbers
    rows = open_data(file, preprocess=source.preprocess, x=["tall", "wide", "deep"], label=None)
    backend = opened(source, rows, rows, methods=["entropy"], most=5, progress=False)
    assert backend.scale is None
    assert backend.policies.names == [NONE]


def test_a_rule_says_nothing_of_a_foreign_input(numbers: tuple[Source, Path]) -> None:
    source, _ = numbers
    given = decide.quantile(np.arange(1.0, 41), 0.9, about={"score": "entropy"})  # accepts everything
    backend = opened(source, methods=["entropy"], policy=("mine", given), guard=guard(source))
    known, foreign = (next(backend.of_text(text)) for text in ("0.1, 0.2, 0.1", "90, -90, 90"))
    first, second = (backend.ruling(found, None, "mine", None) for found in (known, foreign))
    assert first is not None and second is not None
    assert (first.accepted, second.accepted) == (True, False)
    assert "this is foreign" in second.text


def test_a_distribution_and_a_policy_with_its_own_score(numbers: tuple[Source, Path], networks) -> None:
    given = decide.quantile(np.arange(1.0, 41), 0.9, about={"score": "max_probability"})
    source = Source(DeepEnsemble(networks), None, "four", None)
    backend = opened(source, methods=["entropy"], policy=("mine", given))
    assert list(backend.engine.methods) == ["entropy", "max_probability"]
    found = next(backend.of_row(torch.rand(1, 8, 8)))
    assert found.samples == 4
    ruling = backend.ruling(found, None, "mine", "entropy")
    assert ruling is not None and ruling.accepted
    assert list(opened(source).engine.methods) == ["gen", "mutual_information", "entropy", "max_probability"]


def test_a_network_that_takes_no_posterior_has_its_total_doubt() -> None:
    class Fixed(nn.Module):
        def forward(self, x):
            return torch.stack([x.sum(1), -x.sum(1)], 1)

    data = (torch.randn(25, 3), torch.arange(25) % 2)
    backend = opened(
        Source(Classifier.of(Fixed().eval(), None), None, "fixed", None), training=data, methods=["entropy"]
    )
    assert backend.notes[0].startswith("Doubt is of one kind alone")
    first, last = backend.of_row(torch.randn(3))
    assert [one.name for one in first.doubts] == ["total"]
    assert last.maps is not None


def test_methods_that_learn_need_training_data(numbers: tuple[Source, Path]) -> None:
    source, _ = numbers
    with pytest.raises(InputError, match="expected training data for 'knn', got none; name them with --fit"):
        opened(source, methods=["knn"])
    data = (torch.randn(60, 3), torch.arange(60) % 2)
    backend = opened(source, training=data, methods=["knn", "entropy"])
    assert "a Laplace posterior" in backend.notes[0]
    assert {one.name for one in next(backend.of_text("1, 2, 3")).methods} == {"knn", "entropy"}
    nameless = opened(replace(source, classes=None), methods=["entropy"])
    assert nameless.notes == ("The classes have no names here; --class-names FILE gives them.",)


def test_the_bundled_digits_are_measured_once(engine: Engine, tmp_path: Path, monkeypatch) -> None:
    made = Engine(engine.source, ["entropy"], posterior=Deterministic(engine.source.model), guard=engine.guard)
    monkeypatch.setattr(service, "bundled", lambda *given, **more: made)
    backend = bundled(["entropy", "knn"], tmp_path, known=40, progress=False)
    assert backend.scale is not None
    assert len(backend.scale) == 40
    assert backend.scale.known == "the digits it knows"
    assert [one.name for one in backend.examples][:10] == [f"digit {digit}" for digit in range(10)]
    assert {"a letter", "a photo", "noise", "nothing"} == {one.name for one in backend.examples[10:]}
    assert backend.engine.guard is engine.guard
    monkeypatch.setattr(doubt_scale, "measured", None)  # cannot be called again
    again = bundled(["entropy", "knn"], tmp_path, known=40, progress=False)
    assert again.scale is not None
    assert np.array_equal(again.scale.values["knn"], backend.scale.values["knn"])
    with pytest.raises(TypeError):
        bundled(["energy"], tmp_path, known=40, progress=False)  # of other methods nothing is kept


@pytest.mark.slow
def test_the_bundled_digits_themselves(tmp_path: Path) -> None:
    backend = bundled(None, tmp_path, progress=False)
    assert backend.scale is not None
    noise = next(place for place, one in enumerate(backend.examples) if one.name == "noise")
    known, strange = (next(backend.of_example(place)) for place in (0, noise))
    assert known.answers[0].name == "0"
    assert known.verdict is not None and known.verdict.states() == ["fine"]
    others = [next(backend.of_example(place)).verdict for place in range(10, len(backend.examples))]
    assert [one.states() for one in others if one is not None] == [["foreign"]] * 10
    assert sum(one.flagged for one in strange.methods) > sum(one.flagged for one in known.methods) + 3


def test_the_score_that_comes_first_is_that_of_every_command(numbers: tuple[Source, Path]) -> None:
    source, _ = numbers
    first = next(iter(opened(source).engine.methods))
    assert first == scores.default_method().name != "gradnorm"
