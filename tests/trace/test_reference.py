"""The oracle itself: against closed forms, and against derivatives taken in another way."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nescio import trace
from nescio.models import Classifier
from nescio.trace import reference
from nescio.trace.runtime import noise
from nescio.types import InputError
from tests.trace.helpers import SMOOTH, close
from tests.trace.subjects import make

ROWS = ("classes", "uniform", "expected")


def test_the_closed_form_of_a_last_layer() -> None:
    """``‖∂ log p_c/∂(W, b)‖ = ‖e_c − p‖ ‖(h, 1)‖``, and for the sum of absolute values the product of the sums."""
    model: Any
    model, x = make("mlp")
    h = model[:4](x).detach()
    p = model(x).softmax(1).detach()
    difference = torch.eye(5, dtype=torch.float64) - p.unsqueeze(1)
    extended = torch.cat([h, torch.ones(len(h), 1, dtype=torch.float64)], 1)
    for norm in (1, 2):
        size = lambda t: t.norm(p=norm, dim=-1)  # noqa: B023, E731
        found = reference.class_gradients(model, x, select=["4"], norm=norm).norms[:, :, 0]
        torch.testing.assert_close(found, size(difference) * size(extended).unsqueeze(1), rtol=1e-10, atol=0)


def log_p(model: nn.Module, x: Tensor, smoothing: str) -> Any:
    """A function of the parameters that gives the smoothed log-probabilities of one input's copies."""

    def function(parameters: dict[str, Tensor]) -> Tensor:
        z = torch.func.functional_call(model, parameters, (x,))
        return z.log_softmax(1).mean(0) if smoothing == "log" else z.softmax(1).mean(0).log()

    return function


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["mlp", "raw", "tied", "lstm", "vit"])
@pytest.mark.parametrize("smoothing", ["log", "mean"])
@pytest.mark.parametrize("norm", [1, 2])
def test_against_jacobians(name: str, smoothing: str, norm: int) -> None:
    model, x = make(name)
    parameters = {k: p.detach() for k, p in model.named_parameters()}
    settings: dict[str, Any] = {"norm": norm, "smoothing": smoothing, "layers": "tensor", **SMOOTH}
    found = reference.class_gradients(model, x, **settings)
    for i in range(len(x)):
        copies = noise.copies(x[i : i + 1], SMOOTH["sigma"], int(SMOOTH["samples"]), int(SMOOTH["seed"]))
        jacobian = torch.func.jacrev(log_p(model, copies, smoothing))(parameters)
        wanted = torch.stack([jacobian[n].flatten(1).norm(p=norm, dim=1) for n in found.layers], 1)
        torch.testing.assert_close(found.norms[i], wanted, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.probabilities, model(x).softmax(1).detach())


def test_a_number_that_can_be_worked_out_by_hand() -> None:
    """Logits (w, 0) of x = 1 with w = log 3: p = (3/4, 1/4), ∂ log p/∂w = (1/4, −3/4)."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor(math.log(3), dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x * self.w, 0 * x], 1)

    x = torch.ones(1, 1, dtype=torch.float64)
    for way in (trace, reference):
        found = way.class_gradients(Two(), x)
        assert found.norms[0, :, 0].tolist() == pytest.approx([0.25, 0.75], rel=1e-14)
        assert found.probabilities[0].tolist() == pytest.approx([0.75, 0.25], rel=1e-14)
        assert found.layers == ("(root)",)


def test_rows_are_what_they_are_called() -> None:
    """uniform: the gradient of the mean log-probability; expected: of Σ p_c log p_c with p held fixed."""
    model, x = make("mlp")
    parameters = list(model.parameters())
    found, p, names = reference.gradient_norms(Classifier.of(model), x, rows=ROWS, layers="tensor", **SMOOTH)
    assert {row: n.shape[1] for row, n in found.items()} == {"classes": 5, "uniform": 1, "expected": 1}
    assert len(names) == len(parameters)
    for i in range(len(x)):
        copies = noise.copies(x[i : i + 1], SMOOTH["sigma"], int(SMOOTH["samples"]), int(SMOOTH["seed"]))
        smooth = model(copies).log_softmax(1).mean(0)
        for row, objective in (("uniform", smooth.mean()), ("expected", (p[i] * smooth).sum())):
            wanted = [g.norm() for g in torch.autograd.grad(objective, parameters, retain_graph=True)]
            torch.testing.assert_close(found[row][i, 0], torch.stack(wanted))


def test_layers_gather_their_tensors() -> None:
    model, x = make("mlp")
    by_tensor = reference.class_gradients(model, x, layers="tensor")
    by_module = reference.class_gradients(model, x)
    assert by_module.layers == ("0", "2", "4")
    for i, layer in enumerate(by_module.layers):
        own = [j for j, name in enumerate(by_tensor.layers) if name.startswith(f"{layer}.")]
        torch.testing.assert_close(by_module.norms[..., i], (by_tensor.norms[..., own] ** 2).sum(-1).sqrt())
        sums = [reference.class_gradients(model, x, norm=1, layers=w).norms for w in ("tensor", "module")]
        torch.testing.assert_close(sums[1][..., i], sums[0][..., own].sum(-1))


def test_noise_is_the_same_for_every_input_and_call() -> None:
    x = torch.zeros(3, 2, 2, dtype=torch.float64)
    copies = noise.copies(x, 0.5, 4, 7).unflatten(0, (3, 5))
    assert copies[:, 0].eq(0).all()
    assert torch.equal(copies[0], copies[2])
    assert torch.equal(copies, noise.copies(x, 0.5, 4, 7).unflatten(0, (3, 5)))
    assert not torch.equal(copies, noise.copies(x, 0.5, 4, 8).unflatten(0, (3, 5)))
    torch.testing.assert_close(noise.copies(x, 1.0, 4, 7).unflatten(0, (3, 5)), copies * 2)
    torch.testing.assert_close(noise.draws(x.float(), 4, 7).double(), noise.draws(x, 4, 7), rtol=1e-6, atol=1e-7)
    many = noise.draws(torch.zeros(1, 50, dtype=torch.float64), 200, 0)
    assert many.mean().abs() < 0.05
    assert abs(many.std().item() - 1) < 0.05
    assert noise.copies(x, 0.5, 0, 7) is x


def test_noise_needs_numbers() -> None:
    with pytest.raises(InputError, match=r"noise can only be added to floating-point values.*samples=0"):
        noise.copies(torch.zeros(2, 3, dtype=torch.long), 0.1, 2, 0)
    with pytest.raises(InputError, match="mapping"):
        noise.copies({"mask": torch.zeros(2, 3)}, 0.1, 2, 0)


def test_sigma_zero_is_no_smoothing() -> None:
    model, x = make("mlp")
    plain = trace.class_gradients(model, x).norms
    close(trace.class_gradients(model, x, sigma=0.0, samples=5).norms, plain, 1e-12)
    close(trace.class_gradients(model, x, sigma=0.5, samples=0).norms, plain, 1e-12)
    close(reference.class_gradients(model, x, sigma=0.0, samples=5).norms, plain)
    close(reference.class_gradients(model, x, sigma=0.5, samples=0).norms, plain)
