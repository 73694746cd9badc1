"""Noisy inputs: one noise for all of them, on floating-point tensors alone."""

import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio.models import Classifier
from nescio.quantities import NoisyInputLogits, Request, compute
from nescio.types import InputError


def draw(model: object, x: object, request: Request) -> Tensor:
    logits = compute(Classifier.of(model), x, [request])[request]  # type: ignore[arg-type]
    assert isinstance(logits, Tensor) and logits.dtype == torch.float64
    return logits


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
