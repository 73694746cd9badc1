import argparse
import importlib
import sys

import pytest
import torch
from torch import nn

from nescio import models
from nescio.models import Classifier
from nescio.types import InputError, ModelError
from tests.models.examples import equal, net, save

SOURCE = """
import torch
from torch import nn
from nescio.models import Classifier

def build():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

def classifier():
    return Classifier(build(), output="probabilities")

def rule():
    return lambda x: x

def sized(width):
    return nn.Linear(3, width)

def broken():
    raise RuntimeError("of the factory itself")

def pair():
    return build(), None

class Net(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)

    @classmethod
    def small(cls):
        return cls()

ready = build()
number = 3
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module of factories, made the current one."""
    (tmp_path / "my_factories.py").write_text(SOURCE)
    (tmp_path / "needs_more.py").write_text("import a_package_that_is_not_there")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_factories", None)
    sys.modules.pop("needs_more", None)


def test_factories_of_this_folder_are_found_and_the_path_is_as_before(folder):
    before = list(sys.path)
    assert isinstance(models.load("my_factories:build"), nn.Sequential)
    assert models.load("my_factories:classifier").output == "probabilities"
    assert type(models.load("my_factories:Net")).__name__ == "Net"
    assert type(models.load("my_factories:Net.small")).__name__ == "Net"
    assert isinstance(models.load("my_factories:ready"), nn.Sequential)
    assert callable(models.load("my_factories:rule"))
    assert sys.path == before
    with pytest.raises(RuntimeError, match="of the factory itself"):
        models.load("my_factories:broken")
    assert sys.path == before


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        ("my_factories", InputError, "expected package.module:factory, got 'my_factories'; for example torchvision"),
        (":build", InputError, "expected package.module:factory"),
        ("my_factories:", InputError, "expected package.module:factory"),
        *(
            (f"{name}:build", InputError, "not by a path: run from")
            for name in ("../x", "./x", ".x", "..", "a/b", "a b")
        ),
        (
            "no_such_module:build",
            ModelError,
            r"there is no 'no_such_module' to import \(seen from .*\); check its name",
        ),
        ("torch.no_such:build", ModelError, "there is no 'torch.no_such' to import"),
        (
            "needs_more:build",
            ModelError,
            "it needs 'a_package_that_is_not_there', which is not installed; install that",
        ),
        ("my_factories:bild", ModelError, "expected 'bild' in 'my_factories', which has .*'build'"),
        ("my_factories:sized", ModelError, "to work without arguments, got: missing a required argument: 'width'"),
        ("my_factories:number", ModelError, "to be a function that makes a model, got an object of type int"),
        ("my_factories:pair", ModelError, "to return a torch.nn.Module, got a tuple of 2 items"),
    ],
)
def test_specs_that_name_no_factory_are_refused_in_words(folder, spec, kind, words):
    with pytest.raises(kind, match=words):
        models.load(spec)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("w.safetensors", "safetensors"), ("w.pt", "torch"), ("w.pth", "legacy"), ("w.bin", "safetensors")],
)
def test_weights_are_loaded(folder, name, kind):
    trained = net()
    file = save(trained, folder / name, kind)
    assert equal(models.load("my_factories:build", file), trained)
    assert equal(models.load("my_factories:build", weights=str(file)), trained)
    wrapped = models.load("my_factories:classifier", file)
    assert isinstance(wrapped, Classifier) and equal(wrapped.module, trained)


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "_orig_mod.module.", "module._orig_mod."])
def test_what_training_scripts_put_around_weights_is_taken_off(folder, key, prefix):
    trained = net()
    state = {prefix + name: value for name, value in trained.state_dict().items()}
    torch.save({key: state, "epoch": 3, "optimizer": {"lr": 0.1}}, folder / "checkpoint.pt")
    assert equal(models.load("my_factories:build", "checkpoint.pt"), trained)


def test_weights_need_a_module(folder):
    save(net(), folder / "w.pt", "torch")
    with pytest.raises(ModelError, match=r"my_factories:rule to give a torch.nn.Module to load weights into"):
        models.load("my_factories:rule", "w.pt")


def test_a_pickle_that_needs_a_missing_module_is_named(folder):
    torch.save({"net": models.load("my_factories:Net")}, folder / "w.pt")
    sys.modules.pop("my_factories")
    (folder / "my_factories.py").unlink()  # the folder itself may be on the path
    importlib.invalidate_caches()
    with pytest.raises(ModelError, match=r"it needs 'my_factories', which cannot be imported; run from the folder"):
        models.read_weights(folder / "w.pt", trust_pickle=True)


def test_a_whole_pickled_model_gives_its_weights_when_trusted(folder):
    trained = net()
    torch.save(trained, folder / "model.pt")
    with pytest.raises(
        ModelError, match=r"names other things \(.*torch.nn.modules.container.Sequential.*\).*trust_pickle=True"
    ):
        models.load("my_factories:build", "model.pt")
    assert equal(models.load("my_factories:build", "model.pt", trust_pickle=True), trained)
    torch.save({"model": trained, "args": argparse.Namespace(lr=1)}, folder / "run.pt")
    assert equal(models.load("my_factories:build", "run.pt", trust_pickle=True), trained)
