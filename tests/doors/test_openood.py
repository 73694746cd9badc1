"""OpenOOD: a method is a post-processor there. The package is on no index: a stand-in has its published interface."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.doors.openood import ScorePostprocessor, postprocessor
from nescio.types import InputError, MissingExtra


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def batches(x: Tensor) -> list[dict[str, Tensor]]:
    """As OpenOOD's loaders give them."""
    return [{"data": part, "label": torch.arange(len(part)) % 3} for part in x.split(50)]


@pytest.fixture
def known() -> dict[str, Any]:
    return {name: batches(torch.randn(400, 6)) for name in ("train", "val", "test")}


@pytest.fixture
def openood(monkeypatch: pytest.MonkeyPatch) -> type:
    class BasePostprocessor:
        def __init__(self, config: Any) -> None:
            self.config = config

        def setup(self, net: Any, id_loader_dict: Any, ood_loader_dict: Any) -> None: ...

    package, module = ModuleType("openood"), ModuleType("openood.postprocessors")
    module.BasePostprocessor = BasePostprocessor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openood", package)
    monkeypatch.setitem(sys.modules, "openood.postprocessors", module)
    return BasePostprocessor


@pytest.mark.parametrize("method", ["entropy", "knn", "guard"])
def test_confidence_is_the_score_negated_and_the_class_comes_from_the_same_pass(
    method: str, net: nn.Module, known: dict[str, Any]
) -> None:
    ours, x = ScorePostprocessor(method), torch.randn(9, 6)
    ours.setup(net, known, {})
    predicted, confidence = ours.postprocess(net, x)
    assert torch.equal(predicted, net(x).argmax(1))
    assert ours.fitted is not None
    assert torch.equal(-confidence, nescio.score(net, x, ours.fitted))


def test_all_inputs_of_a_loader_in_arrays_and_foreign_ones_are_less_sure(net: nn.Module, known: dict[str, Any]) -> None:
    ours = ScorePostprocessor("guard")
    ours.setup(net, known, {"near": {}, "far": {}})
    predicted, confidence, labels = ours.inference(net, known["test"], False)
    foreign = ours.inference(net, batches(9 + torch.randn(60, 6)))[1]
    assert predicted.shape == confidence.shape == labels.shape == (400,) and labels.dtype.kind == "i"
    assert np.median(foreign) < confidence.min()


def test_their_evaluator_takes_it(openood: type) -> None:
    ours = postprocessor("energy")
    assert isinstance(ours, openood) and isinstance(ours, ScorePostprocessor)
    assert not ours.APS_mode  # no search for settings on foreign data


def test_without_openood_the_message_says_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openood", None)
    with pytest.raises(MissingExtra, match="Jingkang50/OpenOOD"):
        postprocessor("energy")


def test_inputs_before_setup_are_refused(net: nn.Module) -> None:
    with pytest.raises(InputError, match="expected setup"):
        ScorePostprocessor().postprocess(net, torch.randn(2, 6))
