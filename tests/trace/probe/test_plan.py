"""A plan for a part of the graph follows from that of the whole, without looking again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import inputs
from nescio.models import Classifier
from nescio.modes import preserved, tracing
from nescio.trace.probe import passes, survey
from nescio.trace.probe.graph import Graph
from nescio.trace.probe.plan import Plan, _embedded, find_plan, part_of
from nescio.types import NormSettings
from tests.trace.subjects import SUBJECTS, make


def traced(model: nn.Module, x: Tensor, wanted: Any = None) -> tuple[Classifier, Tensor, Tensor, Graph]:
    classifier = Classifier(model)
    three = inputs.take(x, [i % len(x) for i in range(3)])
    return classifier, three, *passes._trace(classifier, three, True, wanted)


@pytest.mark.parametrize("name", sorted(set(SUBJECTS) - {"coupled", "custom", "routed", "swin_v2"}))
def test_the_plan_of_a_part_is_what_would_be_found_for_it(name: str) -> None:
    model, x = make(name)
    with preserved(model), tracing(model):
        whole = find_plan(*traced(model, x))
        names = list(Classifier(model).parameters())
        wanted = names[len(names) // 2 :]
        classifier, three, logits, graph = traced(model, x, wanted)
        part, found = part_of(whole, graph), find_plan(classifier, three, logits, graph)
    assert part is not None
    assert part.signature == found.signature != whole.signature
    assert part.fast == found.fast and part.fast.keys() <= set(wanted) and part.fast


WHOLE = (("w", (), ()), ("x", (), ()), ("Mul", (1, 0), (0,)), ("v", (), ()), ("Add", (2, 3), ()), ("Mul", (4, 2), (1,)))
PARTS = {
    "the whole": (WHOLE, True),
    "from the second parameter on": ((("v", (), ()), ("Add", (-1, 0), ()), ("Mul", (1, -1), (1,))), True),
    "another parameter": ((("w", (), ()), ("Add", (-1, 0), ()), ("Mul", (1, -1), (1,))), False),
    "another operation": ((("v", (), ()), ("Sub", (-1, 0), ()), ("Mul", (1, -1), (1,))), False),
    "another dimension": ((("v", (), ()), ("Add", (-1, 0), ()), ("Mul", (1, -1), (0,))), False),
    "another number of operands": ((("v", (), ()), ("Add", (0,), ()), ("Mul", (1, -1), (1,))), False),
    "one operation where there are two": ((("v", (), ()), ("Add", (-1, 0), ()), ("Mul", (1, 1), (1,))), False),
    "more than the whole": ((("u", (), ()), ("v", (0,), ()), ("Add", (-1, 1), ()), ("Mul", (2, -1), (1,))), False),
    "nothing": ((), False),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_the_same_operations_without_what_lies_below_some(name: str) -> None:
    part, expected = PARTS[name]
    assert _embedded(part, WHOLE) is expected


def test_a_parameter_that_is_used_in_another_way_is_looked_at_again() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).double()
    with preserved(model), tracing(model):
        whole = find_plan(*traced(model, torch.randn(3, 3).double()))
        *_, graph = traced(model, torch.randn(3, 3).double(), ["1.weight", "1.bias"])
    assert part_of(whole, graph) is not None
    assert part_of(replace(whole, kinds=whole.kinds | {"1.bias": ()}), graph) is None


def test_a_pass_that_follows_later_layers_only_needs_no_look_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def counted(*args: Any) -> Plan:
        looks.append(args)
        return find_plan(*args)

    monkeypatch.setattr(passes, "find_plan", counted)
    model, x = make("cnn")
    classifier = Classifier(model)
    wanted = frozenset(list(classifier.parameters())[2:])
    with preserved(model), tracing(model):
        passes.forward(classifier, x)
        assert passes.forward(classifier, x, wanted=wanted).plan.fast.keys() == wanted
    assert len(looks) == 1


@pytest.mark.parametrize("given", [1, 3, 8])
def test_a_look_at_a_model_sends_each_of_a_few_inputs_through_twice(given: int) -> None:
    """Once with the others and once alone: what is found is compared with the gradients of the latter."""
    rows = []

    class Counting(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            rows.append(len(x))
            return super().forward(x)

    model = nn.Sequential(Counting(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    with preserved(model), tracing(model):
        x, settings = torch.randn(given, 4).double(), NormSettings("classes")
        _, found, _ = survey.begin(Classifier(model), x, lambda y: y, settings, lambda: None)
    assert found.plan.fast.keys() == set(Classifier(model).parameters())
    assert rows == ([1, 1] if given == 1 else [3, 1, 1, 1])
