"""Doubts as differentiable functions."""

import math

import pytest
import torch

from nescio import posteriors
from nescio.scores.decomposition import decompose
from nescio_papers.know_your_limits.doubts import METRICS, doubt, of_samples, reader, sampled
from papers.tests.know_your_limits.conftest import ROOT, network


def test_doubts_are_those_of_the_library():
    torch.manual_seed(1)
    z = torch.randn(6, 5, 2, dtype=torch.float64) * 3
    found, right = of_samples(z.log_softmax(-1)), decompose(z.softmax(-1))
    assert torch.allclose(found["max_probability"], right.max_probability, atol=1e-12)
    assert torch.allclose(found["entropy"], right.total / math.log(2), atol=1e-12)
    assert torch.allclose(found["mutual_information"], right.epistemic / math.log(2), atol=1e-12)
    assert torch.allclose(found["variance"], right.variance / 2, atol=1e-12)


def test_the_public_codes_mutual_information_by_hand():
    """Ten samples that say (1, 0) or (½, ½): 5 bits less the mean entropy of the samples, whatever they agree on."""
    p = torch.tensor([[1.0, 0.0]] * 5 + [[0.5, 0.5]] * 5, dtype=torch.float64).clamp(1e-300, 1)[:, None]
    assert float(of_samples(p.log())["published"]) == pytest.approx(4.5, abs=1e-9)
    # as it is written there, over the wrong axis
    wrong = -(p.mean(2) * p.mean(2).log2()).sum(0) - (-(p * p.log2()).sum(2)).mean(0)
    assert float(wrong) == pytest.approx(4.5, abs=1e-9)
    opposed = torch.tensor([[1.0, 0.0]] * 5 + [[0.0, 1.0]] * 5, dtype=torch.float64).clamp(1e-300, 1)[:, None]
    agreed = torch.tensor([[1.0, 0.0]] * 10, dtype=torch.float64).clamp(1e-300, 1)[:, None]
    for samples, mutual in ((opposed, 1.0), (agreed, 0.0)):
        found = of_samples(samples.log())
        assert float(found["mutual_information"]) == pytest.approx(mutual, abs=1e-9)
        assert float(found["published"]) == pytest.approx(5.0, abs=1e-9)  # it cannot tell the two apart


def test_samples_and_gradients_are_those_of_the_posteriors():
    x = ROOT
    data = (x, torch.tensor([0, 1, 0, 1, 1, 0, 1]))
    net, dropped = network(5, 5), network(5, 5, rate=0.3)
    for posterior in (
        posteriors.Deterministic(net),
        posteriors.DeepEnsemble([net, network(4, seed=2)]),
        posteriors.MCDropout(dropped, samples=6),
        posteriors.Laplace(net, samples=4).fit(data),
        posteriors.Variational(net, {n: torch.full_like(p, 0.1) for n, p in net.named_parameters()}, samples=3),
    ):
        p = sampled(posterior)(x).exp()
        assert torch.allclose(p, posterior.predict(x), atol=1e-10), type(posterior).__name__
        given = x.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(doubt(posterior, "entropy")(given).sum(), given)
        step = torch.zeros_like(x)
        step[:, 0] = 1e-6
        rise = (doubt(posterior, "entropy")(x + step) - doubt(posterior, "entropy")(x - step)) / 2e-6
        assert torch.allclose(slope[:, 0], rise, atol=1e-5)
    evidential = posteriors.Evidential(net)
    right = evidential.decompose(x)
    found = reader(evidential)(x)
    assert torch.allclose(found["mutual_information"], right.epistemic / math.log(2), atol=1e-12)
    assert torch.allclose(found["variance"], right.variance / 2, atol=1e-12)  # the mean over two classes
    assert set(found) == set(METRICS)
