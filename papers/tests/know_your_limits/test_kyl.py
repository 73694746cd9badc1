"""The studies of "Know your limits": their data, doubts, regions, and a small run of each."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine, make_moons
from sklearn.preprocessing import StandardScaler
from torch import nn

from nescio import posteriors
from nescio.scores.decomposition import decompose
from nescio_papers import reproduce
from nescio_papers.know_your_limits import models, moons, polytopes, scaling
from nescio_papers.know_your_limits.doubts import METRICS, doubt, of_samples, reader, sampled
from nescio_papers.know_your_limits.half_moons import between, half_moons
from nescio_papers.know_your_limits.polygons import Polygons, _cut, polygons

ROOT = torch.randn(7, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def network(*hidden, inputs=2, classes=2, rate=0.0, seed=0):
    torch.manual_seed(seed)
    return models.mlp(inputs, classes, models.Net(hidden, rate, 0.0))().eval()


def test_half_moons_are_those_of_scikit_learn():
    found = half_moons(0, 30, 11, noise=0.0)
    x, y = torch.cat([found.x, found.held_x]), torch.cat([found.y, found.held_y])
    theirs, labels = make_moons((21, 20), shuffle=False, noise=0.0)
    order = np.lexsort((*x.numpy().round(9).T, y.numpy()))
    other = np.lexsort((*theirs.round(9).T, labels))
    assert x.numpy()[order] == pytest.approx(theirs[other], abs=1e-7)
    assert y.numpy()[order].tolist() == labels[other].tolist()
    assert torch.equal(half_moons(5).x, half_moons(5).x)
    assert float((half_moons(1, 4000, 2).x - half_moons(1, 4000, 2, noise=0.0).x).std()) == pytest.approx(
        0.125, rel=0.05
    )


def test_places_of_the_plane():
    data = half_moons(0)
    ring = data.ring(10, 16)
    middle = data.x.mean(0)
    reach = (data.x - middle).norm(dim=1).max()
    assert torch.allclose((ring - middle).norm(dim=1), 10 * reach)
    place = between()
    assert len(place) > 100
    upper = (place.norm(dim=1) - 1).abs()[place[:, 1] > 0]  # above 0 the nearest point of the upper moon is radial
    assert float(upper.max()) < 0.6 + 0.02


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


def test_dropout_left_off_is_certain_of_itself():
    posterior = posteriors.MCDropout(network(6, 6, rate=0.4), samples=10)
    found = {name: value.detach() for name, value in reader(moons._off(posterior))(ROOT).items()}
    assert float(found["variance"].abs().max()) < 1e-30
    assert float(found["mutual_information"].abs().max()) < 1e-12
    assert float(reader(posterior)(ROOT)["variance"].detach().max()) > 1e-6


def test_models_are_trained_once(tmp_path, monkeypatch):
    data = half_moons(0, 40, 20)
    plan = models.Plan(
        models.Net((4,), 0.1, 0.01), models.Net((4,), 0.1, 0.01), 2, members=2, samples=3, longer_epochs=2
    )
    names = [name for name in moons.MODELS if name != "temperature-scaled"]

    def made():
        pair = (data.x, data.y), (data.held_x, data.held_y)
        trainer = models.Trainer(*pair, plan, 0, tmp_path, lambda: None)
        return {name: one.predict(ROOT) for name, one in trainer.all(names).items()}

    first = made()
    monkeypatch.setattr(models.training, "train", None)
    again = made()
    assert list(again) == names and all(torch.equal(first[name], again[name]) for name in names)
    for path in tmp_path.glob("one-*.pt"):
        path.write_bytes(b"broken")
    with pytest.raises(TypeError):  # a file that cannot be read is made anew
        made()


@pytest.mark.parametrize("hidden", [(3,), (6, 5), (4, 4, 4)])
def test_regions_fill_the_window_and_hold_their_maps(hidden):
    net, window = network(*hidden), ((-2.0, 3.0), (-1.5, 2.5))
    found = polygons(net, window, start=2)
    assert found.areas.sum() == pytest.approx(5 * 4, rel=1e-9)
    inside = np.stack([corners.mean(0) for corners in found.corners])
    z = np.einsum("rcd,rd->rc", found.V, inside) + found.a
    assert z == pytest.approx(net(torch.from_numpy(inside)).detach().numpy(), abs=1e-9)
    # no region is missed: a dense grid sees no pattern of signs that the polygons do not have
    u, v = np.meshgrid(np.linspace(-1.99, 2.99, 160), np.linspace(-1.49, 2.49, 160))
    grid = torch.from_numpy(np.stack([u.ravel(), v.ravel()], 1))

    def patterns(x):
        signs = []
        for layer in net:
            x = layer(x)
            if isinstance(layer, nn.Linear) and layer is not net[-1]:
                signs.append(x > 0)
        return {tuple(row) for row in torch.cat(signs, 1).tolist()}

    assert patterns(grid) <= patterns(torch.from_numpy(inside))
    assert len(patterns(torch.from_numpy(inside))) == len(found.corners)


def test_the_boundary_of_regions_is_the_networks():
    found = polygons(network(6, 5), ((-4.0, 4.0), (-4.0, 4.0)))
    ends = np.concatenate(found.boundary())
    z = network(6, 5)(torch.from_numpy(ends)).detach().numpy()
    assert len(ends) and np.abs(z[:, 1] - z[:, 0]).max() < 1e-9
    again = Polygons.of_state(found.state())
    assert all(np.array_equal(a, b) for a, b in zip(found.corners, again.corners, strict=True))
    assert np.array_equal(found.slopes(), again.slopes())


def test_a_square_is_cut():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    half = _cut(square, np.array([[-1.0, -1.0], [0.0, 0.0]]), np.array([1.0, 3.0]))
    assert sorted(map(tuple, half.tolist())) == [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)]
    assert len(_cut(square, np.array([[1.0, 0.0]]), np.array([-2.0]))) == 0


def test_tables_are_standardised_and_one_feature_is_scaled():
    parts = scaling.split("wine", 0)
    order = torch.randperm(178, generator=torch.Generator().manual_seed(0))
    raw = load_wine().data
    training = raw[order[:106].numpy()]
    right = StandardScaler().fit(training)
    unbiased = training.std(0, ddof=1) / right.scale_
    assert parts.training[0].numpy() * unbiased == pytest.approx(right.transform(training), abs=1e-9)
    assert sum(len(part[0]) for part in (parts.training, parts.held_out, parts.test)) == 178
    x = parts.test[0]
    found = scaling.scaled(x, 3, 100.0)
    assert torch.equal(found[:, 3], 100 * x[:, 3]) and torch.equal(found[:, :3], x[:, :3])


@pytest.mark.filterwarnings("ignore:the loss on the held-out data falls")
@pytest.mark.parametrize("name", ["kyl-moons", "kyl-scaling", "kyl-polytopes"])
def test_a_small_run(name, tmp_path):
    results = reproduce.run(name, "smoke", work=tmp_path, device="cpu", progress=False)
    assert results["complete"] and results["figures"]
    for part in results["parts"]:
        labels = {row["label"] for row in part["rows"]}
        places = {(cell["row"], cell["column"]) for cell in part["cells"]}
        assert places == {(label, column["key"]) for label in labels for column in part["columns"]}
        assert all(0 <= cell["metrics"]["auroc"] <= 1 for cell in part["cells"])
    page = reproduce.render(results)
    assert page.count("<figcaption>") == len(results["figures"]) and len(page) < 1.5e6
    assert all(figure["image"].startswith("<svg") for figure in results["figures"])
    if name == "kyl-scaling":
        again = reproduce.run(name, "smoke", work=tmp_path, device="cpu", progress=False)
        assert [part["cells"] for part in again["parts"]] == [part["cells"] for part in results["parts"]]


def test_a_run_that_is_out_of_time_says_so(tmp_path):
    results = reproduce.run("kyl-scaling", "smoke", work=tmp_path, device="cpu", minutes=0)
    assert not results["complete"]
    assert all("the time that was given was over" in cell["reason"] for cell in results["parts"][0]["cells"])


def test_rays_end_at_the_window():
    data = half_moons(0, 40, 20)
    window = polytopes.zoomed(2.0)
    assert window == ((-7.5, 8.5), (-6.25, 6.75))
    for path in polytopes._rays(network(6, 5), data, window):
        assert path[0] == pytest.approx(data.x.mean(0).numpy())
        on_edge = [abs(path[-1][axis] - bound) < 1e-9 for axis in (0, 1) for bound in window[axis]]
        assert any(on_edge)
        assert (np.diff(np.linalg.norm(path - path[0], axis=1)) > 0).all()
