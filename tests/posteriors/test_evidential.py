import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Dirichlet, kl_divergence

from nescio.models import Classifier
from nescio.posteriors.dirichlet import decomposed, divergence_from_flat, sampled
from nescio.posteriors.evidential import Evidential, EvidentialLoss, concentration, misfit, misleading
from nescio.posteriors.saving import load
from nescio.posteriors.temperature import Temperature
from nescio.training import Recipe, Step, seeded
from nescio.types import InputError, ModelError, Posterior
from tests.toy_data import blobs

RECIPE = Recipe(epochs=6, batch_size=32, lr=0.02, optimizer="adam", weight_decay=0.0, schedule="constant")


def network(seed=0, classes=3):
    with seeded(seed):
        return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, classes))


def alphas(count=50, classes=4, seed=0):
    source = torch.Generator().manual_seed(seed)
    return 1 + torch.rand(count, classes, generator=source, dtype=torch.float64).mul(8).exp().sub(1)


def test_the_divergence_is_that_of_torch():
    alpha = alphas()
    expected = kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones_like(alpha)))
    torch.testing.assert_close(divergence_from_flat(alpha), expected, rtol=1e-12, atol=1e-9)
    y = torch.arange(50) % 4
    left = alpha.clone()
    left[torch.arange(50), y] = 1.0
    expected = kl_divergence(Dirichlet(left), Dirichlet(torch.ones_like(left)))
    torch.testing.assert_close(misleading(alpha, y), expected, rtol=1e-12, atol=1e-9)


def test_the_losses_are_the_expectations_they_stand_for():
    """By hand for α = (2, 3, 5), y = 1, and against scipy's digamma and moments."""
    special, stats = pytest.importorskip("scipy.special"), pytest.importorskip("scipy.stats")
    alpha, y = torch.tensor([[2.0, 3.0, 5.0]], dtype=torch.float64), torch.tensor([1])
    mean, variance = stats.dirichlet.mean(alpha[0].numpy()), stats.dirichlet.var(alpha[0].numpy())
    squared = (mean[0] ** 2 + (1 - mean[1]) ** 2 + mean[2] ** 2) + variance.sum()
    assert misfit(alpha, y, "mse").item() == pytest.approx(squared, abs=1e-12)
    assert misfit(alpha, y, "mse").item() == pytest.approx(0.04 + 0.49 + 0.25 + (0.16 + 0.21 + 0.25) / 11, abs=1e-12)
    assert misfit(alpha, y, "nll").item() == pytest.approx(-math.log(0.3), abs=1e-12)
    digamma = special.digamma(10) - special.digamma(3)
    assert misfit(alpha, y, "digamma").item() == pytest.approx(digamma, abs=1e-12)
    draws = Dirichlet(alpha[0]).sample((200_000,))
    assert misfit(alpha, y, "digamma").item() == pytest.approx(-draws[:, 1].log().mean().item(), abs=0.01)


def test_the_weight_of_the_divergence_rises_with_the_epochs():
    z, y = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64), torch.tensor([2])
    alpha = concentration(z, "softplus")
    loss = EvidentialLoss("nll", "softplus", kl=0.5, annealing=10)

    def at(epoch, training=True):
        return loss(z, y, Step(epoch, 0.0, nn.Identity(), 100, training)).item()

    fit, divergence = misfit(alpha, y, "nll").item(), misleading(alpha, y).item()
    for epoch, share in ((1, 0.0), (4, 0.3), (11, 1.0), (30, 1.0)):
        assert at(epoch) == pytest.approx(fit + 0.5 * share * divergence, abs=1e-12)
    assert at(30, training=False) == pytest.approx(fit, abs=1e-12)


def test_evidence_is_never_below_zero():
    z = torch.tensor([-900.0, -1.0, 0.0, 2.0, 900.0], dtype=torch.float64)
    for kind, of_two in (("softplus", math.log1p(math.exp(2))), ("relu", 2.0), ("exp", math.exp(2))):
        alpha = concentration(z, kind)
        assert bool((alpha >= 1).all()) and bool(alpha.isfinite().all())
        assert alpha[3].item() == pytest.approx(1 + of_two, abs=1e-12)


def test_the_decomposition_is_what_samples_come_to():
    alpha = torch.tensor([[1.0, 1.0, 1.0], [2.0, 5.0, 1.5], [40.0, 2.0, 1.0], [9.0, 8.0, 200.0]], dtype=torch.float64)
    found = decomposed(alpha)
    p = sampled(alpha, 20_000, seed=0).exp()
    mean = p.mean(0)
    entropy = -(p * p.clamp(min=1e-300).log()).sum(-1)
    total = -(mean * mean.log()).sum(-1)
    expected = {
        "total": total,
        "aleatoric": entropy.mean(0),
        "epistemic": total - entropy.mean(0),
        "variance": p.var(0).sum(-1),
        "max_probability": 1 - mean.max(-1).values,
        "bregman": -p.log().mean(0).logsumexp(-1),
    }
    for name, value in expected.items():
        torch.testing.assert_close(getattr(found, name), value, rtol=0.03, atol=2e-3, msg=name)


@given(st.lists(st.floats(0.0, 1e12), min_size=2, max_size=6))
def test_the_closed_forms_keep_their_bounds(evidence):
    scipy_stats = pytest.importorskip("scipy.stats")
    alpha = 1 + torch.tensor([evidence], dtype=torch.float64)
    found = decomposed(alpha)
    for value in vars(found).values():
        assert bool(value.isfinite()) and value.item() >= -1e-12
    assert found.epistemic.item() >= 0
    mean = (alpha / alpha.sum())[0].numpy()
    assert found.total.item() == pytest.approx(scipy_stats.entropy(mean), rel=1e-9, abs=1e-9)
    assert found.total.item() == pytest.approx((found.aleatoric + found.epistemic).item(), abs=1e-12)


def test_much_evidence_leaves_a_small_epistemic_part_with_its_digits():
    """For equal α = a: f(a) − f(Ca) = (1/(2a))(1 − 1/C) − …; a plain difference of digammas has no digit left."""
    a = 1e10
    found = decomposed(torch.full((1, 2), a, dtype=torch.float64))
    assert found.epistemic.item() == pytest.approx(1 / (4 * a), rel=1e-9, abs=0)


def test_samples_have_the_distribution_and_do_not_depend_on_the_batch():
    stats = pytest.importorskip("scipy.stats")
    alpha = torch.tensor([[1.0, 1.0, 1.0], [1.3, 7.0, 30.0]], dtype=torch.float64)
    log_p = sampled(alpha, 5000, seed=1)
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(()).double(), atol=1e-12)
    for row in range(2):
        for c in range(3):
            a, b = alpha[row, c].item(), alpha[row].sum().item() - alpha[row, c].item()
            assert stats.kstest(log_p[:, row, c].exp().numpy(), stats.beta(a, b).cdf).pvalue > 1e-3
    torch.testing.assert_close(sampled(alpha[1:], 5000, seed=1), log_p[:, 1:], rtol=0, atol=0)
    assert not torch.equal(sampled(alpha, 5000, seed=2), log_p)


@pytest.mark.parametrize("loss", ["mse", "nll", "digamma"])
def test_training_finds_evidence_where_there_are_data(loss):
    model = network()
    before = [p.clone() for p in model.parameters()]
    posterior = Evidential.train(model, blobs(), blobs(60, 1), loss=loss, annealing=3, recipe=RECIPE, progress=False)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert posterior.history[-1].validation_accuracy > 0.9
    x, _ = blobs(60, 2)
    between = torch.full((20, 2), 1.0) + torch.randn(20, 2) * 0.05
    assert posterior.vacuity(x).mean() < 0.8 * posterior.vacuity(between).mean()
    assert posterior.decompose(x).total.mean() < posterior.decompose(between).total.mean()


def test_predictions_keep_the_protocol():
    posterior = Evidential(network(), samples=400)
    assert isinstance(posterior, Posterior)
    x, _ = blobs(20)
    p = posterior.predict(x)
    assert p.shape == (400, 20, 3) and p.dtype == torch.float64
    torch.testing.assert_close(p.sum(-1), torch.ones(400, 20, dtype=torch.float64))
    torch.testing.assert_close(posterior.predict([x[:7], x[7:]]), p, rtol=1e-5, atol=1e-7)
    alpha = posterior.dirichlet(x)
    with torch.no_grad():
        expected = posterior.classifiers[0].model(x).double().clamp(-10, 10).exp() + 1
    torch.testing.assert_close(alpha, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(posterior.vacuity(x), 3 / alpha.sum(1))
    torch.testing.assert_close(p.mean(0), alpha / alpha.sum(1, keepdim=True), rtol=0.2, atol=0.05)


def test_it_is_saved_and_loaded(tmp_path):
    pytest.importorskip("safetensors")
    posterior = Evidential(network(3), "exp", samples=7, seed=5)
    posterior.save(tmp_path)
    again = load(tmp_path, network(8))
    assert isinstance(again, Evidential) and again.evidence == "exp"
    x, _ = blobs(9)
    assert torch.equal(again.predict(x), posterior.predict(x))


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="expected evidence to be 'softplus', 'relu' or 'exp', got 'sigmoid'"):
        Evidential(network(), "sigmoid")
    with pytest.raises(InputError, match="expected loss to be 'mse', 'nll' or 'digamma', got 'hinge'"):
        Evidential.train(network, blobs(), loss="hinge")
    with pytest.raises(InputError, match="expected kl to be a finite number"):
        Evidential.train(network, blobs(), kl=-1.0)
    with pytest.raises(InputError, match="expected samples to be a whole number of at least 1, got 0"):
        Evidential(network(), samples=0)
    with pytest.raises(ModelError, match="take the softmax or sigmoid off the model"):
        Evidential(Classifier(nn.Sequential(network(), nn.Softmax(1)), output="probabilities"))


def test_a_temperature_scales_its_samples():
    x, _ = blobs()
    base = Evidential(network(), samples=4)
    scaled = Temperature(base)
    scaled.temperature = 2.0
    expected = (base.logits(x) / 2.0).softmax(-1)
    assert scaled.predict(x).shape == (4, *expected.shape[1:])
    torch.testing.assert_close(scaled.predict(x), expected, rtol=0, atol=1e-12)
