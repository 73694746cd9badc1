"""What tells one state of a model from another: no recording is replayed for a model that it was not made of."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.trace.runtime.fingerprint import _Marker, _Print, fingerprint


class Free(nn.Module):
    """Holds functions, lists, settings and tensors as plain attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.activation: Callable[[Tensor], Tensor] = F.relu
        self.steps, self.names = [1, 2], {"a": 1}
        self.config = SimpleNamespace(scale=1.0, parts=["x"])
        self.kinds, self.dtype = {"x"}, torch.float32
        self.method = self.layer.forward
        self.mask = torch.ones(3)
        self.nothing: Any = None
        self.flag: Any = True
        self.pair: Any = (1, 2)
        self.early = Early()


class Early(nn.Module):
    """Holds something before it is a module, so its attributes come in another order."""

    def __init__(self) -> None:
        self.first: Any = 1
        super().__init__()
        self.inner = nn.Linear(3, 3)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "function": lambda m: setattr(m, "activation", F.gelu),
    "list": lambda m: m.steps.append(3),
    "order": lambda m: m.steps.reverse(),
    "dict": lambda m: m.names.update(a=2),
    "settings": lambda m: setattr(m.config, "scale", 2.0),
    "list in settings": lambda m: m.config.parts.append("y"),
    "set": lambda m: m.kinds.add("y"),
    "type": lambda m: setattr(m, "dtype", torch.float16),
    "method": lambda m: setattr(m, "method", nn.Linear(3, 3).forward),
    "tensor": lambda m: setattr(m, "mask", torch.zeros(3)),
    "something": lambda m: setattr(m, "nothing", object()),
    "a number for a flag": lambda m: setattr(m, "flag", 1),
    "a flag in a tuple": lambda m: setattr(m, "pair", (True, 2)),
    "an attribute that came early": lambda m: setattr(m.early, "first", 2),
    "a weight below it": lambda m: setattr(m.early.inner, "weight", nn.Parameter(torch.ones(3, 3))),
    "a hook beside it": lambda m: m.early.register_forward_hook(lambda *a: None),
    "the name of a module": lambda m: m.add_module("other", m._modules.pop("layer")),
    "the kind of a module": lambda m: setattr(m.layer, "__class__", nn.Identity),
    "hook after": lambda m: m.layer.register_forward_hook(lambda *a: None),
    "hook": lambda m: m.layer.register_forward_pre_hook(lambda *a: None),
    "new attribute": lambda m: setattr(m, "more", 1),
    "module": lambda m: setattr(m, "layer", nn.Linear(3, 3)),
    "module added": lambda m: m.add_module("second", nn.Identity()),
    "weight": lambda m: setattr(m.layer, "weight", nn.Parameter(torch.ones(3, 3))),
    "bias gone": lambda m: setattr(m.layer, "bias", None),
    "half": lambda m: m.half(),
    "training": lambda m: m.layer.train(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_model_is_another(name: str) -> None:
    model = Free().eval()
    classifier = Classifier(model)
    before = fingerprint(classifier)
    assert fingerprint(classifier) == before
    assert hash(fingerprint(classifier)) == hash(before)
    CHANGES[name](model)
    assert fingerprint(classifier) != before


def test_values_of_weights_do_not_count() -> None:
    model = Free()
    classifier = Classifier(model)
    before = fingerprint(classifier)
    with torch.no_grad():
        model.layer.weight.mul_(2)
    assert fingerprint(classifier) == before


def test_a_model_that_is_gone_has_no_successor() -> None:
    """Another object may get the number of one that is gone: it is not the same."""
    thing = nn.Identity()

    def mark(some: object) -> _Print:
        marker = _Marker()
        return _Print(0, marker.one(some), marker)

    own = mark(thing)
    assert own == mark(thing) and hash(own) == hash(mark(thing))
    kept = nn.Identity()
    assert own != mark(kept) and own != 3
    again = mark(kept)
    again.parts = own.parts  # another object, with the number of this one
    assert own == again
    del thing
    gc.collect()
    assert own != again


def test_functions_before_the_model_are_told_apart() -> None:
    model = Free()
    prints = {fingerprint(Classifier(model, preprocess=lambda x, k=k: x * k)) for k in range(20)}
    assert len(prints) == 20
    assert fingerprint(Classifier(model)) not in prints


def test_switches_of_torch_count() -> None:
    classifier = Classifier(Free())
    before = fingerprint(classifier)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
        assert fingerprint(classifier) != before
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        torch.use_deterministic_algorithms(not deterministic)
        assert fingerprint(classifier) != before
    finally:
        torch.use_deterministic_algorithms(deterministic)
    assert fingerprint(classifier) == before
