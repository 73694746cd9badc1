"""Ensembles, and which pictures they doubt."""

import torch

import nescio
from nescio_papers import zoo
from nescio_papers.runner.parts import Pictures
from nescio_papers.ua_backprop.ensemble import Ensemble, doubtful
from nescio_papers.zoo import small_cnn


def test_the_uncertainty_is_that_of_the_posterior():
    networks = tuple(small_cnn(1, 8, 10, kernel=3, seed=seed).eval() for seed in range(3))
    ensemble = Ensemble(networks, "some", "cpu")
    x = torch.rand(7, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 20
    wanted = nescio.decompose(ensemble.posterior.predict(x)).epistemic
    torch.testing.assert_close(ensemble.epistemic(x), wanted, rtol=0, atol=1e-12)
    y = ensemble.posterior.predict(x).mean(0).argmax(1)
    assert bool(ensemble.right(x, y).all()) and not bool(ensemble.right(x, (y + 1) % 10).any())
    assert len(ensemble.first(2).networks) == 2 and ensemble.first(2).id != ensemble.id


def test_the_most_doubtful_come_first_and_none_without_doubt():
    class Made(Ensemble):
        def epistemic(self, x):
            return x[:, 0, 0, 0].double()

    x = torch.tensor([10, 0, 200, 30], dtype=torch.uint8).view(4, 1, 1, 1)
    pictures = Pictures(x, torch.zeros(4, dtype=torch.int64), "some", "", "some")
    assert doubtful(Made((), "", "cpu"), pictures, None, 4).tolist() == [2, 3, 0]
    assert doubtful(Made((), "", "cpu"), pictures, 2, 4).tolist() == [0]


def test_another_order_in_memory_changes_nothing_but_round_off():
    networks = tuple(zoo.resnet.resnet18_cifar(seed=seed).double().eval() for seed in range(2))
    ensemble = Ensemble(networks, "some", "cpu")
    x = torch.rand(3, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    there = x.contiguous(memory_format=torch.channels_last)
    assert ensemble.laid_out[0].conv1.weight.stride() != networks[0].conv1.weight.stride()
    for network, other in zip(networks, ensemble.laid_out, strict=True):
        torch.testing.assert_close(other(there), network(x), rtol=1e-9, atol=1e-9)
