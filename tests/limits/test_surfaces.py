"""Surfaces of scores and of their gradients."""

import pytest
import torch

import nescio
from nescio import limits
from nescio.types import InputError
from tests.limits.networks import mlp


def test_values_and_gradients_of_a_known_function() -> None:
    found = limits.surface(lambda x: x[:, 0] ** 2 + 3 * x[:, 1], (-1, 2), (0, 1), n=5)
    u, v = torch.meshgrid(found.u, found.v, indexing="xy")
    assert found.differentiated and found.values.dtype == torch.float64
    assert torch.allclose(found.values, u**2 + 3 * v)
    assert torch.allclose(found.gradient, (4 * u**2 + 9).sqrt())
    blind = limits.surface(lambda x: (x[:, 0] ** 2 + 3 * x[:, 1]).detach(), (-1, 2), (0, 1), n=5)
    assert not blind.differentiated
    assert torch.allclose(blind.gradient, found.gradient, atol=1e-8)


def test_a_plane_through_three_points() -> None:
    torch.manual_seed(0)
    points = torch.randn(3, 1, 2, 2).double()
    weight = torch.randn(4).double()
    found = limits.surface(lambda x: x.flatten(1) @ weight, (0, 1), (0, 1), n=3, points=points)
    corners = points.flatten(1) @ weight
    assert torch.allclose(torch.stack([found.values[0, 0], found.values[0, 2], found.values[2, 0]]), corners)
    assert torch.allclose(found.gradient, weight.norm().expand(3, 3))  # over all of the input
    blind = limits.surface(lambda x: (x.flatten(1) @ weight).detach(), (0, 1), (0, 1), n=3, points=points)
    basis = torch.linalg.qr((points[1:] - points[0]).flatten(1).T).Q
    assert torch.allclose(blind.gradient, (basis.T @ weight).norm().expand(3, 3))  # the part within the plane


@pytest.mark.parametrize("name", ["max_probability", "entropy", "mutual_information", "variance", "aleatoric"])
def test_uncertainties_are_those_of_the_decomposition(name: str) -> None:
    models, x = [mlp(2, 6, 3, seed=at) for at in range(3)], torch.randn(5, 2).double()
    kinds = nescio.decompose(torch.stack([model(x).softmax(1).detach() for model in models]))
    field = {"entropy": "total", "mutual_information": "epistemic"}.get(name, name)
    assert torch.allclose(limits.uncertainty(models, name)(x), getattr(kinds, field), atol=1e-14)
    found = limits.surface(limits.uncertainty(models, name), (-2, 2), (-2, 2), n=4)
    assert found.differentiated and found.gradient.max() > 0
    assert all(p.grad is None and p.requires_grad for model in models for p in model.parameters())


@pytest.mark.parametrize("kind", ["temperature", "platt"])
def test_the_uncertainty_of_a_temperature_is_that_of_what_it_predicts(kind: str) -> None:
    ensemble = nescio.posteriors.DeepEnsemble([mlp(2, 6, 4, seed=at) for at in range(2)])
    rows = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).double()
    labels = torch.multinomial(ensemble.predict(3 * rows).mean(0), 1, generator=torch.Generator().manual_seed(1))[:, 0]
    scaled = nescio.posteriors.Temperature(ensemble, kind).fit((rows, labels))
    x = torch.randn(5, 2).double()
    expected = nescio.decompose(scaled.predict(x)).epistemic
    value = limits.uncertainty(scaled, "mutual_information")(x)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-9)


def test_any_score_and_errors() -> None:
    model = mlp(2, 6, 3)
    found = limits.surface(lambda x: nescio.score(model, x.detach(), "regrad"), (-2, 2), (-2, 2), n=4)
    assert found.values.shape == (4, 4) and not found.differentiated
    assert found.gradient.isfinite().all() and found.gradient.max() > 0
    entropy = limits.uncertainty(model)
    for arguments, words in (
        (((1, 0), (0, 1)), "rising order"),
        (((0, 1), (0, float("inf"))), "ylim"),
    ):
        with pytest.raises(InputError, match=words):
            limits.surface(entropy, *arguments)
    with pytest.raises(InputError, match="on one line"):
        limits.surface(entropy, (0, 1), (0, 1), points=torch.tensor([[0.0, 0], [1, 1], [2, 2]]))
    with pytest.raises(InputError, match="three inputs"):
        limits.surface(entropy, (0, 1), (0, 1), points=torch.zeros(2, 2))
    with pytest.raises(InputError, match="one number for each"):
        limits.surface(lambda x: x, (0, 1), (0, 1))
    with pytest.raises(InputError, match="score among"):
        limits.uncertainty(model, "regrad")
