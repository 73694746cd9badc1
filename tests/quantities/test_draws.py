"""Draws of inputs, parameters and attacks: shared by all inputs, at the right place, refused for tokens."""

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.quantities import AttackedLogits, NoisyInputLogits, NoisyParameterLogits, Request, compute
from nescio.quantities.attacked_logits import _signs
from nescio.types import InputError


def draw(model: object, x: object, request: Request) -> Tensor:
    found = compute(Classifier.of(model), x, [request])[request]  # type: ignore[arg-type]
    assert isinstance(found, Tensor) and found.dtype == torch.float64
    return found


def test_every_input_gets_the_same_noise() -> None:
    """Through the identity, logits − x is the noise itself."""
    x = torch.randn(6, 5)
    noise = draw(nn.Identity(), x, NoisyInputLogits(0.5, 40)) - x.double()
    torch.testing.assert_close(noise, noise[:, :1].expand_as(noise), rtol=0.0, atol=1e-6)
    assert noise[:, 0].std().item() == pytest.approx(0.5, rel=0.15)
    assert noise[:, 0].unique(dim=0).shape == (40, 5)
    other = draw(nn.Identity(), x, NoisyInputLogits(0.5, 40, seed=1)) - x.double()
    assert not torch.allclose(noise, other)


def test_noise_falls_on_the_floating_entries_of_a_mapping_alone() -> None:
    def model(tokens: Tensor, values: Tensor, more: Tensor) -> Tensor:
        assert not tokens.is_floating_point()
        return torch.stack([values[:, 0], more[:, 0]], 1)

    x = {"tokens": torch.zeros(3, 2, dtype=torch.long), "values": torch.zeros(3, 2), "more": torch.zeros(3, 2)}
    found = draw(model, x, NoisyInputLogits(1.0, 20))
    assert found.shape == (20, 3, 2) and found.std() > 0.5
    assert not torch.allclose(found[..., 0], found[..., 1])
    torch.testing.assert_close(found[:, :1].expand_as(found), found)


class Tied(nn.Module):
    """A weight used twice under two names, a frozen one, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("level", torch.zeros(2))
        with torch.no_grad():
            self.a.weight.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), -self.b(x), self.frozen.expand(len(x), 2), self.level.expand(len(x), 2)], 1)


def test_noise_falls_on_every_parameter_once() -> None:
    found = draw(Tied(), torch.eye(2), NoisyParameterLogits(0.5, 30))
    assert torch.equal(found[..., :2], -found[..., 2:4])  # tied weights move together
    assert found[:, 0, 4:6].std().item() == pytest.approx(0.5, rel=0.3)  # frozen parameters move too
    assert not found[..., 6:].any()  # buffers stay
    assert torch.equal(found[:, 0, 4:6], found[:, 1, 4:6])  # all inputs see the same draw
    assert found[:, 0, 0].unique().numel() == 30
    more = draw(Tied(), torch.eye(2), NoisyParameterLogits(0.5, 31))
    assert torch.equal(more[:30], found)  # a draw does not depend on how many there are


@pytest.mark.parametrize("cell", [nn.GRU, nn.LSTM])
def test_recurrent_layers_really_use_the_noise(cell: type[nn.RNNBase]) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(3, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.cell(x)[0][:, -1]

    found = draw(Recurrent(), torch.rand(2, 5, 3), NoisyParameterLogits(0.1, 4))
    assert found[:, 0, 0].unique().numel() == 4


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


@pytest.mark.parametrize("name", ["perturb_x", "mc_aa"])
def test_tokens_cannot_take_noise(name: str) -> None:
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(InputError) as caught:
        nescio.score(model, torch.randint(9, (2, 5)), name, samples=2)
    assert str(caught.value) == (
        "expected floating-point inputs, to which noise can be added, got a tensor of int64 and shape [2, 5]; "
        "use a method without noise on its inputs: entropy, perturb_theta, or a gradient score with samples=0"
    )
    assert nescio.score(model, torch.randint(9, (2, 5)), "perturb_theta", samples=2).shape == (2,)
