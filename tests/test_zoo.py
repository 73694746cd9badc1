from functools import partial

import pytest
import torch
from torch import nn

from nescio import zoo
from nescio.types import InputError
from tests import toy_data

blobs = partial(toy_data.blobs, spread=0.3)


def network(seed=0):
    from nescio.training.seeding import seeded

    with seeded(seed):
        return nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3))


def fit(model, **settings):
    x, y = blobs()
    return zoo.train(model, x, y, blobs(60, seed=1), **{"epochs": 8, "batch_size": 16, **settings})


def test_it_learns():
    model = network()
    x, y = blobs(60, seed=2)
    assert zoo.accuracy(model, x, y) < 0.8
    history = fit(model)
    assert history[-1].loss < history[0].loss / 2
    assert zoo.accuracy(model, x, y) > 0.95


def test_the_seed_decides_everything_and_the_global_generator_is_left_alone():
    weights = []
    for seed, noise in ((0, 1), (0, 2), (1, 2)):
        torch.manual_seed(noise)
        before = torch.get_rng_state()
        model = network()
        fit(model, seed=seed, epochs=2)
        assert torch.equal(torch.get_rng_state(), before)
        weights.append(model[0].weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_the_best_epoch_on_validation_is_kept():
    model = network()
    kept = []
    history = fit(model, lr=1.5, on_epoch=lambda epoch: kept.append((epoch, model[3].weight.detach().clone())))
    assert [epoch for epoch, _ in kept] == history
    best = max(history, key=lambda epoch: (epoch.validation_accuracy, -epoch.validation_loss))
    assert best.number < len(history)  # the step is too large on purpose: the last epoch is not the best
    assert torch.equal(model[3].weight, kept[best.number - 1][1])
    assert zoo.accuracy(model, *blobs(60, seed=1)) == pytest.approx(best.validation_accuracy)


def test_the_model_comes_back_in_eval_mode_without_gradients():
    model = network()
    fit(model, epochs=1)
    assert not model.training
    assert all(weight.grad is None for weight in model.parameters())


def test_accuracy_leaves_the_modes():
    model = network().train()
    model[1].eval()
    zoo.accuracy(model, *blobs())
    assert (model.training, model[0].training, model[1].training) == (True, True, False)


def test_bad_sizes_are_named():
    x, y = blobs()
    with pytest.raises(InputError, match=r"as many training labels as inputs.*120 inputs and 119 labels"):
        zoo.train(network(), x, y[:-1], (x, y))
    with pytest.raises(InputError, match=r"as many validation labels as inputs.*0 inputs and 0 labels"):
        zoo.train(network(), x, y, (x[:0], y[:0]))
    with pytest.raises(InputError, match="expected epochs to be a whole number of at least 1, got 0"):
        zoo.train(network(), x, y, (x, y), epochs=0)


def test_frozen_weights_stay():
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone(), model[3].weight.clone()
    fit(model, epochs=1)
    assert torch.equal(model[0].weight, before[0])
    assert not torch.equal(model[3].weight, before[1])
