"""Whatever happens in a call, the model and the world are left as they were found, to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nescio import modes, trace
from nescio._common import memory
from nescio.models import Classifier
from tests.trace.helpers import SMOOTH, identical, ready, state


class Boom(torch.autograd.Function):
    """The identity, with a backward pass that fails."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, error: BaseException) -> Tensor:
        ctx.error = error
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        raise ctx.error


class Model(nn.Module):
    """With all that can be left behind: dropout, batch norm, buffers that count, attributes, random numbers, hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.5)
        self.table = nn.Embedding(6, 5, max_norm=0.5)
        self.raw, self.head = nn.Parameter(torch.randn(5, 5)), nn.Linear(5, 3)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.last: Tensor | None = None
        self.error: BaseException | None = None
        self.where, self.after = "forward", 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        torch.rand(1), np.random.rand(), random.random()
        h = self.drop(self.norm(self.first(x))) + self.table((x[:, 0] > 0).long())
        self.last = h
        self.fresh = h.detach()
        if self.error is not None and int(self.calls) > self.after:
            if self.where == "forward":
                raise self.error
            h = Boom.apply(h, self.error)
        return self.head(torch.tanh(h) @ torch.sin(self.raw))


ERRORS: dict[str, BaseException | None] = {
    "success": None,
    "error": ValueError("the model's own"),
    "interrupt": KeyboardInterrupt(),
    "exit": SystemExit(1),
    "memory": torch.OutOfMemoryError("CUDA out of memory"),
}
CALLS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "class_gradients": lambda m, x: trace.class_gradients(m, x),
    "smoothed": lambda m, x: trace.class_gradients(m, x, norm=1, **SMOOTH),
    "selected": lambda m, x: trace.class_gradients(m, x, select=["raw", "head*", "(root)"][1:]),
    "reference": lambda m, x: trace.reference.class_gradients(m, x),
    "input_gradients": lambda m, x: trace.input_gradients(m, x, torch.ones(2, len(x), 3)),
    "output_gradients": lambda m, x: trace.output_gradients(m, x, lambda z: z.softmax(1).unsqueeze(0)),
}


def prepared() -> Any:
    """Partly frozen, partly in training, with gradients, hooks and a graph of the user's own."""
    torch.manual_seed(0)
    model = ready(Model()).train()
    model.norm.eval()
    model.first.requires_grad_(False)
    model.raw.grad = torch.randn_like(model.raw)
    model.head.register_forward_hook(lambda m, i, y: y)
    model.register_forward_pre_hook(lambda m, i: None)
    model.head.weight.register_hook(lambda g: g)
    model.last = torch.ones(3)
    return model


@pytest.fixture(autouse=True)
def _no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """To collect all garbage takes long where much is loaded."""
    monkeypatch.setattr(memory.gc, "collect", lambda: 0)


def inputs() -> Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "error, where, after",
    [
        ("success", "", 0),
        *((e, w, a) for e in ERRORS if e != "success" for w in ("forward", "backward") for a in (0, 3)),
    ],
)
def test_left_as_found(call: str, error: str, where: str, after: int) -> None:
    """An error in every call of the model, or from the fourth on."""
    model, x = prepared(), inputs()
    model.error, model.where, model.after = ERRORS[error], where, after
    kept = x.clone()
    before = state(model)
    raised: BaseException | None = None
    try:
        CALLS[call](model, x)
    except BaseException as caught:  # interrupts too
        raised = caught
    assert identical(before, state(model))
    assert identical(kept, x)
    assert x.grad is None
    if error == "success":
        assert raised is None
    elif after == 0:
        assert raised is not None


def test_the_test_sees_each_kind_of_change() -> None:
    """Each thing that is compared can fail."""
    changes: dict[str, Callable[[Any], Any]] = {
        "values": lambda m: m.head.weight.data.add_(1e-12),
        "buffer": lambda m: m.calls.add_(1),
        "buffer object": lambda m: setattr(m, "calls", m.calls.clone()),
        "parameter object": lambda m: setattr(m, "raw", nn.Parameter(m.raw.detach().clone())),
        "grad": lambda m: m.raw.grad.mul_(2),
        "grad object": lambda m: setattr(m.raw, "grad", m.raw.grad.clone()),
        "requires_grad": lambda m: m.first.requires_grad_(True),
        "training": lambda m: m.norm.train(),
        "hook": lambda m: m.head.register_forward_hook(lambda *a: None),
        "tensor hook": lambda m: m.head.bias.register_hook(lambda g: g),
        "attribute": lambda m: setattr(m, "new", 1),
        "torch": lambda m: torch.rand(1),
        "numpy": lambda m: np.random.rand(),
        "python": lambda m: random.random(),
    }
    for name, change in changes.items():
        model = prepared()
        before = state(model)
        assert identical(before, state(model))
        change(model)
        assert not identical(before, state(model)), name


def test_a_tensor_that_is_kept_is_the_users_own() -> None:
    """What the engine ran leaves no tensor of its own on the model, dead ones of vmap least of all."""
    model, x = prepared(), inputs()
    own = model.last
    trace.class_gradients(model, x)
    assert model.last is own
    assert not hasattr(model, "fresh")


def test_a_graph_of_the_users_own_survives() -> None:
    model, x = ready(Model()), inputs()
    loss = model(x).sum()
    trace.class_gradients(model, x)
    loss.backward()
    assert model.head.weight.grad is not None


def test_modes_of_torch_are_left_alone() -> None:
    model, x = ready(Model()), inputs()
    classifier = Classifier.of(model)
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            trace.gradient_norms(classifier, x)
            assert torch.is_grad_enabled() == enabled
    with torch.inference_mode():
        trace.gradient_norms(classifier, x)
        assert torch.is_inference_mode_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trace.gradient_norms(classifier, x)
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


def test_the_same_call_gives_the_same_bits() -> None:
    model, x = prepared(), inputs()
    first = trace.class_gradients(model, x, **SMOOTH)
    torch.rand(3)
    again = trace.class_gradients(model, x, **SMOOTH)
    assert identical(first.norms, again.norms)
    assert identical(first.probabilities, again.probabilities)


def test_without_recordings_the_modes_are_entered_once_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = prepared(), inputs()
    entered: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(modes, name)
        return lambda *args, **settings: (entered.append(name), original(*args, **settings))[1]

    for name in ("preserved", "tracing"):
        monkeypatch.setattr(modes, name, counted(name))
    for _ in range(4):
        entered.clear()
        trace.class_gradients(model, x, chunk=2)
        assert entered == ["preserved", "tracing"]
