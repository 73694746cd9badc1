"""Gradients at the input and at modules' outputs, against plain autograd and hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import trace
from nescio.types import InputError, ModelError
from tests.trace.helpers import identical, ready, state
from tests.trace.subjects import make


def cotangents(rows: int, n: int, classes: int) -> Tensor:
    return torch.randn(rows, n, classes, dtype=torch.float64)


def by_autograd(model: nn.Module, x: Tensor, v: Tensor) -> tuple[Tensor, dict[str, list[Tensor]]]:
    """Input gradients [R, ...] and, for each module, those at its outputs, with every output cloned."""
    x = x.clone().requires_grad_()
    kept: list[tuple[str, Tensor]] = []

    def keep(name: str) -> Callable[..., Tensor]:
        def hook(module: nn.Module, args: Any, y: Any) -> Any:
            if not isinstance(y, Tensor):
                return y
            y = y.clone()
            kept.append((name, y))
            return y.clone()

        return hook

    leaves = [(n, m) for n, m in model.named_modules() if not list(m.children())]
    handles = [m.register_forward_hook(keep(n)) for n, m in leaves]
    z = model(x.clone())
    for handle in handles:
        handle.remove()
    rows = [
        torch.autograd.grad((z * u).sum(), [x, *(y for _, y in kept)], retain_graph=True, allow_unused=True) for u in v
    ]
    found: dict[str, list[Tensor]] = {}
    for i, (name, y) in enumerate(kept):
        parts = [torch.zeros_like(y) if r[i + 1] is None else r[i + 1] for r in rows]
        found.setdefault(name, []).append(torch.stack(parts))
    return torch.stack([r[0] for r in rows]), found


@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "resnet18", "vit", "convnext", "tied", "twice", "raw", "lstm", "custom"]
)
def test_against_plain_autograd(name: str) -> None:
    model, x = make(name)
    v = cotangents(2, len(x), model(x).shape[1])
    inputs, outputs = by_autograd(model, x, v)
    torch.testing.assert_close(trace.input_gradients(model, x, v), inputs, rtol=1e-9, atol=1e-12)
    found = trace.output_gradients(model, x, v)
    torch.testing.assert_close(found.logits, model(x).detach())
    torch.testing.assert_close(found.inputs, inputs, rtol=1e-9, atol=1e-12)
    assert {c.module for c in found.calls} == set(outputs)
    for module, wanted in outputs.items():
        calls = [c for c in found.calls if c.module == module]
        assert len(calls) == len(wanted)
        for call, gradient in zip(calls, wanted, strict=True):
            assert call.gradient.shape == (2, *call.output.shape)
            torch.testing.assert_close(call.gradient, gradient, rtol=1e-9, atol=1e-12)


def test_cotangents_as_a_function_of_the_logits() -> None:
    model, x = make("cnn")
    p = model(x).softmax(1).detach()
    given = torch.eye(5, dtype=torch.float64).unsqueeze(1) - p  # e_c − p
    seen: list[Tensor] = []

    def function(z: Tensor) -> Tensor:
        seen.append(z)
        return torch.eye(z.shape[1]).to(z).unsqueeze(1) - z.softmax(1)

    torch.testing.assert_close(trace.input_gradients(model, x, function), trace.input_gradients(model, x, given))
    assert not seen[0].requires_grad


def test_values_are_those_that_the_module_gave() -> None:
    """An activation in place after a layer, and after a view of one, changes neither value nor gradient."""
    first, second = (nn.Conv2d(1, 2, 3), nn.ReLU(inplace=True)), (nn.Conv2d(2, 2, 3), nn.Flatten())
    model = ready(nn.Sequential(*first, *second, nn.ReLU(inplace=True), nn.Linear(8, 3)))
    x = torch.randn(3, 1, 6, 6, dtype=torch.float64)
    v = cotangents(2, 3, 3)
    found = {c.module: c for c in trace.output_gradients(model, x, v).calls}
    h = model[0](x)
    torch.testing.assert_close(found["0"].output, h.detach())
    assert found["0"].output.min() < 0
    torch.testing.assert_close(found["1"].output, h.relu().detach())
    flat = model[2](h.relu()).flatten(1).detach().requires_grad_()
    torch.testing.assert_close(found["3"].output, flat.detach())
    assert flat.min() < 0
    for r in range(2):
        (wanted,) = torch.autograd.grad((model[5](flat.relu()) * v[r]).sum(), flat)
        torch.testing.assert_close(found["3"].gradient[r], wanted)
        assert wanted.abs().sum() > 0


class Shy(nn.Module):
    """One module is called twice, one not at all, and one for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.never, self.nothing, self.head = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        self.nothing(x)
        return self.head(torch.tanh(self.twice(torch.tanh(self.twice(x)))))


def test_modules_called_twice_or_never() -> None:
    model, x = ready(Shy()), torch.randn(3, 4, dtype=torch.float64)
    calls = trace.output_gradients(model, x, cotangents(1, 3, 4)).calls
    assert [c.module for c in calls] == ["nothing", "twice", "twice", "head"]
    assert calls[0].gradient.eq(0).all()
    assert calls[0].gradient.shape == (1, 3, 4)
    assert not torch.equal(calls[1].output, calls[2].output)
    assert calls[1].gradient.abs().sum() > 0
    only = trace.output_gradients(model, x, cotangents(1, 3, 4), modules=["head"]).calls
    assert [c.module for c in only] == ["head"]


class Named(nn.Module):
    """Several inputs by name, of which one is made of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, ids: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(ids) * weight.unsqueeze(2)).mean(1) + shift)


def test_named_inputs_and_tokens() -> None:
    model = ready(Named())
    x = {
        "ids": torch.randint(0, 9, (4, 5)),
        "weight": torch.rand(4, 5, dtype=torch.float64),
        "shift": torch.randn(4, 4, dtype=torch.float64),
    }
    v = cotangents(2, 4, 3)
    found = trace.input_gradients(model, x, v)
    assert set(found) == {"weight", "shift"}
    asked = {k: t.clone().requires_grad_() for k, t in x.items() if t.is_floating_point()}
    for r in range(2):
        wanted = torch.autograd.grad((model(x["ids"], **asked) * v[r]).sum(), list(asked.values()))
        for name, gradient in zip(asked, wanted, strict=True):
            torch.testing.assert_close(found[name][r], gradient)
    tokens, x = make("gru")
    read = trace.output_gradients(tokens, x, cotangents(1, 4, 4), modules=["embedding"])
    assert read.inputs is None
    assert read.calls[0].output.shape == (4, 6, 6)
    assert read.calls[0].gradient.abs().sum() > 0


def test_an_input_that_is_not_reached_has_zeros() -> None:
    class Constant(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.ones_like(x))

    model, x = ready(Constant(4, 3)), torch.randn(2, 4, dtype=torch.float64)
    assert trace.input_gradients(model, x, cotangents(2, 2, 3)).tolist() == torch.zeros(2, 2, 4).tolist()


def test_a_frozen_model_in_training_and_no_grad_around() -> None:
    model, x = make("cnn")
    v = cotangents(1, len(x), 5)
    wanted = trace.input_gradients(model, x, v)
    model.train().requires_grad_(False)
    before = state(model)
    with torch.no_grad():
        torch.testing.assert_close(trace.input_gradients(model, x, v), wanted)
    assert identical(before, state(model))


@pytest.mark.parametrize("inside", ["forward", "cotangents"])
def test_hooks_are_gone_after_a_failure(inside: str) -> None:
    model, x = make("cnn")
    model.train()

    def fail(*_: Any) -> Tensor:
        raise KeyboardInterrupt

    own = model.register_forward_hook(fail) if inside == "forward" else None
    before = state(model)
    with pytest.raises(KeyboardInterrupt):
        trace.output_gradients(model, x, fail)
    assert identical(before, state(model))
    assert own is None or len(model._forward_hooks) == 1


class Silent(nn.Linear):
    """Nothing of it has a gradient."""

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def test_errors_say_what_to_do() -> None:
    model, x = make("mlp")
    with pytest.raises(InputError, match=r"expected cotangents \[R, 4, 5\] \(rows, inputs, classes\).*got \[4, 5\]"):
        trace.input_gradients(model, x, torch.zeros(4, 5))
    with pytest.raises(InputError, match=r"got \[2, 3, 5\]"):
        trace.input_gradients(model, x, torch.zeros(2, 3, 5))
    with pytest.raises(InputError, match=r"R >= 1; got \[0, 4, 5\]"):
        trace.input_gradients(model, x, torch.zeros(0, 4, 5))
    with pytest.raises(InputError, match="no module named 'layer9'; it has: 0, 1, 2, 3, 4"):
        trace.output_gradients(model, x, torch.zeros(1, 4, 5), modules=["layer9"])
    with pytest.raises(ModelError, match="logits with a gradient at the input, but those of Silent have none"):
        trace.input_gradients(Silent(6, 5).double(), x, torch.zeros(1, 4, 5))
    with pytest.raises(InputError, match="NaN or infinite"):
        trace.input_gradients(model, x * torch.nan, torch.zeros(1, 4, 5))
