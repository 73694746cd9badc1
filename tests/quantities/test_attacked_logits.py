"""Attacked inputs: the direction climbs the loss, and round-off does not turn it."""

import pytest
import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.quantities import AttackedLogits, Request, compute
from nescio.quantities.attacked_logits import _signs


def draw(model: object, x: object, request: Request) -> Tensor:
    logits = compute(Classifier.of(model), x, [request])[request]  # type: ignore[arg-type]
    assert isinstance(logits, Tensor) and logits.dtype == torch.float64
    return logits


def test_the_attack_climbs_the_loss_of_the_predicted_class() -> None:
    """Logits (2x₁ − x₂, 0, …): the loss of class 0 rises as x₁ falls and x₂ rises; x₃ has no say, and sign(0) = 1."""
    model = nn.Linear(3, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, -1.0, 0.0], [0.0, 0.0, 0.0]]))
    seen = []
    handle = model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().clone()))
    x = torch.tensor([[1.0, 0.5, 0.0], [-1.0, 0.5, 0.0]], dtype=torch.float64)
    draw(model, x, AttackedLogits(0.25, 50))
    handle.remove()
    moved = torch.cat(seen[1:]).view(50, 2, 3) - x
    steps = moved[:, 0, 2]
    assert steps.abs().max() <= 0.25 and steps.min() < -0.2 and steps.max() > 0.2
    torch.testing.assert_close(moved[:, 0], steps[:, None] * torch.tensor([-1.0, 1.0, 1.0]).double())
    torch.testing.assert_close(moved[:, 1], steps[:, None] * torch.tensor([1.0, -1.0, 1.0]).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_off_does_not_turn_the_attack(dtype: torch.dtype) -> None:
    """What is left of a zero is of either sign; a small gradient that is none of it keeps its own."""
    last = torch.finfo(dtype).eps
    gradients = torch.tensor([[-3.0, 20 * last, -20 * last, 0.0, -400 * last], [5e-9, -5e-9, 0.0, -0.0, -1e-30]])
    signs = _signs(gradients.to(dtype)[:, :, None])[:, :, 0]
    assert signs.tolist() == [[-1, 1, 1, 1, -1], [1, -1, 1, 1, 1]] and signs.dtype == dtype


def test_the_attack_has_a_direction_also_where_the_model_is_sure() -> None:
    """The loss's gradient is 1e-43 here: zero in float32, were it not scaled."""
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -10.0], [0.0, 0.0]]))
    seen = []
    handle = model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().clone()))
    x = torch.tensor([[-1.0, -10.0]])
    draw(model, x, AttackedLogits(0.5, 3))
    handle.remove()
    moved = torch.cat(seen[1:]) - x
    assert (moved[:, 0] != 0).all()
    torch.testing.assert_close(moved[:, 0], -moved[:, 1], rtol=1e-3, atol=1e-5)
