import io
import random
from contextlib import redirect_stderr
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from nescio import training
from nescio.training import Recipe, augment, train
from nescio.types import InputError, ModelError
from tests import toy_data
from tests.training.helpers import network, same

blobs = partial(toy_data.blobs, spread=0.3)

RECIPE = Recipe(epochs=6, batch_size=16, lr=0.05, optimizer="sgd", weight_decay=0.0, schedule="constant")


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_it_learns(optimizer):
    model = network()
    history = train(model, blobs(), blobs(60, 1), recipe=replace(RECIPE, optimizer=optimizer, lr=0.02))
    assert history[-1].loss < history[0].loss / 2
    assert training.accuracy(model, *blobs(60, 2)) > 0.95
    assert not model.training and all(weight.grad is None for weight in model.parameters())


def test_the_history_tells_what_was_measured():
    model = network()
    history = train(model, blobs(), blobs(60, 1), recipe=replace(RECIPE, epochs=1))
    x, y = blobs(60, 1)
    (epoch,) = history
    assert epoch.validation_accuracy == pytest.approx(training.accuracy(model, x, y))
    assert epoch.validation_loss == pytest.approx(nn.functional.cross_entropy(model(x), y).item(), abs=1e-6)
    assert 0 < epoch.accuracy < 1
    (plain,) = train(network(), blobs(), recipe=replace(RECIPE, epochs=1))
    assert plain.validation_loss is None and plain.loss == epoch.loss


def test_the_seed_decides_and_the_generators_are_left_alone():
    runs = []
    for seed, noise in ((0, 1), (0, 2), (1, 2)):
        torch.manual_seed(noise)
        random.seed(noise)
        np.random.seed(noise)
        before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        runs.append(network())
        train(runs[-1], blobs(), recipe=replace(RECIPE, epochs=2), seed=seed)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert random.getstate() == before[1] and np.random.get_state()[1].tolist() == before[2]
    assert same(runs[0], runs[1]) and not same(runs[0], runs[2])


@pytest.mark.parametrize("choose", ["accuracy", "loss"])
def test_the_best_epoch_on_validation_is_kept(choose):
    model, kept = network(), []

    def note(epoch):
        kept.append((epoch, {name: value.clone() for name, value in model.state_dict().items()}))

    recipe = replace(RECIPE, epochs=8, lr=3.0, choose=choose)
    history = train(model, blobs(), blobs(60, 1), recipe=recipe, on_epoch=note)
    merit = {
        "accuracy": lambda e: (e.validation_accuracy, -e.validation_loss),
        "loss": lambda e: (-e.validation_loss, e.validation_accuracy),
    }[choose]
    best = max(history, key=merit)
    assert best.number < 8  # the rate is too large on purpose
    for name, value in model.state_dict().items():
        assert torch.equal(value, kept[best.number - 1][1][name])


def test_early_stopping_counts_from_the_best_epoch():
    history = train(network(), blobs(), blobs(60, 1), recipe=replace(RECIPE, epochs=40, lr=3.0, patience=3))
    best = max(history, key=lambda e: (e.validation_accuracy, -e.validation_loss))
    assert len(history) == best.number + 3 < 40
    with pytest.raises(InputError, match="patience: expected validation data"):
        train(network(), blobs(), recipe=replace(RECIPE, patience=3))


def test_a_loader_and_mappings_are_read_like_tensors():
    x, y = blobs(48)
    batches = [(x[:16], y[:16]), (x[16:32], y[16:32].int()), (x[32:], y[32:])]
    loader = DataLoader(TensorDataset(x, y), batch_size=16)
    models = [network() for _ in range(2)]
    for model in models:
        model[2].p = 0.0  # a loader draws a number of its own in every epoch
    for model, data in zip(models, (batches, loader), strict=True):
        train(model, data, data, recipe=replace(RECIPE, epochs=2))
    assert same(*models)

    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, values):
            return {"logits": self.inner(values)}

    named, plain = Named(), network()
    train(named, ({"values": x}, y), recipe=replace(RECIPE, epochs=2))
    train(plain, (x, y), recipe=replace(RECIPE, epochs=2))
    assert same(named.inner, plain)


def test_a_shuffling_loader_follows_the_seed():
    x, y = blobs(48)
    models = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        models.append(network())
        loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
        train(models[-1], loader, recipe=replace(RECIPE, epochs=2))
    assert same(*models)


def test_a_single_last_input_does_not_trip_batch_norm():
    x, y = blobs(33)
    (epoch,) = train(network(), (x, y), recipe=replace(RECIPE, epochs=1))
    assert np.isfinite(epoch.loss)


def test_pictures_as_bytes_are_transformed_and_only_training_batches_augmented():
    x = torch.randint(0, 256, (40, 1, 6, 6), dtype=torch.uint8)
    y, seen = torch.arange(40) % 2, []

    def change(batch):
        seen.append((batch.dtype, len(batch)))
        return augment.horizontal_flip()(batch)

    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 2))
    recipe = replace(RECIPE, epochs=1, batch_size=20, transform=_scaled, augment=change, channels_last=True)
    train(model, (x, y), (x, y), recipe=recipe)
    assert seen == [(torch.float32, 20)] * 2
    assert model[0].weight.is_contiguous()
    with pytest.raises(InputError, match=r"uint8 and shape \[40, 1, 6, 6\]; say how such pictures become floats"):
        train(model, (x, y), recipe=RECIPE)


def _scaled(x):
    return x / 255


def test_bfloat16_keeps_the_weights_in_float32():
    model = network()
    history = train(model, blobs(), blobs(60, 1), recipe=replace(RECIPE, precision="bfloat16"))
    assert history[-1].validation_accuracy > 0.9
    assert {value.dtype for value in model.parameters()} == {torch.float32}


def test_a_loss_is_told_where_the_run_stands():
    model, seen = network(), []

    def loss(output, y, step):
        seen.append(step)
        return nn.functional.cross_entropy(output, y)

    recipe = replace(RECIPE, epochs=2, batch_size=60)
    train(model, blobs(), blobs(60, 1), recipe=recipe, loss=loss)
    assert [(s.epoch, s.progress, s.count, s.training) for s in seen] == [
        *[(1, 0.0, 120, True), (1, 0.25, 120, True), (1, 0.5, 120, False)],
        *[(2, 0.5, 120, True), (2, 0.75, 120, True), (2, 1.0, 120, False)],
    ]
    assert all(step.model is model for step in seen)
    other = network()
    train(other, blobs(), blobs(60, 1), recipe=recipe)
    assert same(model, other)
    with pytest.raises(InputError, match="label_smoothing: expected 0 with a loss of your own"):
        train(model, blobs(), recipe=replace(recipe, label_smoothing=0.1), loss=loss)
    with pytest.raises(ModelError, match="expected the loss to be the mean over the batch, one number"):
        train(model, blobs(), loss=lambda z, y, s: nn.functional.cross_entropy(z, y, reduction="none"))


def test_label_smoothing_is_in_the_training_loss_alone():
    losses = []
    for smoothing in (0.0, 0.3):
        recipe = replace(RECIPE, epochs=1, batch_size=120, lr=1e-9, label_smoothing=smoothing)
        (epoch,) = train(network(), blobs(), blobs(60, 1), recipe=recipe)
        losses.append(epoch)
    assert losses[0].validation_loss == pytest.approx(losses[1].validation_loss, abs=1e-6)
    assert abs(losses[0].loss - losses[1].loss) > 1e-3


def test_a_loss_that_is_not_finite_is_an_error_and_the_weights_are_put_back():
    model = network()

    def loss(output, y, step):
        return nn.functional.cross_entropy(output, y) * (float("nan") if step.epoch == 3 else 1.0)

    with pytest.raises(ModelError, match=r"epoch 3: .*lower the learning rate \(lr=0.05 now\)"):
        train(model, blobs(), blobs(60, 1), recipe=RECIPE, loss=loss)
    two = network()
    train(two, blobs(), blobs(60, 1), recipe=replace(RECIPE, epochs=2))
    assert same(model, two) and not model.training
    fresh = network()
    with pytest.raises(ModelError, match="got nan in training"):
        train(fresh, blobs(), recipe=RECIPE, loss=lambda z, y, s: z.sum() * float("nan"))
    assert same(fresh, network())


def test_bad_arguments_are_named():
    x, y = blobs()
    for data, message in (
        ((x, y[:-1]), "as many training labels as inputs.*120 inputs and 119 labels"),
        ((x[:0], y[:0]), "as many training labels as inputs.*0 inputs and 0 labels"),
        ((x, y + 1), "expected labels from 0 to 2, as the model has 3 classes, got 3"),
        ([(x, y), (x, y + 1)], "expected labels from 0 to 2"),
        ((x * float("nan"), y), "expected finite training inputs"),
        ((x, y.float()), "whole numbers, one class index"),
        (iter([(x, y)]), "can be read only once"),
        ([], "expected a pair .inputs, labels."),
        (x, "expected"),
    ):
        with pytest.raises(InputError, match=message):
            train(network(), data, recipe=RECIPE)
    with pytest.raises(InputError, match="expected seed to be a whole number of at least 0, got -1"):
        train(network(), (x, y), seed=-1)
    for model, message in (
        (lambda x: x, "expected a torch.nn.Module to train"),
        (nn.ReLU(), "expected a model with weights"),
        (network().bfloat16(), r"expected weights in float32, got torch.bfloat16.*precision='bfloat16'"),
        (network().requires_grad_(False), "all are frozen"),
        (nn.Linear(2, 1), "expected logits"),
    ):
        with pytest.raises(ModelError, match=message):
            train(model, (x, y), recipe=RECIPE)


def test_frozen_weights_stay_and_a_gradient_is_taken_even_where_none_is_wanted():
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone(), model[4].weight.clone()
    with torch.no_grad():
        train(model, blobs(), recipe=replace(RECIPE, epochs=1))
    assert torch.equal(model[0].weight, before[0]) and not torch.equal(model[4].weight, before[1])


def test_the_bar_shows_loss_and_accuracy():
    text = io.StringIO()
    with redirect_stderr(text):
        train(network(), blobs(), blobs(60, 1), recipe=replace(RECIPE, epochs=2), progress=True)
    assert "training" in text.getvalue() and "16/16" in text.getvalue()
    assert "loss" in text.getvalue() and "validation accuracy" in text.getvalue()
