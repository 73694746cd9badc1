"""Retraining with maps: the control is plain training, maps move with pictures, runs go on, predictions need maps."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import nescio
from nescio import training
from nescio.mitigate import ALPHA, Attended, Mitigated, attention, retrain
from nescio.mitigate.moving import together
from nescio.posteriors import DeepEnsemble
from nescio.training import Recipe, augment
from nescio.types import InputError, Posterior

RECIPE = Recipe(epochs=2, batch_size=8, lr=0.05, optimizer="sgd")


def factory():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 3))


def examples(n=24, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, 6, 6, generator=draw)
    return x, (x.mean((1, 2, 3)) * 300).long() % 3, torch.rand(n, 6, 6, generator=draw)


def floats(x):
    return x / 255


def test_the_control_is_plain_training_to_the_last_bit():
    x, y, _ = examples()
    found = retrain(factory, (x, y), None, (x, y), recipe=RECIPE, seed=3, progress=False)
    with training.seeded(3):
        plain = factory()
    history = training.train(plain, (x, y), (x, y), recipe=RECIPE, seed=3, progress=False)
    assert list(found.history) == history
    for name, value in plain.state_dict().items():
        assert torch.equal(value, found.network.network.state_dict()[name])
    with torch.no_grad():
        assert torch.equal(found.predict(x)[0], plain(x).double().softmax(1))


@pytest.mark.parametrize("where", ["features", "input"])
def test_it_is_training_of_an_attended_network(where):
    x, y, maps = examples()
    found = retrain(factory, (x, y), maps, recipe=RECIPE, where=where, alpha=3.0, seed=1, progress=False)
    with training.seeded(1):
        model = Attended(factory(), where, alpha=3.0)
    training.train(model, ({"x": x, "attention": attention(maps)}, y), recipe=RECIPE, seed=1, progress=False)
    for name, value in model.state_dict().items():
        assert torch.equal(value, found.network.state_dict()[name])
    with torch.no_grad():
        expected = model(x, attention(maps)).double().softmax(1)
    assert torch.allclose(found.predict(x, maps)[0], expected, atol=1e-6)
    other = retrain(factory, (x, y), None, recipe=RECIPE, seed=1, progress=False)
    assert not torch.allclose(other.predict(x), found.predict(x, maps), atol=1e-4)


@pytest.mark.parametrize(("more", "alpha"), [({}, ALPHA), ({"normalise": "softmax"}, 36.0), ({"alpha": 2}, 2.0)])
def test_the_strength_that_is_taken(more, alpha):
    x, y, maps = examples()
    found = retrain(factory, (x, y), maps, recipe=replace(RECIPE, epochs=1), progress=False, **more)
    assert found.network.alpha == alpha


def test_the_same_seed_gives_the_same_network_and_generators_stay():
    x, y, maps = examples()
    state = torch.get_rng_state()
    one, two = (retrain(factory, (x, y), maps, recipe=RECIPE, seed=5, progress=False) for _ in range(2))
    assert torch.equal(one.predict(x, maps), two.predict(x, maps))
    assert torch.equal(state, torch.get_rng_state())


def test_a_network_is_copied_and_left_as_found():
    x, y, maps = examples()
    model = factory()
    before = copy.deepcopy(model.state_dict())
    found = retrain(model, (x, y), maps, recipe=RECIPE, progress=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not torch.equal(found.network.network[0].weight, model[0].weight) and model.training


def test_a_distribution_makes_the_maps_where_they_are_needed():
    x, y, _ = examples()
    ensemble = DeepEnsemble([factory() for _ in range(3)])
    maps = nescio.explain(ensemble, x)
    given_ = retrain(factory, (x, y), maps, (x, y), validation_maps=maps, recipe=RECIPE, progress=False)
    made = retrain(factory, (x, y), ensemble, (x, y), recipe=RECIPE, progress=False)
    function = retrain(factory, (x, y), lambda x: nescio.explain(ensemble, x), (x, y), recipe=RECIPE, progress=False)
    expected = given_.predict(x, maps)
    assert torch.allclose(made.predict(x), expected, atol=1e-6)
    assert torch.allclose(function.predict(x), expected, atol=1e-6)
    best = max(given_.history, key=lambda epoch: (epoch.validation_accuracy, -epoch.validation_loss))
    assert best.validation_loss == pytest.approx(nescio.evaluate.nll(expected[0], y), abs=1e-5)  # with the maps
    assert made.history == function.history and made.history[0].validation_loss == given_.history[0].validation_loss
    assert torch.allclose(given_.predict(x, ensemble), expected, atol=1e-6)
    assert isinstance(made, Posterior) and nescio.decompose(made.predict(x)).epistemic.max() == 0
    assert 0 < nescio.evaluate.nll(made.predict(x)[0], y) < 5


def test_batches_and_one_batch_agree():
    x, y, maps = examples()
    found = retrain(factory, (x, y), maps, recipe=RECIPE, progress=False)
    whole = found.predict(x, maps)
    assert torch.allclose(found.predict([x[:5], x[5:]], maps), whole, atol=1e-6)
    none = found.predict(x, None)
    with torch.no_grad():
        assert torch.allclose(none[0], found.network.network(x).double().softmax(1), atol=1e-6)


def test_bytes_with_a_transform():
    x, y, maps = examples()
    recipe = Recipe(epochs=1, batch_size=8, transform=floats, augment=augment.horizontal_flip())
    found = retrain(factory, ((x * 255).byte(), y), maps, recipe=recipe, progress=False)
    p = found.predict((x * 255).byte(), maps)
    with torch.no_grad():
        z = found.network((x * 255).byte() / 255, attention(maps))
    assert torch.allclose(p[0], z.double().softmax(1), atol=1e-6)


def test_a_killed_run_goes_on_and_another_alpha_is_another_run(tmp_path):
    x, y, maps = examples()
    recipe = Recipe(epochs=3, batch_size=8, transform=floats, augment=augment.random_crop(1))
    x = (x * 255).byte()

    def stop(epoch):
        if epoch.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrain(factory, (x, y), maps, recipe=recipe, folder=tmp_path, progress=False, on_epoch=stop)
    ended = retrain(factory, (x, y), maps, recipe=recipe, folder=tmp_path, progress=False)
    straight = retrain(factory, (x, y), maps, recipe=recipe, progress=False)
    assert torch.equal(ended.predict(x, maps), straight.predict(x, maps))
    for more in ({"alpha": 2.0}, {"where": "input"}, {"layer": "0"}, {"normalise": "softmax"}):
        with pytest.raises(InputError, match="another folder"):
            retrain(factory, (x, y), maps, recipe=recipe, folder=tmp_path, progress=False, **more)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([None, 0.0, -0.5]))
def test_maps_move_with_the_pictures(seed, fill):
    x = torch.rand(7, 2, 6, 5) + 1  # above 0, so that what came from outside can be told
    moving = augment.compose(augment.random_crop(2, fill=fill), augment.compose(augment.horizontal_flip()))
    torch.manual_seed(seed)
    plain = moving(x)
    after = torch.rand(1)
    torch.manual_seed(seed)
    moved = together(moving, "")({"x": x, "attention": x[:, 1]})
    assert torch.equal(torch.rand(1), after)  # as many random numbers are drawn as without maps
    assert torch.equal(moved["x"], plain)
    expected = plain[:, 1] if fill is None else plain[:, 1].clamp(min=0.0)
    assert torch.equal(moved["attention"], expected)


def test_maps_turn_with_the_pictures():
    x = torch.rand(4, 1, 8, 8)
    moved = together(augment.random_rotation(30), "")({"x": x, "attention": x[:, 0]})
    assert torch.equal(moved["x"][:, 0], moved["attention"]) and not torch.equal(moved["x"], x)


@pytest.mark.parametrize("change", [torch.flip, lambda x: x + 0.1, augment.compose(augment.horizontal_flip(), floats)])
def test_other_augmentations_are_refused(change):
    x, y, maps = examples()
    with pytest.raises(InputError, match="random_crop, horizontal_flip, random_rotation or compose"):
        retrain(factory, (x, y), maps, recipe=Recipe(epochs=1, augment=change), progress=False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x, y, m: retrain(factory, (x, y), m[:5], recipe=RECIPE), "shape \\[24, 6, 6\\], got \\[5, 6, 6\\]"),
        (lambda x, y, m: retrain(factory, (x, y), m, (x, y), recipe=RECIPE), "expected validation_maps="),
        (lambda x, y, m: retrain(factory, (x, y), None, validation_maps=m), "validation_maps= with validation data"),
        (lambda x, y, m: retrain(factory, [(x, y)], m), "a pair of pictures"),
        (lambda x, y, m: retrain(factory, (x[:, 0], y), m), "data= with pictures, a tensor \\[N, C, H, W\\]"),
        (lambda x, y, m: retrain(factory, (x, y), m, normalise="max"), "'range' or 'softmax'"),
        (lambda x, y, m: retrain(factory, (x, y), m, where="head"), "'features' or 'input'"),
        (lambda x, y, m: retrain(factory, (x, y), m, seed=-1), "seed to be a whole number"),
        (lambda x, y, m: retrain(factory, (x, y), lambda x: m[:3]), "one map for each picture"),
    ],
)
def test_mistakes_are_named(change, words):
    with pytest.raises(InputError, match=words):
        change(*examples())


def test_a_prediction_without_its_maps_is_refused():
    x, y, maps = examples()
    found = retrain(factory, (x, y), maps, recipe=Recipe(epochs=1), progress=False)
    assert isinstance(found, Mitigated)
    with pytest.raises(InputError, match="give predict\\(x, maps\\), or maps=None"):
        found.predict(x)
    with pytest.raises(InputError, match="a map for each of 3 pictures, got 24"):
        found.predict(x[:3], maps)
