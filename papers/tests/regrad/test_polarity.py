"""UNGrad, GradNorm and ExGrad with log(p + ε)."""

import pytest
import torch

import nescio
from nescio.zoo import Normalised, small_cnn
from nescio_papers.regrad import polarity


@pytest.fixture(scope="module")
def network():
    return Normalised(small_cnn(1, 8, 4, kernel=3, filters=3, units=5, seed=0), (0.3,), (0.4,)).double()


@pytest.fixture(scope="module")
def x():
    return torch.rand(3, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_without_epsilon_they_are_the_librarys_scores(network, x):
    found = polarity.scores(network, x)
    right = nescio.score(network, x, ["ungrad", "exgrad"])
    torch.testing.assert_close(found["UNGrad, ε = 0"], right["ungrad"], rtol=1e-9, atol=0)
    torch.testing.assert_close(found["ExGrad, ε = 0"], right["exgrad"], rtol=1e-9, atol=0)
    published = nescio.score(network, x, nescio.scores.GradNorm(as_published=True))
    torch.testing.assert_close(found["GradNorm as published, ε = 0"], published, rtol=1e-9, atol=0)


def test_with_epsilon_they_are_gradients_of_log_p_plus_epsilon(network, x, monkeypatch):
    epsilon = 0.3
    monkeypatch.setattr(polarity, "EPSILONS", (epsilon,))
    found = polarity.scores(network, x)
    for at, one in enumerate(x):
        p = network(one[None]).softmax(1)[0]
        logs = (p + epsilon).log()
        parameters = list(network.parameters())

        def norm(value, parameters=parameters):
            grads = torch.autograd.grad(value, parameters, retain_graph=True)
            return torch.cat([grad.flatten() for grad in grads]).norm()

        norms = torch.stack([norm(log) for log in logs])
        assert float(found["UNGrad, ε = 0.3"][at]) == pytest.approx(float(norms.mean()), rel=1e-9)
        assert float(found["ExGrad, ε = 0.3"][at]) == pytest.approx(float((p.detach() * norms).sum()), rel=1e-9)
        assert float(found["GradNorm as published, ε = 0.3"][at]) == pytest.approx(float(norm(logs.mean())), rel=1e-9)
