"""Saved distributions: the same bits when they come back, and a clear word about anything that is not as it was."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import posteriors
from nescio.models import Classifier
from nescio.posteriors import DeepEnsemble, Deterministic, InsertedDropout, MCDropout, Temperature, load, saving
from nescio.types import InputError, ModelError


def net(width: int = 6, classes: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.4), nn.Linear(width, classes)
    )


def wide() -> nn.Sequential:
    return net(9)


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(1)
    made = net()
    made(torch.randn(20, 4) * 3)  # its batch norm has seen something
    return made


@pytest.fixture
def x() -> Tensor:
    return torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def held_out(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Labels of which three in four are what the model says."""
    x = torch.randn(40, 4)
    y = Deterministic(model).predict(x)[0].argmax(-1)
    return x, torch.where(torch.arange(40) % 4 == 0, (y + 1) % 3, y)


AROUND: dict[str, Callable[[Any], Any]] = {
    "deterministic": Deterministic,
    "mc_dropout": lambda model: MCDropout(model, samples=3, seed=4),
    "inserted": lambda model: InsertedDropout(model, p=0.2, samples=3, seed=5, layer="0"),
    "temperature": lambda model: Temperature(model).fit(held_out(model)),
    "platt": lambda model: Temperature(MCDropout(model, samples=2), "platt").fit(held_out(model)),
    "closed": lambda model: Deterministic(nn.Sequential(*model, nn.Softmax(1)), output="probabilities"),
}


@pytest.mark.parametrize("kind", AROUND)
def test_around_a_model_the_same_bits_come_back(kind: str, model: nn.Module, x: Tensor, tmp_path: Path) -> None:
    posterior = AROUND[kind](model)
    posterior.save(tmp_path / "deep" / "folder")
    given = nn.Sequential(*model, nn.Softmax(1)) if kind == "closed" else model
    again = load(tmp_path / "deep" / "folder", given)
    assert type(again) is type(posterior)
    assert torch.equal(again.predict(x), posterior.predict(x))
    assert sorted(f.suffix for f in (tmp_path / "deep" / "folder").iterdir()) == [".json", ".safetensors"]


def test_an_ensemble_brings_its_weights(x: Tensor, tmp_path: Path) -> None:
    torch.manual_seed(2)
    ensemble = DeepEnsemble([net(), wide(), net()])
    p = ensemble.predict(x)
    ensemble.save(tmp_path)
    given = [net(), wide(), net()]
    before = [{name: v.clone() for name, v in one.state_dict().items()} for one in given]
    for models in (given, nn.ModuleList(given), [net, wide, net], (net, Classifier(wide()), given[2])):
        assert torch.equal(load(tmp_path, models).predict(x), p)
    for one, state in zip(given, before, strict=True):
        assert all(torch.equal(v, state[name]) for name, v in one.state_dict().items())
    same = DeepEnsemble([net(), net()])
    same.save(tmp_path)
    for models in (net, net()):
        again = DeepEnsemble.load(tmp_path, models)
        assert torch.equal(again.predict(x), same.predict(x))
    scaled = Temperature(same).fit(held_out(same.classifiers[0].model))
    scaled.save(tmp_path)
    assert torch.equal(load(tmp_path, net).predict(x), scaled.predict(x))


def test_tied_weights_and_other_types(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight
            self.register_buffer("count", torch.tensor(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).relu())

    ensemble, x = DeepEnsemble([Tied().bfloat16(), Tied().double()]), torch.rand(5, 4)
    ensemble.save(tmp_path)
    again = load(tmp_path, [Tied().bfloat16(), Tied().double()])
    assert torch.equal(again.predict(x), ensemble.predict(x))
    loaded = again.classifiers[0].module
    assert loaded.a.weight is loaded.b.weight


def test_another_model_is_refused(model: nn.Module, tmp_path: Path) -> None:
    MCDropout(model).save(tmp_path)
    with pytest.raises(ModelError, match="the model that this was saved with, got Sequential with other weights"):
        load(tmp_path, net())
    with pytest.raises(ModelError, match="other weights"):
        load(tmp_path, model.double())
    DeepEnsemble([net(), net()]).save(tmp_path)
    with pytest.raises(ModelError, match=r"expected weights that fit Sequential, got others from the saved state"):
        load(tmp_path, wide)
    with pytest.raises(ModelError, match=r"the file lacks what the model has: '5\.weight', '5\.bias'"):
        load(tmp_path, nn.Sequential(*net(), nn.Linear(3, 3)))
    with pytest.raises(InputError, match="expected 2 models, one for each member, got 3"):
        load(tmp_path, [net, net, net])
    with pytest.raises(ModelError, match="or a function that makes one, got an object of type int"):
        load(tmp_path, 3)


def test_another_class_is_refused(model: nn.Module, tmp_path: Path) -> None:
    Deterministic(model).save(tmp_path)
    with pytest.raises(InputError, match=r"expected a saved MCDropout in .*, got a Deterministic"):
        MCDropout.load(tmp_path, model)
    assert isinstance(Deterministic.load(tmp_path, model), Deterministic)


def test_a_function_before_the_model_is_not_forgotten(model: nn.Module, x: Tensor, tmp_path: Path) -> None:
    def double(x: Tensor) -> Tensor:
        return 2 * x

    for posterior, given, forgotten in (
        (MCDropout(Classifier(model, preprocess=double), samples=2), Classifier(model, preprocess=double), model),
        (DeepEnsemble([net(), Classifier(net(), preprocess=double)]), [net, Classifier(net(), preprocess=double)], net),
    ):
        posterior.save(tmp_path)
        assert torch.equal(load(tmp_path, given).predict(x), posterior.predict(x))
        with pytest.raises(ModelError, match=r"expected a function before the model .* preprocess=\.\.\.\)"):
            load(tmp_path, forgotten)


def edit(folder: Path, **changes: Any) -> None:
    record = json.loads((folder / "posterior.json").read_text())
    (folder / "posterior.json").write_text(json.dumps(record | changes))


def test_damaged_and_foreign_files(model: nn.Module, tmp_path: Path) -> None:
    posterior = Temperature(model, "platt").fit(held_out(model))

    def fresh() -> Path:
        posterior.save(tmp_path)
        return next(tmp_path.glob("*.safetensors"))

    file = fresh()
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    with pytest.raises(InputError, match=rf"expected {len(whole)} bytes in .* got {len(whole) - 3} .* cut short"):
        load(tmp_path, model)
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="cut short or changed"):
        load(tmp_path, model)
    file.unlink()
    with pytest.raises(InputError, match="but it is missing; copy the whole folder"):
        load(tmp_path, model)
    fresh()
    text = (tmp_path / "posterior.json").read_text()
    for broken in (text[:40], "[" * 100_000):
        (tmp_path / "posterior.json").write_text(broken)
        with pytest.raises(InputError, match="it is damaged: save the distribution again"):
            load(tmp_path, model)
    (tmp_path / "posterior.json").write_text("[]")
    with pytest.raises(InputError, match="got another file"):
        load(tmp_path, model)
    with pytest.raises(InputError, match=r"but there is no .*posterior\.json"):
        load(tmp_path / "nowhere", model)
    for changes, words in (
        ({"version": 2}, "expected version 1 in .*, got 2; update nescio"),
        ({"class": "oracle"}, "got 'oracle'; is nescio too old for it"),
        ({"settings": None}, "expected the settings of 'temperature', got None"),
        ({"settings": {}}, "expected the settings of 'temperature', got others"),
        ({"tensors": {"file": "../../etc/passwd"}}, "to name its file of tensors"),
        ({"tensors": "x"}, "to name its file of tensors"),
    ):
        fresh()
        edit(tmp_path, **changes)
        with pytest.raises(InputError, match=words):
            load(tmp_path, model)


def test_tensors_that_do_not_fit() -> None:
    state = {"a": torch.zeros(2), "b": torch.tensor([torch.nan]), "d": torch.zeros(1)}
    with pytest.raises(InputError) as caught:
        saving.check_tensors(state, {"a": (3,), "b": (1,), "c": ()})
    text = str(caught.value)
    for words in ("'c' is missing", "'d' is not known", "'a' has shape [2], not [3]", "'b' has NaN or infinite values"):
        assert words in text
    saving.check_tensors({"a": torch.zeros(2)}, {"a": [2]})


@pytest.mark.parametrize("at", ["tensors", "record"])
def test_a_save_that_is_cut_off_leaves_the_old_one(
    at: str, model: nn.Module, x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = DeepEnsemble([net(), net()])
    old.save(tmp_path)
    replace = os.replace

    def cut(source: Any, target: Any) -> None:
        if (Path(target).name == "posterior.json") == (at == "record"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(KeyboardInterrupt):
        DeepEnsemble([net(), net()]).save(tmp_path)
    monkeypatch.setattr(os, "replace", replace)
    assert torch.equal(load(tmp_path, net).predict(x), old.predict(x))
    new = DeepEnsemble([net(), net()])
    new.save(tmp_path)
    assert torch.equal(load(tmp_path, net).predict(x), new.predict(x))
    assert len(list(tmp_path.iterdir())) == 2  # what the interrupted one left is gone


def test_what_cannot_be_saved(model: nn.Module, tmp_path: Path) -> None:
    class Mine(posteriors.PosteriorBase):
        classifiers = (Classifier(nn.Linear(2, 2)),)

        def _logits(self, x: Any) -> Tensor:
            return x[None]

    with pytest.raises(InputError, match=r"expected a distribution that can be saved .* got an object of type Mine"):
        Mine().save(tmp_path)
    with pytest.raises(ModelError, match=r"expected a torch.nn.Module, whose weights can be saved, got <lambda>"):
        DeepEnsemble([model, lambda x: x]).save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the folder"):
        Deterministic(model).save(tmp_path / "file")


def test_a_function_of_the_user_comes_back(x: Tensor, tmp_path: Path) -> None:
    Deterministic(lambda x: x).save(tmp_path)
    assert torch.equal(load(tmp_path, lambda x: x).predict(x)[0], x.double().softmax(-1))


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("base",), 3, "expected the record of a saved distribution, got an object of type int"),
        (("base", "settings", "found", "precision"), "a", "expected precision to be a finite number above 0, got 'a'"),
        (("base", "settings", "found", "shape"), [1], "expected the settings of 'laplace', got others"),
    ],
)
def test_settings_that_were_changed_by_hand_are_refused(
    place: tuple[str, ...], value: Any, message: str, model: nn.Module, x: Tensor, tmp_path: Path
) -> None:
    labels = torch.arange(len(x)) % 3
    Temperature(posteriors.Laplace(model, samples=2).fit((x, labels)), "platt").fit((x, labels)).save(tmp_path)
    file = tmp_path / "posterior.json"
    record = json.loads(file.read_text())
    inner = record["settings"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    file.write_text(json.dumps(record))
    with pytest.raises(InputError, match=message):
        load(tmp_path, model)


def test_a_function_that_makes_a_model_draws_no_random_numbers_of_the_caller(tmp_path: Path) -> None:
    DeepEnsemble([net(), net()]).save(tmp_path)
    before = torch.get_rng_state()
    load(tmp_path, net)
    assert torch.equal(before, torch.get_rng_state())
