"""What a rule may be off by: no more than the model's own gradient is when the last digits of its parameters change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.modes import preserved, tracing
from nescio.trace.probe import passes, plan
from nescio.trace.probe.round_off import MOST, round_off
from nescio.trace.runtime import cudnn


class Waves(nn.Module):
    """A linear layer, waves so steep that last digits of its weights can be seen behind them, and another layer."""

    def __init__(self, steep: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.steep = steep
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last((self.steep * self.first(x)).sin() / self.steep)
        return y


X = torch.linspace(-1, 1, 15).view(3, 5)
COTANGENT = torch.tensor([1.0, -0.5, 0.25])


def shares(model: nn.Module, x: Tensor) -> dict[str, list[float]]:
    classifier = Classifier(model)
    names = dict(model.named_parameters())
    truth: dict[str, list[float]] = {name: [] for name in names}
    with preserved(model), tracing(model):
        for one in x.split(1):
            own = torch.autograd.grad(model(one), list(names.values()), COTANGENT.to(x.dtype).unsqueeze(0))
            for name, g in zip(names, own, strict=True):
                truth[name].append(float(g.double().norm()))
        return round_off(classifier, x, COTANGENT.to(x.dtype), truth)


def test_a_smooth_model_has_the_round_off_of_its_type() -> None:
    for dtype in (torch.float32, torch.float64):
        found = shares(Waves(1.0).to(dtype), X.to(dtype))
        assert set(found) == {"first.weight", "first.bias", "last.weight", "last.bias"}
        eps = torch.finfo(dtype).eps
        assert eps / 10 < max(share for own in found.values() for share in own) < 100 * eps


def test_a_steep_model_has_more_and_never_more_than_the_most() -> None:
    assert min(shares(Waves(3e4), X)["first.weight"]) > 3e-3
    assert max(shares(Waves(1e9), X)["first.weight"]) == MOST


def test_a_parameter_without_a_gradient_has_no_share() -> None:
    model = nn.Sequential(nn.Linear(5, 3))
    model[0].unused = nn.Parameter(torch.ones(2))
    with preserved(model), tracing(model):
        found = round_off(Classifier(model), X, COTANGENT, {"0.unused": [0.0] * 3})
    assert found == {"0.unused": [0.0] * 3}


def test_only_the_inputs_that_are_asked_about_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = Classifier.functional, []

    def watched(self: Classifier, parameters: Any, x: Any) -> Tensor:
        seen.append(x.detach().clone())
        return real(self, parameters, x)

    monkeypatch.setattr(Classifier, "functional", watched)
    model = Waves(3e4)
    truth = {"first.weight": [1.0, 1.0, 1.0]}
    with preserved(model), tracing(model):
        found = round_off(Classifier(model), X, COTANGENT, truth, [1])
    assert [share > 0 for share in found["first.weight"]] == [False, True, False]
    assert all(torch.equal(x, X[1:2]) for x in seen) and len(seen) == 2


def test_where_parameters_cannot_be_moved_nothing_is_round_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Tensor:
        raise RuntimeError("no parameter of this can be replaced")

    monkeypatch.setattr(Classifier, "functional", fails)
    assert shares(Waves(1.0), X) == {}


class Off:
    """A gradient whose norm is a bit too large."""

    def __init__(self, block: Any, by: Any) -> None:
        self.block, self.by = block, by

    def power(self, norm: int) -> Tensor:
        value: Tensor = self.block.power(norm) * (1 + self.by) ** norm
        return value


@pytest.mark.parametrize(("steep", "by", "trusted"), [(1.0, 2e-3, False), (3e4, 2e-3, True), (3e4, 0.1, False)])
def test_a_rule_is_trusted_as_far_as_the_model_is_steady(
    steep: float, by: float, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = plan.gradient_blocks

    def off(*given: Any) -> Any:
        blocks = real(*given)
        return None if blocks is None else [Off(block, by) for block in blocks]

    monkeypatch.setattr(plan, "gradient_blocks", off)
    model = Waves(steep)
    classifier = Classifier(model)
    before = {name: p.clone() for name, p in model.named_parameters()}
    with preserved(model), tracing(model):
        found = plan.find_plan(classifier, X, *passes._trace(classifier, X, True, None))
    assert ("first.weight" in found.fast) is trusted
    assert all(torch.equal(p, before[name]) and p.grad is None for name, p in model.named_parameters())


def test_inputs_that_a_rule_is_off_for_are_looked_at_without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(classifier: Any, x: Any, cotangent: Any, truth: Any, places: Any) -> dict[str, list[float]]:
        asked.append((sorted(truth), places, torch.backends.cudnn.enabled))
        return {}

    def off(*given: Any) -> Any:
        blocks = real(*given)
        return blocks if blocks is None or given[1][0].node != last else [OffLast(block) for block in blocks]

    class OffLast(Off):
        def __init__(self, block: Any) -> None:
            super().__init__(block, torch.tensor([0.0, 0.0, 0.5]))

    real = plan.gradient_blocks
    monkeypatch.setattr(plan, "round_off", noted)
    monkeypatch.setattr(plan, "gradient_blocks", off)
    model = Waves(1.0)
    classifier = Classifier(model)
    with preserved(model), tracing(model):
        logits, graph = passes._trace(classifier, X, True, None)
        last = graph.uses["last.weight"][0].node
        with cudnn.looking():
            plan.find_plan(classifier, X, logits, graph)
    assert asked == [(["last.bias", "last.weight"], [2], False)] and torch.backends.cudnn.enabled
