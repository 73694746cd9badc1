"""Operations whose gradients PyTorch gets wrong: the oracle against differences of logits, the engine against it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import nescio
from nescio import trace
from nescio.limits import uncertainty
from nescio.trace import reference
from nescio.trace.backward import per_input
from nescio.trace.backward.substitutes.corrected import CorrectedOps
from nescio.types import ClassGradients
from tests.trace.helpers import ready
from tests.trace.subjects import make


class Turned(nn.Module):
    """A norm whose gradient arrives with the channels last in memory."""

    def __init__(self, norm: nn.Module, conv: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.head = conv, norm, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(x[:, None])).flatten(2).transpose(1, 2).tanh().mean(1))


class Inner(nn.BatchNorm2d):
    """The operation behind the function; an exported network calls it by ``torch.ops``."""

    def __init__(self, call: Any) -> None:
        super().__init__(4)
        self.call = call

    def forward(self, input: Tensor) -> Tensor:
        given = (self.weight, self.bias, self.running_mean, self.running_var, False, 0.1, self.eps, False)
        return self.call(input, *given)


NORMS: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm2d(4),
    "bare": lambda: nn.BatchNorm2d(4, affine=False),
    "inner": lambda: Inner(torch.batch_norm),
    "exported": lambda: Inner(torch.ops.aten.batch_norm.default),
    "volume": lambda: nn.BatchNorm3d(4),
    "instance": lambda: nn.InstanceNorm2d(4, affine=True),
    "running": lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
}


def turned(name: str) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    volume = name == "volume"
    model = ready(Turned(NORMS[name](), nn.Conv3d(1, 4, 2) if volume else nn.Conv2d(1, 4, 2)))
    return model, torch.randn(2, *(4,) * (3 if volume else 2), dtype=torch.float64)


def differences(model: nn.Module, x: Tensor, step: float = 1e-4) -> Tensor:
    """Norms [N, C, L] of ∂ log p_c/∂θ_l, tensors in order of names, by central differences of logits alone."""

    @torch.no_grad()
    def log_p() -> Tensor:
        return torch.cat([model(one) for one in x.split(1)]).log_softmax(1)

    norms = []
    for _, p in sorted(model.named_parameters()):
        total, flat = torch.zeros(()), p.detach().view(-1)
        for i in range(len(flat)):
            kept, found = float(flat[i]), []
            for k in (1, -1, 2, -2):
                flat[i] = kept + k * step
                found.append(log_p())
            flat[i] = kept
            near, far = found[0] - found[1], found[2] - found[3]
            total = total + ((8 * near - far) / (12 * step)).square()
        norms.append(total.sqrt())
    return torch.stack(norms, 2)


def agree(found: ClassGradients, wanted: Tensor) -> None:
    """Within the round-off of differences, relative to the input's largest norm."""
    ours = found.norms[..., sorted(range(len(found.layers)), key=lambda i: found.layers[i])]
    assert wanted.amax() > 1e-2
    assert bool(((ours - wanted).abs() <= 1e-8 * wanted.amax((1, 2), keepdim=True)).all())


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_whose_gradient_comes_turned(name: str) -> None:
    """The oracle is what the logits say, for one input at a time, and so is every way of the engine."""
    model, x = turned(name)
    wanted = differences(model, x)
    agree(reference.class_gradients(model, x, layers="tensor"), wanted)
    agree(trace.class_gradients(model, x, layers="tensor"), wanted)
    agree(trace.class_gradients(model, x, layers="tensor", chunk=1), wanted)


@pytest.mark.parametrize("name", ["batch", "instance"])
def test_a_norm_in_a_part_that_is_run_again(name: str) -> None:
    """What activation checkpointing computes in the backward pass is out of reach of a mode of torch."""

    class Again(nn.Module):
        def __init__(self, body: nn.Module) -> None:
            super().__init__()
            self.body = body

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(self.body, x, use_reentrant=False)

    model, x = turned(name)
    again, wanted = Again(model), differences(model, x)
    for way in (reference, trace):
        agree(way.class_gradients(again, x, layers="tensor"), wanted)
        agree(way.class_gradients(again, x[:1], layers="tensor"), wanted[:1])


@pytest.mark.parametrize("name", ["mlp", "raw", "tied", "custom", "lstm"])
def test_the_oracle_is_what_the_logits_say(name: str) -> None:
    model, x = make(name)
    agree(reference.class_gradients(model, x[:1], layers="tensor"), differences(model, x[:1]))


def test_scores_maps_and_surfaces_of_one_input() -> None:
    """What is behind one input alone is what it is in a batch, where PyTorch's own gradient is right."""
    model, x = turned("batch")
    for method in ("gradnorm", "negrad", "regrad"):
        alone = torch.cat([torch.as_tensor(nescio.score(model, one, method)) for one in x.split(1)])
        assert torch.allclose(alone, torch.as_tensor(nescio.score(model, x, method)), rtol=1e-9)
    rows = torch.randn(2, 2, 3, dtype=torch.float64)
    both = trace.input_gradients(model, x, rows)
    assert torch.allclose(trace.input_gradients(model, x[:1], rows[:, :1]), both[:, :1], rtol=1e-9)
    points = x.clone().requires_grad_()
    (whole,) = torch.autograd.grad(uncertainty(model)(points).sum(), points)
    (one,) = torch.autograd.grad(uncertainty(model)(points[:1]).sum(), points)
    assert torch.allclose(one[:1], whole[:1], rtol=1e-9)


def test_the_general_path_of_one_input() -> None:
    model, x = turned("batch")
    classifier = nescio.Classifier(model)
    names = list(classifier.parameters())
    vectors = torch.eye(3, dtype=torch.float64).unsqueeze(1)
    for k in range(3):
        one = per_input.power_sums(classifier, x[:1], names, vectors[k : k + 1], 1, 2)
        many = per_input.power_sums(classifier, x, names, vectors[k : k + 1].expand(1, 2, 3), 1, 2)
        for name in names:
            assert torch.allclose(one[name], many[name][:, :1], rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", ["first", "last", "turned"])
def test_values_and_layouts_are_those_of_pytorch(dtype: torch.dtype, layout: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 5, 4, 3)
    x = {"first": x, "last": x.permute(0, 3, 1, 2), "turned": x.permute(0, 1, 3, 2)}[layout].to(dtype)
    m, v, w, b = torch.randn(x.shape[1]), torch.rand(x.shape[1]) + 0.5, torch.randn(x.shape[1]), torch.randn(x.shape[1])
    m, v, w, b = (t.to(dtype) for t in (m, v, w, b))
    calls: list[Callable[[], Tensor]] = [
        lambda: F.batch_norm(x, m, v, w, b),
        lambda: F.instance_norm(x, weight=w, bias=b),
        lambda: F.instance_norm(x, m, v, w, b, use_input_stats=False),
    ]
    for call in calls:
        wanted = call()
        with CorrectedOps():
            found = call()
        assert found.dtype == wanted.dtype and found.stride() == wanted.stride()
        error = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}[dtype]
        torch.testing.assert_close(found, wanted, rtol=error, atol=error)
