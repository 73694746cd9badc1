"""Models that nescio itself has kept: saved posteriors, and folders that a plug-in opens."""

import sys

import pytest
import torch
from torch import nn

import nescio
from nescio import plugins, posteriors
from nescio.models import Classifier
from nescio.models.sources import Source, open_model
from nescio.specs import ModelSpec, open_source, remember
from nescio.types import InputError, ModelError

FACTORY = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
"""


@pytest.fixture
def factory(tmp_path, monkeypatch):
    (tmp_path / "opening_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    yield "opening_factory:build"
    sys.modules.pop("opening_factory", None)


def test_a_saved_posterior_remembers_its_model(factory, tmp_path):
    pytest.importorskip("safetensors")
    torch.manual_seed(5)
    other = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    torch.save(other.state_dict(), tmp_path / "w.pt")
    settings = {"size": (2, 2), "mean": (0.5,), "std": (0.5,)}
    base = open_model(factory, "w.pt", **settings)
    posterior = posteriors.MCDropout(base.model, samples=4, seed=1)
    posterior.save(tmp_path / "kept")
    x = torch.rand(3, 3, 2, 2)
    with pytest.raises(InputError, match=r"there is no model\.json; name the model as base \(--base\)"):
        open_source(ModelSpec("kept"))
    with pytest.raises(ModelError, match="with other weights"):
        open_source(ModelSpec("kept", base=factory, **settings))
    given = open_source(ModelSpec("kept", "w.pt", base=factory, **settings))
    remember(tmp_path / "kept", ModelSpec(factory, "w.pt", **settings))
    trusted = open_source(ModelSpec(str(tmp_path / "kept"), trust_pickle=True))
    for source in (given, trusted, open_source(ModelSpec("kept", base=factory))):
        assert isinstance(source, Source)
        assert torch.equal(source.model.predict(x), posterior.predict(x))
        assert str(source.preprocess) == "resize 2, mean 0.5, std 0.5"
        assert source.about.startswith("MCDropout of ")
        assert f"over {factory}" in source.about
        assert (nescio.score(source.model, x, "mutual_information") >= 0).all()
    for text, words in (("{}", "expected the name of a model in"), ("[" * 100_000, "it is damaged")):
        (tmp_path / "kept" / "model.json").write_text(text)
        with pytest.raises(InputError, match=words):
            open_source(ModelSpec("kept"))
    remember(tmp_path / "kept", ModelSpec(str(tmp_path / "kept")))
    with pytest.raises(InputError, match="expected a model under the posterior in kept, got another posterior"):
        open_source(ModelSpec("kept"))


@pytest.mark.parametrize(
    "name",
    [
        "os:abort",
        "kept_code:build",
        "nescio.cli:main",
        "nescio.zoo:training.checkpoint.os.abort",
        "x:weights.pt",
        "a:b/weights.pt",
        ":",
    ],
)
def test_a_folder_from_anyone_runs_no_function_that_it_names(name, tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    posteriors.MCDropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout()), samples=2).save("kept")
    for module in ("kept_code", "x", "a"):
        (tmp_path / f"{module}.py").write_text("open('ran', 'w')")
    (tmp_path / "trained.json").write_text("{}")
    remember("kept", ModelSpec(name))
    with pytest.raises(ModelError, match=rf"model\.json names the function {name}.*--base {name}.*--trust-pickle"):
        open_source(ModelSpec("kept"))
    assert not (tmp_path / "ran").exists()


def test_a_network_of_the_zoo_needs_no_trust(tmp_path):
    pytest.importorskip("safetensors")
    base = open_model("nescio.zoo:small_cnn")
    posteriors.DeepEnsemble([base.model, open_model("nescio.zoo:small_cnn").model]).save(tmp_path)
    remember(tmp_path, ModelSpec("nescio.zoo:small_cnn"))
    assert "over nescio.zoo:small_cnn" in open_source(ModelSpec(str(tmp_path))).about


def test_other_words_go_to_the_sources_of_models(factory):
    source = open_source(ModelSpec(factory, output="logits"))
    assert isinstance(source.model, Classifier)
    with pytest.raises(InputError, match="expected a folder of a saved posterior beside a base"):
        open_source(ModelSpec(factory, base=factory))


def test_a_folder_that_is_no_model_is_told(tmp_path):
    with pytest.raises(InputError, match=r"or a folder with trained\.json \(nescio train\) or posterior\.json"):
        open_source(ModelSpec(str(tmp_path)))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=f"say hf:{tmp_path} for a model of transformers"):
        open_source(ModelSpec(str(tmp_path)))


def test_a_folder_of_nescio_train_says_what_opens_it_where_that_is_not_installed(tmp_path, monkeypatch):
    (tmp_path / "trained.json").write_text("{}")
    monkeypatch.setattr(plugins, "plugins", lambda group: {})
    with pytest.raises(ModelError, match=r"the package nescio_papers.* is not installed; install it: pip install "):
        open_source(ModelSpec(str(tmp_path)))
