"""Many small CNNs at once give what each of them gives alone."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from nescio.zoo import Normalised, small_cnn
from nescio_papers.runner.stacked import Trainer, _halved, logits, put_into, stacked
from nescio_papers.zoo.plans import SGD, to_floats


@pytest.fixture(scope="module")
def networks():
    made = [small_cnn(3, 10, 4, kernel=3, filters=4, units=6, seed=seed, hidden=2) for seed in range(3)]
    return [Normalised(network, (0.4, 0.5, 0.6), (0.2, 0.3, 0.2)).double() for network in made]


@pytest.fixture
def pictures():
    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (40, 3, 10, 10), generator=draw).double(), torch.randint(0, 4, (40,), generator=draw)


def test_logits_are_those_of_each_network(networks):
    x = torch.rand(3, 5, 3, 10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    state = stacked(networks)
    alone = torch.stack([network(own) for network, own in zip(networks, x, strict=True)])
    torch.testing.assert_close(logits(networks[0], state, x), alone, rtol=1e-12, atol=1e-12)
    shared = torch.stack([network(x[0]) for network in networks])
    torch.testing.assert_close(logits(networks[0], state, x[:1]), shared, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [10, 11])
def test_logits_without_gradients_are_the_same(size):
    networks = [Normalised(small_cnn(2, size, 4, kernel=3, filters=4, seed=seed), (0.4,), (0.2,)) for seed in range(3)]
    x = torch.rand(1, 7, 2, size, size, generator=torch.Generator().manual_seed(1))
    state = stacked(networks)
    with torch.no_grad():
        found = logits(networks[0], state, x)
    torch.testing.assert_close(found, logits(networks[0], state, x).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [8, 9])
def test_maxima_of_four_pixels_are_those_of_a_pooling(size):
    x = torch.randn(3, 4, size, size, generator=torch.Generator().manual_seed(2)).relu()
    assert torch.equal(_halved(x), torch.nn.MaxPool2d(2)(x))


def test_training_is_sgd_of_each_network_alone(networks, pictures):
    x, y = pictures
    recipe = replace(SGD, epochs=3, batch_size=4, lr=0.05)
    indices = torch.stack([torch.arange(6), torch.arange(6, 12), torch.arange(12, 18)])
    seeds = (3, 4, 5)
    trainer = Trainer(networks[0], x, y, recipe, every=3)
    found = trainer.train(stacked(networks), indices, torch.arange(20, 40), seeds, lambda: None)
    for at, seed in enumerate(seeds):
        one = Normalised(small_cnn(3, 10, 4, kernel=3, filters=4, units=6, hidden=2), (0.4, 0.5, 0.6), (0.2, 0.3, 0.2))
        one.load_state_dict(networks[at].state_dict())
        one.double()
        step = torch.optim.SGD(one.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        order = torch.Generator().manual_seed(seed)
        for _ in range(3):
            for batch in indices[at][torch.randperm(6, generator=order)].split(4):
                step.zero_grad()
                cross_entropy(one(to_floats_double(x[batch])), y[batch]).backward()
                step.step()
        for name, value in one.named_parameters():
            torch.testing.assert_close(found[name][at], value.detach(), rtol=1e-4, atol=1e-6)


def test_the_precision_of_steps_is_a_gpus_alone_and_leaves_parameters_as_they_are(pictures, monkeypatch):
    x, y = pictures
    cnns = [small_cnn(3, 10, 4, kernel=3, filters=4, seed=seed) for seed in (0, 1)]
    networks = [Normalised(cnn, (0.4,) * 3, (0.2,) * 3) for cnn in cnns]
    found = {}
    for precision in (None, "bfloat16", "as on a GPU"):
        recipe = replace(SGD, epochs=3, batch_size=4, precision="bfloat16" if precision else None)
        trainer = Trainer(networks[0], x.byte(), y, recipe)
        if precision == "as on a GPU":
            rounding = torch.autocast("cpu", torch.bfloat16, cache_enabled=False)
            monkeypatch.setattr(trainer, "_rounding", lambda rounding=rounding: rounding)
        indices = torch.stack([torch.arange(6), torch.arange(6, 12)])
        found[precision] = trainer.train(stacked(networks), indices, torch.arange(20, 40), (3, 4), lambda: None)
    for name, value in found[None].items():
        assert torch.equal(found["bfloat16"][name], value)
        rounded = found["as on a GPU"][name]
        assert rounded.dtype == torch.float32 and not torch.equal(rounded, value)
        torch.testing.assert_close(rounded, value, rtol=0.0, atol=5e-3)


def test_a_network_trains_alike_among_others_and_alone(networks, pictures):
    x, y = pictures
    trainer = Trainer(networks[0], x, y, replace(SGD, epochs=4, batch_size=4, lr=0.05), every=2)
    indices, chosen = torch.stack([torch.arange(6), torch.arange(6, 12), torch.arange(12, 18)]), torch.arange(20, 40)
    among = trainer.train(stacked(networks), indices, chosen, (3, 3, 5), lambda: None)
    for at, seed in enumerate((3, 3, 5)):
        alone = trainer.train(stacked(networks[at : at + 1]), indices[at : at + 1], chosen, (seed,), lambda: None)
        for name, value in alone.items():
            torch.testing.assert_close(among[name][at], value[0], rtol=1e-9, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recorded_steps_are_those_of_the_processor(networks, pictures):
    x, y = pictures
    recipe = replace(SGD, epochs=3, batch_size=4, lr=0.05)
    indices = torch.stack([torch.arange(6), torch.arange(6, 12), torch.arange(12, 18)])
    found = []
    for device in ("cpu", "cuda"):
        like = copy.deepcopy(networks[0]).to(device)
        state = {name: value.to(device) for name, value in stacked(networks).items()}
        trainer = Trainer(like, x.to(device), y.to(device), recipe, every=3)
        if device == "cuda":
            assert trainer._ready({n: v.clone().requires_grad_() for n, v in state.items()},
                                  {n: torch.zeros_like(v) for n, v in state.items()}, indices[:, :4].cuda()
                                  ).__name__ == "replayed"  # fmt: skip
        chosen = torch.arange(20, 40, device=device)
        found.append(trainer.train(state, indices.to(device), chosen, (3, 4, 5), lambda: None))
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name].cpu(), value, rtol=1e-9, atol=1e-12)


def to_floats_double(x):
    return to_floats(x).double()  # the trainer, too, makes pictures floats of single precision first


def test_the_best_epoch_of_each_network_is_kept(networks, pictures, monkeypatch):
    x, y = pictures
    trainer = Trainer(networks[0], x, y, replace(SGD, epochs=2, batch_size=4, lr=0.05), every=1)
    reached = iter([torch.tensor([[0.5, 0], [0.9, 0], [0.5, -1.0]]), torch.tensor([[0.6, 0], [0.1, 0], [0.5, -0.5]])])
    monkeypatch.setattr(Trainer, "_reached", lambda *args: next(reached))
    seen = []
    real = Trainer._step

    def watched(self, parameters, velocity, batch):
        real(self, parameters, velocity, batch)
        seen.append({name: value.detach().clone() for name, value in parameters.items()})

    monkeypatch.setattr(Trainer, "_step", watched)
    indices = torch.arange(12).view(3, 4)
    best = trainer.train(stacked(networks), indices, torch.arange(20, 40), (0, 0, 0), lambda: None)
    name = "network.dense1.weight"
    assert len(seen) == 2
    for at, epoch in enumerate((1, 0, 1)):  # more right answers, or as many with a smaller loss
        assert torch.equal(best[name][at], seen[epoch][name][at])


def test_one_network_is_taken_out(networks):
    state = stacked(networks)
    other = Normalised(small_cnn(3, 10, 4, kernel=3, filters=4, units=6, hidden=2), (0.4, 0.5, 0.6), (0.2, 0.3, 0.2))
    put_into(other.double(), state, 2)
    for (_, found), (_, right) in zip(other.named_parameters(), networks[2].named_parameters(), strict=True):
        assert torch.equal(found, right)
