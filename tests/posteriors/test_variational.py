import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from nescio.models import Classifier
from nescio.posteriors.prior import prior
from nescio.posteriors.saving import load
from nescio.posteriors.variational import Bound, MeanField, Variational, gaussian_kl
from nescio.training import Recipe, Step, seeded
from nescio.types import InputError, ModelError, Posterior
from tests.toy_data import blobs

RECIPE = Recipe(epochs=8, batch_size=30, lr=0.02, optimizer="adam", schedule="constant")


def network(seed=0):
    with seeded(seed):
        return nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


@pytest.fixture(scope="module")
def fitted():
    return Variational.train(network, blobs(), blobs(60, 1), samples=5, recipe=RECIPE, progress=False)


def test_the_prior_follows_the_fan_in():
    found = prior(Classifier.of(network()))
    stds = {name: std for name, (_, std) in found.items()}
    assert stds == {
        **{"0.weight": 1.0, "0.bias": 1.0, "1.weight": 1.0, "1.bias": 1.0},
        **{"3.weight": pytest.approx((2 / 16) ** 0.5), "3.bias": pytest.approx((2 / 16) ** 0.5)},
    }
    assert torch.equal(found["1.weight"][0], torch.ones(16)) and not found["3.weight"][0].any()
    assert {std for _, std in prior(Classifier.of(network()), 0.3).values()} == {0.3}
    assert list(prior(Classifier.of(nn.Sequential(network()[0].requires_grad_(False), nn.Linear(16, 3))))) == [
        "1.weight",
        "1.bias",
    ]


def test_the_divergence_is_that_of_torch():
    mean, std = torch.randn(50, dtype=torch.float64), torch.rand(50, dtype=torch.float64) + 0.01
    centre = torch.randn(50, dtype=torch.float64)
    expected = kl_divergence(Normal(mean, std), Normal(centre, 0.7))
    torch.testing.assert_close(gaussian_kl(mean, std, centre, 0.7), expected, rtol=1e-12, atol=1e-12)
    model = MeanField(network().double(), None, 0.05)
    total = sum(
        kl_divergence(Normal(mean, 0.05), Normal(*model.prior[name])).sum() for name, mean in model.means.items()
    )
    assert model.kl().item() == pytest.approx(total.item(), rel=1e-12)
    model.kl().backward()
    assert all(rho.grad is not None and rho.grad.any() for rho in model.rho)


def test_the_bound_weighs_the_divergence_by_the_number_of_inputs():
    model, y = MeanField(network(), None, 0.05), torch.tensor([0, 2])
    z = torch.randn(2, 3)
    fit = nn.functional.cross_entropy(z, y).item()
    loss = Bound(kl_weight=0.5, annealing=4)
    for epoch, share in ((1, 0.0), (3, 0.5), (9, 1.0)):
        value = loss(z, y, Step(epoch, 0.0, model, 200, True)).item()
        assert value == pytest.approx(fit + 0.5 * share * model.kl().item() / 200, rel=1e-6)
    assert loss(z, y, Step(9, 0.0, model, 200, False)).item() == pytest.approx(fit)


def test_weights_are_drawn_in_training_alone():
    model = MeanField(network().double(), None, 0.05)
    x = torch.randn(40, 2, dtype=torch.float64)
    model.eval()
    assert torch.equal(model(x), model.inner(x))
    model.inner.eval()
    model.training = True
    draws = torch.stack([model(x) for _ in range(2)])
    assert not torch.equal(draws[0], draws[1])
    assert isinstance(model.inner[0].weight, nn.Parameter)  # put back


def test_training_learns_and_leaves_the_model_given_as_it_was():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    posterior = Variational.train(model, blobs(), blobs(60, 1), recipe=RECIPE, progress=False)
    assert model.training and all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    x, y = blobs(60, 2)
    assert (posterior.predict(x).mean(0).argmax(1) == y).double().mean() > 0.9
    assert posterior.history[-1].loss < posterior.history[0].loss
    assert len({round(std.mean().item(), 5) for std in posterior.stds.values()}) == 6  # all have moved


def test_samples_are_shared_by_all_inputs_and_follow_the_seed(fitted):
    assert isinstance(fitted, Posterior)
    x, _ = blobs(20)
    p = fitted.predict(x)
    assert p.shape == (5, 20, 3) and p.dtype == torch.float64
    torch.testing.assert_close(fitted.predict([x[:3], x[3:]]), p, rtol=1e-5, atol=1e-7)
    other = Variational(fitted.classifiers[0], fitted.stds, samples=5, seed=1)
    assert not torch.equal(other.predict(x), p)
    more = Variational(fitted.classifiers[0], fitted.stds, samples=6)
    assert torch.equal(more.predict(x)[:5], p)  # the first ones stay


def test_drawn_weights_have_the_moments(fitted):
    many = Variational(fitted.classifiers[0], fitted.stds, samples=2000)
    draws = torch.stack([many.weights(s)["3.weight"] for s in range(2000)])
    mean, std = fitted.classifiers[0].parameters()["3.weight"].detach(), fitted.stds["3.weight"]
    assert ((draws.mean(0) - mean).abs() / (std / 2000**0.5)).max() < 5
    torch.testing.assert_close(draws.std(0), std, rtol=0.1, atol=0)


def test_it_is_saved_and_loaded(fitted, tmp_path):
    pytest.importorskip("safetensors")
    fitted.save(tmp_path)
    again = load(tmp_path, network(5))
    assert isinstance(again, Variational)
    x, _ = blobs(9)
    assert torch.equal(again.predict(x), fitted.predict(x))


def test_a_run_that_was_cut_off_goes_on(tmp_path, fitted):
    def stop(epoch):
        if epoch.number == 3:
            raise KeyboardInterrupt

    given = {"samples": 5, "recipe": RECIPE, "folder": tmp_path, "progress": False}
    with pytest.raises(KeyboardInterrupt):
        Variational.train(network, blobs(), blobs(60, 1), **given, on_epoch=stop)
    again = Variational.train(network, blobs(), blobs(60, 1), **given)
    x, _ = blobs(9)
    assert torch.equal(again.predict(x), fitted.predict(x))
    with pytest.raises(InputError, match=r"loss .*prior_std=None.* there, .*prior_std=0.5"):
        Variational.train(network, blobs(), blobs(60, 1), **given, prior_std=0.5)


def test_bad_arguments_are_named():
    with pytest.raises(InputError, match="expected prior_std to be a finite number above 0"):
        Variational.train(network, blobs(), prior_std=0.0)
    with pytest.raises(InputError, match="expected kl_weight to be a finite number above 0"):
        Variational.train(network, blobs(), kl_weight=0.0)
    with pytest.raises(InputError, match="names of parameters of the model, got"):
        Variational(network(), {"nowhere": torch.ones(1)})
    with pytest.raises(InputError, match="standard deviations of at least 0"):
        Variational(network(), {"3.bias": -torch.ones(3)})
    with pytest.raises(ModelError, match=r"expected the function to make a torch.nn.Module, got None"):
        Variational.train(lambda: None, blobs())
    with pytest.raises(ModelError, match="all are frozen"):
        Variational.train(network().requires_grad_(False), blobs())


def test_another_seed_draws_anew():
    x, _ = blobs()
    model = network()
    found = Variational(model, {name: torch.full_like(p, 0.1) for name, p in model.named_parameters()}, samples=2)
    first = found.predict(x)
    found.seed = 1
    assert not torch.equal(found.predict(x), first)
