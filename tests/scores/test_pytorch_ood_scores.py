"""Detectors of pytorch-ood as scores: the numbers are theirs, the user's detector stays as it was."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import scores
from nescio.quantities import DetectorScores, Features, Logits
from nescio.types import InputError


class Rank:
    """A detector of features as pytorch-ood has them: it must be fitted, and changes itself when it is."""

    requires_fit = True

    def __init__(self, encoder: Any = None) -> None:
        self.encoder, self.seen = encoder, [torch.empty(0)]

    def predict(self, x: Tensor) -> Tensor:
        raise AssertionError("features are handed over")

    def fit_features(self, features: Tensor, labels: Tensor) -> "Rank":
        self.seen.append(features)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        assert features.dtype == torch.float32
        return torch.cdist(features, self.seen[-1]).amin(1)


class OnInputs:
    """A detector that works with a model of its own."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def predict(self, x: Tensor) -> Tensor:
        assert not self.model.training
        self.model(x).sum().backward()  # as a careless detector would
        return self.model(x).amax(1)


def test_a_detector_is_asked_for_what_it_works_on() -> None:
    class OfLogits(OnInputs):
        def predict_logits(self, logits: Tensor) -> Tensor:
            return logits.amax(1)

    model = nn.Linear(2, 3)
    assert scores.from_pytorch_ood(OfLogits(model)).needs == (Logits(),)
    assert scores.from_pytorch_ood(Rank(), layer="0").needs == (Features("0"),)
    assert scores.from_pytorch_ood(detector := OnInputs(model)).needs == (DetectorScores(detector),)


def test_fitting_changes_a_copy_that_shares_the_model(model: nn.Module, x: Tensor) -> None:
    detector = Rank(encoder=model.forward)
    method = scores.from_pytorch_ood(detector)
    with pytest.raises(InputError, match="expected training data for 'pytorch_ood_Rank'"):
        nescio.score(model, x, method)
    fitted: Any = nescio.fit(model, method, (x, torch.arange(len(x)) % 3))
    assert len(detector.seen) == 1
    assert fitted._state.encoder.__self__ is model
    assert float(nescio.score(model, x, fitted).max()) < 1e-3  # of the very inputs that it was fitted to
    assert float(nescio.score(model, 9 * x, fitted).min()) > 1e-3


def test_a_detector_that_is_fitted_already_is_used_as_it_is(model: nn.Module, x: Tensor) -> None:
    detector = Rank().fit_features(torch.zeros(1, 7), torch.zeros(1))
    own = nescio.score(model, x, scores.from_pytorch_ood(detector, fitted=True))
    features = nescio.quantities.compute(nescio.Classifier(model), x, [Features()])[Features()]
    torch.testing.assert_close(own, features.norm(dim=1), rtol=1e-5, atol=1e-6)


def test_a_model_that_a_detector_holds_runs_in_eval_mode_and_stays_as_it_was(x: Tensor) -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), nn.Dropout(0.5)).double()
    before = copy.deepcopy(own.state_dict())
    u = nescio.score(nn.Flatten(), x, scores.from_pytorch_ood(OnInputs(own)))
    assert torch.equal(u, own.eval()(x).amax(1).detach())
    assert all(parameter.grad is None for parameter in own.parameters())
    assert all(torch.equal(value, before[name]) for name, value in own.state_dict().items())


@pytest.mark.parametrize("what", [Rank, "energy", None])
def test_what_is_no_detector_is_refused(what: Any) -> None:
    with pytest.raises(InputError, match="expected a detector"):
        scores.from_pytorch_ood(what)


def test_a_layer_for_a_detector_without_features_is_refused() -> None:
    with pytest.raises(InputError, match="expected no layer for OnInputs"):
        scores.from_pytorch_ood(OnInputs(nn.Linear(2, 3)), layer="0")
