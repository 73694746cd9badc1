from functools import partial

import pytest
import torch
from torch import nn

from nescio.posteriors.saving import load
from nescio.posteriors.swag import SWAG, Collector
from nescio.training import Recipe, seeded, train
from nescio.types import InputError, Posterior
from tests import toy_data

blobs = partial(toy_data.blobs, dtype=torch.float64)

RECIPE = Recipe(epochs=5, batch_size=30, lr=0.05, optimizer="sgd", weight_decay=1e-3, schedule="constant")


def network(seed=0, norm=True):
    with seeded(seed):
        middle = nn.BatchNorm1d(8) if norm else nn.Identity()
        return nn.Sequential(nn.Linear(2, 8), middle, nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 3)).double()


@pytest.fixture(scope="module")
def trained():
    model = network()
    train(model, blobs(), recipe=RECIPE, progress=False)
    return model


@pytest.fixture(scope="module")
def fitted(trained):
    return SWAG.train(trained, blobs(), rank=3, samples=4, recipe=RECIPE, progress=False)


def test_the_moments_are_those_of_the_weights_that_were_passed(trained):
    plain = Collector(network(), 3)
    plain.inner.load_state_dict(trained.state_dict())
    recorded = []

    def record(epoch):
        recorded.append({name: p.detach().clone() for name, p in plain.inner.named_parameters()})

    train(plain, blobs(), recipe=RECIPE, progress=False, on_epoch=record)
    found = SWAG.train(trained, blobs(), rank=3, samples=2, recipe=RECIPE, progress=False)
    for name, mean in found.classifiers[0].parameters().items():
        path = torch.stack([weights[name] for weights in recorded])
        torch.testing.assert_close(mean.detach(), path.mean(0), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.variances[name], path.var(0, correction=0), rtol=1e-9, atol=1e-15)
        last = [path[t] - path[: t + 1].mean(0) for t in (2, 3, 4)]
        rows = sorted(found.deviations[name].flatten(1).tolist())
        expected = sorted(row.flatten().tolist() for row in last)
        torch.testing.assert_close(torch.tensor(rows), torch.tensor(expected), rtol=1e-6, atol=1e-9)


def test_draws_have_the_covariance(fitted):
    many = SWAG(fitted.classifiers[0], fitted.variances, fitted.deviations, samples=2000, scale=0.5, seed=3)
    draws = torch.stack([many.weights(s)["4.bias"] for s in range(2000)])
    deviations = fitted.deviations["4.bias"]
    expected = 0.5 * (torch.diag(fitted.variances["4.bias"]) + deviations.T @ deviations / 2)
    scale = expected.diagonal().sqrt()
    error = (torch.cov(draws.T) - expected) / scale.outer(scale)
    assert error.abs().max() < 0.15
    mean = fitted.classifiers[0].parameters()["4.bias"].detach()
    assert ((draws.mean(0) - mean).abs() / scale * 2000**0.5).max() < 5


def test_the_statistics_of_batch_norm_are_those_of_each_sample(fitted):
    x, _ = blobs()
    weights = fitted.weights(2)
    z = x @ weights["0.weight"].T + weights["0.bias"]
    torch.testing.assert_close(fitted.statistics["1.running_mean"][2], z.mean(0), rtol=1e-9, atol=1e-9)
    # the mean of the variances within batches: below that of all data by what the batches' means vary
    assert (fitted.statistics["1.running_var"][2] / z.var(0) - 1).abs().max() < 0.1
    assert not torch.equal(fitted.statistics["1.running_mean"][0], fitted.statistics["1.running_mean"][1])
    norm = nn.functional.batch_norm(
        z,
        fitted.statistics["1.running_mean"][2],
        fitted.statistics["1.running_var"][2],
        weights["1.weight"],
        weights["1.bias"],
    )
    p = (norm.relu() @ weights["4.weight"].T + weights["4.bias"]).softmax(-1)
    torch.testing.assert_close(fitted.predict(x)[2], p, rtol=1e-9, atol=1e-12)


def test_the_model_given_and_the_one_held_are_left_as_they_were(trained):
    trained.train()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    posterior = SWAG.train(trained, blobs(), rank=3, samples=2, recipe=RECIPE, progress=False)
    assert trained.training and all(torch.equal(v, before[n]) for n, v in trained.state_dict().items())
    held = posterior.classifiers[0].module
    before = {name: value.clone() for name, value in held.state_dict().items()}
    posterior.predict(blobs(9)[0])
    assert all(torch.equal(v, before[n]) for n, v in held.state_dict().items())
    assert held[1].momentum == 0.1 and not held.training


def test_predictions_are_good_and_do_not_depend_on_the_batch(fitted):
    assert isinstance(fitted, Posterior)
    x, y = blobs(60, 2)
    p = fitted.predict(x)
    assert p.shape == (4, 60, 3) and not torch.equal(p[0], p[1])
    assert (p.mean(0).argmax(1) == y).double().mean() > 0.9
    torch.testing.assert_close(fitted.predict([x[:7], x[7:]]), p, rtol=1e-9, atol=1e-12)


def test_it_is_saved_and_loaded(fitted, tmp_path):
    pytest.importorskip("safetensors")
    fitted.save(tmp_path)
    again = load(tmp_path, network(5))
    assert isinstance(again, SWAG)
    x, _ = blobs(9)
    assert torch.equal(again.predict(x), fitted.predict(x))


def test_a_run_that_was_cut_off_goes_on(trained, fitted, tmp_path):
    def stop(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    given = {"rank": 3, "samples": 4, "recipe": RECIPE, "folder": tmp_path, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        SWAG.train(trained, blobs(), **given, on_epoch=stop)
    again = SWAG.train(trained, blobs(), **given)
    assert torch.equal(again.predict(blobs(9)[0]), fitted.predict(blobs(9)[0]))


def test_without_batch_norm_no_statistics_are_needed():
    posterior = SWAG.train(network(norm=False), blobs(), rank=2, samples=2, recipe=RECIPE, progress=False)
    assert posterior.statistics == {} and posterior.predict(blobs(9)[0]).shape == (2, 9, 3)


def _scaled(x):
    return x / 255


def test_pictures_as_bytes_go_through_the_recipe_s_transform():
    source = torch.Generator().manual_seed(0)
    y = torch.arange(40) % 2
    x = (torch.randint(0, 100, (40, 1, 4, 4), generator=source) + 100 * y.view(-1, 1, 1, 1)).to(torch.uint8)
    with seeded(0):
        model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))
    recipe = Recipe(epochs=3, batch_size=10, lr=0.1, optimizer="sgd", schedule="constant", transform=_scaled)
    posterior = SWAG.train(model, (x, y), samples=3, recipe=recipe, progress=False)
    assert (posterior.predict(x).mean(0).argmax(1) == y).all()
    assert posterior.statistics["1.running_mean"].abs().max() < 3  # of pictures in [0, 1], not in [0, 255]


def test_bad_arguments_are_named(fitted):
    with pytest.raises(InputError, match="epochs: expected at least 2 to have a variance, but got 1"):
        SWAG.train(network(), blobs(), recipe=Recipe(epochs=1))
    with pytest.raises(InputError, match="expected rank to be a whole number of at least 2"):
        SWAG.train(network(), blobs(), rank=1)
    with pytest.raises(InputError, match="for the same parameters, got 6 variances and 0 deviations of 0 epochs"):
        SWAG(fitted.classifiers[0], fitted.variances, {})
    with pytest.raises(InputError, match="expected scale to be a finite number above 0"):
        SWAG(fitted.classifiers[0], fitted.variances, fitted.deviations, scale=0)
    bare = SWAG(fitted.classifiers[0], fitted.variances, fitted.deviations)
    with pytest.raises(InputError, match="expected batch-norm statistics for every sample"):
        bare.predict(blobs(9)[0])


def test_a_change_of_its_settings_is_not_answered_with_old_draws(trained):
    x, y = blobs()
    recipe = Recipe(epochs=3, optimizer="sgd", lr=0.05, schedule="constant", batch_size=32)
    found = SWAG.train(network(), (x, y), recipe=recipe, samples=2)
    first = found.predict(x)
    found.scale = 2.0
    with pytest.raises(InputError, match="those for other samples, seed or scale; call fit_statistics"):
        found.predict(x)
    found.fit_statistics((x, y))
    assert not torch.equal(found.predict(x), first)
