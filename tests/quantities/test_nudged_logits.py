"""Inputs moved towards their predicted class, against plain autograd; ODIN from them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.quantities import NudgedLogits, compute
from nescio.types import InputError


def nudged(model: Any, x: Any, size: float, temperature: float, **more: Any) -> Any:
    request = NudgedLogits(size, temperature)
    return compute(Classifier(model), x, [request], **more)[request]


@pytest.mark.parametrize("temperature", [0.5, 1000.0])
def test_it_is_a_step_along_the_sign_of_plain_autograd(net: nn.Sequential, x: Tensor, temperature: float) -> None:
    moving = x.clone().requires_grad_()
    nn.functional.cross_entropy(net(moving) / temperature, net(x).argmax(1), reduction="sum").backward()
    assert moving.grad is not None
    truth = net(x - 0.05 * moving.grad.sign()).detach()
    net.zero_grad()
    torch.testing.assert_close(nudged(net, x, 0.05, temperature), truth, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(nudged(net, x, 0.05, temperature, chunk=2), truth, rtol=1e-12, atol=1e-14)
    odin = nescio.score(net, x, "odin", temperature=temperature, epsilon=0.05)
    torch.testing.assert_close(odin, 1 - (truth / temperature).softmax(1).amax(1), rtol=1e-9, atol=1e-14)
    assert (odin < nescio.score(net, x, "odin", temperature=temperature, epsilon=0.0)).all()


class Blind(nn.Module):
    """Its logits do not depend on the last two values but for round-off, which has a gradient of some sign."""

    def __init__(self, keep: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.keep = keep

    def forward(self, x: Tensor) -> Tensor:
        self.keep(x.detach().clone())
        return torch.stack([3 * x[:, 0], x[:, 1]], 1) + 1e-18 * x[:, 2:3]


def test_where_the_gradient_is_round_off_or_nothing_the_input_stays(x: Tensor) -> None:
    seen: list[Tensor] = []  # outside of the model, whose own lists are put back
    nudged(Blind(seen.append), x, 0.1, 1.0)
    moved = seen[-1] - x
    assert (moved[:, :2].abs() - 0.1).abs().max() < 1e-12 and torch.equal(moved[:, 2:], torch.zeros(9, 2).double())


def test_a_very_sure_network_still_moves() -> None:
    """p_ŷ = 1 in float64: the gradient of log p_ŷ is 0 there, but not its direction."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1e4, 0.0], [0.0, 1e4]]))
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(nudged(model, x, 0.1, 1.0), 1e4 * torch.tensor([[1.1, -0.1]], dtype=torch.float64))


def test_masks_stay_and_tokens_are_refused(net: nn.Sequential, x: Tensor) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, values: Tensor, attention_mask: Tensor) -> Tensor:
            return self.net(values * attention_mask)

    ones = torch.ones_like(x)
    found = nudged(Masked(), {"values": x, "attention_mask": ones}, 0.05, 1.0)
    torch.testing.assert_close(found, nudged(net, x, 0.05, 1.0), rtol=1e-12, atol=1e-14)
    with pytest.raises(InputError, match="expected floating-point inputs"):
        nudged(nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 3)), torch.ones(2, 3).long(), 0.1, 1.0)
