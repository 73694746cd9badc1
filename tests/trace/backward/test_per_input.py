"""The general path on its own: no rule is found, and the numbers stay; vmap and the loop agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import modes, trace
from nescio.models import Classifier
from nescio.trace import rules
from nescio.trace.backward import per_input
from nescio.trace.probe import passes
from tests.trace.helpers import SMOOTH, Then, close, plan, ready, same_as_reference, slow
from tests.trace.subjects import make

PICTURES = ["mlp", "cnn", "vit", "lstm", "tied", "twice", "raw", "convnext"]
TOKENS = ["gru", "encoder", "tied_embedding"]
SETTINGS: dict[str, dict[str, Any]] = {
    "l2": {}, "l1": {"norm": 1}, "smoothed, l1": {"norm": 1, "smoothing": "mean", **SMOOTH},
}  # fmt: skip
CASES = [(n, s) for n in PICTURES for s in ("l2", "smoothed, l1")] + [(n, "l1") for n in TOKENS]


@pytest.fixture
def no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "find", lambda operation, slot: None)


@pytest.fixture
def roads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The functions of `general` that gave gradients."""
    taken: list[str] = []
    for name in ("_many", "_one"):
        plain = getattr(per_input, name)

        def noted(*args: Any, name: str = name, plain: Any = plain) -> Any:
            result = plain(*args)
            taken.append(name)
            return result

        monkeypatch.setattr(per_input, name, noted)
    yield taken


@pytest.mark.parametrize("name, setting", CASES)
def test_the_same_numbers_without_any_rule(name: str, setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = make(name)
    settings = SETTINGS[setting]
    with_rules = trace.class_gradients(model, x, layers="tensor", **settings)
    monkeypatch.setattr(rules, "find", lambda operation, slot: None)
    passes._PLANS.pop(model)
    without = trace.class_gradients(model, x, layers="tensor", **settings)
    assert not plan(model, x).fast
    assert without.layers == with_rules.layers
    close(without.norms, with_rules.norms)


def test_rules_are_really_gone(no_rules: None) -> None:
    model, x = make("mlp")
    assert slow(model, x) == set(dict(model.named_parameters()))
    same_as_reference(model, x)


class Counting(nn.Module):
    """A general parameter behind control flow on the values of one input."""

    def __init__(self, look: bool) -> None:
        super().__init__()
        self.p, self.look = nn.Parameter(torch.randn(5, 4)), look

    def forward(self, x: Tensor) -> Tensor:
        h = x @ torch.sin(self.p)
        if self.look and bool((h.abs() > 1e9).any()):
            h = h * 0
        return h


@pytest.mark.parametrize("look", [False, True], ids=["vmap", "loop"])
def test_vmap_where_it_can_and_the_loop_where_it_cannot(look: bool, roads: list[str]) -> None:
    model, x = ready(Then(Counting(look), 4)), torch.randn(5, 5, dtype=torch.float64)
    assert plan(model, x).follow == (not look)
    roads.clear()
    trace.class_gradients(model, x)
    assert roads == (["_one"] * 5 if look else ["_many"])
    same_as_reference(model, x)
    same_as_reference(model, x, norm=1, **SMOOTH)


@pytest.mark.parametrize("name", ["raw", "lstm", "custom", "swin"])
def test_vmap_and_loop_agree(name: str) -> None:
    model, x = make(name)
    classifier = Classifier.of(model)
    names = sorted(slow(model, x)) if name != "lstm" else list(classifier.parameters())
    vectors = torch.randn(2, len(x), 4 if name == "lstm" else model(x).shape[1], dtype=torch.float64)
    with modes.preserved(classifier), modes.tracing(classifier):
        followed = per_input.power_sums(classifier, x, names, vectors, 1, 2, follow=True)
        looped = per_input.power_sums(classifier, x, names, vectors, 1, 2, follow=False)
    for key in names:
        torch.testing.assert_close(followed[key], looped[key], rtol=1e-9, atol=1e-20)
        assert looped[key].max() > 0


def test_a_loop_after_vmap_failed_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of inputs that vmap does not take: that one and all after it are looped over, none is left out."""
    model, x = make("raw")
    x = torch.cat([x, x + 0.1])
    wanted = trace.class_gradients(model, x).norms
    monkeypatch.setitem(per_input.VMAP_BYTES, "cpu", 5000)  # a few inputs a block
    many, calls = per_input._many, []

    def failing(*args: Any) -> Any:
        calls.append(len(args[1]))
        if len(calls) == 2:
            raise RuntimeError("vmap: this operation is not known")
        return many(*args)

    monkeypatch.setattr(per_input, "_many", failing)
    close(trace.class_gradients(model, x).norms, wanted)
    assert len(calls) == 2
    assert calls[0] < len(x)


def test_blocks_smaller_than_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = make("lstm")
    wanted = trace.class_gradients(model, x, **SMOOTH).norms
    for size in (1, 3000, 10_000):
        monkeypatch.setitem(per_input.VMAP_BYTES, "cpu", size)
        close(trace.class_gradients(model, x, **SMOOTH).norms, wanted)


def test_an_error_of_the_model_is_not_swallowed(no_rules: None) -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(4, 3), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls > 4:
                raise ValueError("the model's own trouble")
            return self.layer(x)

    with pytest.raises(ValueError, match="the model's own trouble"):
        trace.class_gradients(Odd(), torch.randn(4, 4))


def test_tokens_and_mappings_take_the_loop(no_rules: None, roads: list[str]) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

        def forward(self, ids: Tensor, weight: Tensor) -> Tensor:
            return self.head(torch.tanh(self.table(ids) * weight.unsqueeze(2)).mean(1))

    model = ready(Named())
    x = {"ids": torch.randint(0, 9, (4, 5)), "weight": torch.rand(4, 5, dtype=torch.float64)}
    same_as_reference(model, x)
    assert set(roads) == {"_one"}


def test_gradients_of_one_input_with_its_copies() -> None:
    model: Any
    model, x = make("mlp")
    classifier = Classifier.of(model)
    vectors = torch.randn(3, len(x), 5, dtype=torch.float64)
    with modes.preserved(classifier), modes.tracing(classifier):
        found = per_input.gradients(classifier, x, ["0.weight", "4.bias"], vectors)
        assert per_input.gradients(classifier, x, [], vectors) == {}
    for k in range(3):
        wanted = torch.autograd.grad((model(x) * vectors[k]).sum(), [model[0].weight, model[4].bias])
        torch.testing.assert_close(found["0.weight"][k, 0], wanted[0])
        torch.testing.assert_close(found["4.bias"][k, 0], wanted[1])
