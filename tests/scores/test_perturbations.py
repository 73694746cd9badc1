"""The scores from draws, against predictions that are worked out one draw at a time."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nescio
from nescio import scores
from nescio.quantities import AttackedLogits, DropoutLogits, Logits, NoisyInputLogits, NoisyParameterLogits


def kl(q: Tensor, p: Tensor) -> Tensor:
    return (q * (q / p).log()).sum(-1)


def mutual_information(p: Tensor) -> Tensor:
    def h(q: Tensor) -> Tensor:
        return -(q * q.log()).sum(-1)

    return h(p.mean(0)) - h(p).mean(0)


@pytest.fixture
def features(model: Any) -> Any:
    def features(x: Tensor) -> Tensor:
        return torch.tanh(model.hidden(model.act(model.norm(model.conv(x))).flatten(1)))

    return features


def test_perturb_x_is_the_mean_divergence_over_noisy_inputs(model: Any, x: Tensor) -> None:
    found = nescio.score(model, x, "perturb_x", sigma=0.3, samples=5, seed=2)
    noise = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(2)).double()
    model.eval()
    with torch.no_grad():
        p = model(x).softmax(1)
        truth = torch.stack([kl(model(x + 0.3 * e).softmax(1), p) for e in noise]).mean(0)
    torch.testing.assert_close(found, truth, rtol=1e-9, atol=0.0)


def test_perturb_theta_is_the_mean_divergence_over_noisy_parameters(model: Any, x: Tensor) -> None:
    found = nescio.score(model, x, "perturb_theta", sigma=0.05, samples=3, seed=2)
    model.eval()
    truth = []
    with torch.no_grad():
        p = model(x).softmax(1)
        before = [q.clone() for q in model.parameters()]
        for draw in range(3):
            seed = int(np.random.SeedSequence([2, draw]).generate_state(1, np.uint64)[0])
            generator = torch.Generator().manual_seed(seed)
            for q, old in zip(model.parameters(), before, strict=True):
                q.copy_(old + 0.05 * torch.randn(q.shape, generator=generator, dtype=torch.float32))
            truth.append(kl(model(x).softmax(1), p))
    torch.testing.assert_close(found, torch.stack(truth).mean(0), rtol=1e-6, atol=0.0)


def test_mc_aa_is_the_mutual_information_along_the_attack(model: Any, x: Tensor) -> None:
    found = nescio.score(model, x, "mc_aa", a=0.1, samples=6, seed=2)
    steps = 0.1 * (2 * torch.rand(6, generator=torch.Generator().manual_seed(2), dtype=torch.float64) - 1)
    model.eval()
    leaf = x.clone().requires_grad_()
    z = model(leaf)
    loss = nn.functional.cross_entropy(z, z.argmax(1), reduction="sum")
    sign = torch.where(torch.autograd.grad(loss, leaf)[0] >= 0, 1.0, -1.0)
    with torch.no_grad():
        p = torch.stack([model(x + step * sign).softmax(1) for step in steps])
    torch.testing.assert_close(found, mutual_information(p), rtol=1e-8, atol=0.0)


def test_inserted_dropout_is_the_mutual_information_over_masks(model: Any, x: Tensor, features: Any) -> None:
    found = nescio.score(model, x, "inserted_dropout", rate=0.3, samples=6, seed=2)
    masks = (torch.rand(6, 7, generator=torch.Generator().manual_seed(2)) >= 0.3).double() / (1 - 0.3)
    model.eval()
    with torch.no_grad():
        p = torch.stack([model.head(features(x) * mask).softmax(1) for mask in masks])
    torch.testing.assert_close(found, mutual_information(p), rtol=1e-6, atol=0.0)


def test_for_small_noise_perturb_x_is_the_fisher_form() -> None:
    """z = w·(x₁, 0): KL ≈ ½ σ² w² p(1 − p) in the mean over ε."""
    model = nn.Linear(1, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0], [0.0]]))
    x = torch.tensor([[0.3]], dtype=torch.float64)
    p = 1 / (1 + math.exp(-0.6))
    found = nescio.score(model, x, "perturb_x", sigma=1e-4, samples=20000).item()
    assert found == pytest.approx(0.5 * 1e-8 * 4 * p * (1 - p), rel=0.03)


def test_sure_networks_keep_their_order() -> None:
    """Logits (g·x, 0) with x = 1: the larger g, the smaller the score, down to 1e-80."""
    found = []
    for gain in (20.0, 60.0, 120.0, 180.0):
        model = nn.Linear(1, 2, bias=False).double()
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[gain], [0.0]]))
        found.append(nescio.score(model, torch.ones(1, 1, dtype=torch.float64), "perturb_x", samples=10).item())
    assert found[-1] > 0 and found == sorted(found, reverse=True) and found[-1] < 1e-70


def test_the_needs_of_each() -> None:
    assert scores.PerturbX(seed=3).needs == (Logits(), NoisyInputLogits(0.008, 100, 3))
    assert scores.PerturbTheta().needs == (Logits(), NoisyParameterLogits(0.008, 100, 0))
    assert scores.MCAA().needs == (AttackedLogits(1e-4, 100, 0),)
    assert scores.InsertedDropout(layer="fc").needs == (DropoutLogits(0.4, 100, 0, "fc"),)
