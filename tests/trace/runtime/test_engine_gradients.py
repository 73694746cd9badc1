"""The engine's gradients are those of `torch.autograd.grad`, and what that loads first is not loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from nescio.trace.runtime import engine_gradients as module
from nescio.trace.runtime.engine_gradients import engine_gradients

HEAVY = "torch.fx.experimental.symbolic_shapes"
FIRST = f"""
import sys
import torch.utils.checkpoint
print({HEAVY!r} in sys.modules)
import nescio
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.SiLU(), torch.nn.Flatten(), torch.nn.Linear(144, 12))
nescio.score(model, torch.rand(40, 3, 8, 8), ["regrad", "evengrad"], progress=False)
print({HEAVY!r} in sys.modules)
"""


@pytest.fixture(params=["the engine", "without it"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without it":
        monkeypatch.setattr(module, "_RUN", None)


def passed() -> tuple[list[Tensor], Tensor, Tensor]:
    torch.manual_seed(0)
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    inner = first(torch.rand(5, 3)).tanh()
    return [first.weight, nn.Parameter(torch.ones(2)), last.bias], inner, last(inner)


@pytest.mark.usefixtures("either")
def test_they_are_those_of_autograd() -> None:
    wanted, inner, out = passed()
    v = torch.rand(5, 2)
    expected = torch.autograd.grad(out, [*wanted, inner], v, retain_graph=True, allow_unused=True)
    edges = [*wanted, GradientEdge(inner.grad_fn, 0)]
    for ends in ([*wanted, inner], edges):
        found = engine_gradients([out], ends, [v], retain=True)
        assert found[1] is None and expected[1] is None
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True) if a is not None)


@pytest.mark.usefixtures("either")
def test_outputs_may_be_edges_and_cotangents_go_through_vmap() -> None:
    (weight, *_), inner, _ = passed()
    edge, cotangents = GradientEdge(inner.grad_fn, 0), torch.rand(3, 5, 4)
    found = torch.func.vmap(lambda v: engine_gradients([edge], [weight], [v], retain=True)[0])(cotangents)
    one_by_one = [torch.autograd.grad(inner, weight, v, retain_graph=True)[0] for v in cotangents]
    torch.testing.assert_close(found, torch.stack(one_by_one))


@pytest.mark.usefixtures("either")
def test_the_graph_is_let_go_unless_it_is_kept_and_no_gradient_is_left_behind() -> None:
    (weight, *_), _, out = passed()
    engine_gradients([out], [weight], [torch.ones_like(out)])
    with pytest.raises(RuntimeError, match="second time"):
        engine_gradients([out], [weight], [torch.ones_like(out)])
    assert weight.grad is None


def test_a_first_call_loads_no_symbolic_shapes() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    before, after = done.stdout.split()
    if before == "True":
        pytest.skip("this PyTorch loads them by itself")
    assert after == "False"
