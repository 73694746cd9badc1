"""Networks that `nescio train` has kept, opened by `nescio.specs` through this package's entry point."""

import json

import numpy as np
import pytest
import torch

from nescio import posteriors
from nescio.specs import ModelSpec, open_source, remember
from nescio.types import InputError
from nescio_papers import zoo


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network of the zoo, trained for a moment by `nescio train`."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("models")
    return folder / "digits-0-limit20-epochs1", zoo.trained("digits", 0, folder, limit=20, epochs=1)


def test_a_trained_network_is_opened_by_its_folder_or_its_files(network):
    folder, trained = network
    x = torch.rand(3, 1, 8, 8)
    for place in (folder, folder / "weights.pt", folder / "trained.json"):
        source = open_source(ModelSpec(str(place)))
        assert torch.equal(source.model.logits(x), trained.model(x))
        assert source.classes == tuple("0123456789")
        assert str(source.preprocess) == "resize 8, grey, values in [0, 1], not normalised"
        assert source.about.startswith(f"digits, seed 0, of {folder}, ")
    grey = source.preprocess(np.zeros((20, 20, 3), dtype=np.uint8))
    assert torch.equal(grey, torch.zeros(1, 8, 8))


def test_a_trained_network_takes_other_weights(network, tmp_path):
    folder, _ = network
    other = zoo.RECIPES["digits"].model(1)
    torch.save(other.state_dict(), tmp_path / "w.pt")
    x = torch.rand(2, 1, 8, 8)
    assert torch.equal(open_source(ModelSpec(str(folder), str(tmp_path / "w.pt"))).model.logits(x), other.eval()(x))


def test_a_broken_record_of_training_is_told(network, tmp_path):
    folder, _ = network
    for text, words in (("{", "it is damaged"), ("{}", "plan and seed"), ("[]", "plan and seed")):
        (tmp_path / "trained.json").write_text(text)
        with pytest.raises(InputError, match=words):
            open_source(ModelSpec(str(tmp_path)))
    (tmp_path / "trained.json").write_text(json.dumps({"identity": {"plan": "digitz", "seed": 0}}))
    with pytest.raises(InputError, match="expected the name of a plan, got 'digitz'"):
        open_source(ModelSpec(str(tmp_path)))
    (tmp_path / "trained.json").write_text((folder / "trained.json").read_text())
    with pytest.raises(InputError, match=r"expected a file of weights, but there is no .*weights\.pt"):
        open_source(ModelSpec(str(tmp_path)))


def test_a_posterior_over_a_trained_network(network, tmp_path):
    pytest.importorskip("safetensors")
    folder, trained = network
    x = torch.rand(40, 1, 8, 8)
    y = trained.model(x).argmax(1)
    y[::4] = 3  # not all answers are right
    fitted = posteriors.Temperature(open_source(ModelSpec(str(folder))).model).fit((x, y))
    fitted.save(tmp_path / "t")
    remember(tmp_path / "t", ModelSpec(str(folder)))
    source = open_source(ModelSpec(str(tmp_path / "t")))
    assert torch.equal(source.model.predict(x), fitted.predict(x))
    assert source.classes == tuple("0123456789")
