"""The scores from a posterior's samples: by hand, against laplace drawn by hand, and what they refuse."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import nescio
from nescio import scores
from nescio.posteriors.laplace import Laplace
from nescio.quantities import LaplacePredictions, Predictions
from nescio.scoring import fit
from nescio.types import InputError


def h(p: Tensor) -> Tensor:
    return -(p * p.log()).sum(-1)


def test_mutual_information_by_hand() -> None:
    p = torch.tensor([[[0.8, 0.2], [1.0, 0.0], [0.5, 0.5]], [[0.4, 0.6], [0.0, 1.0], [0.5, 0.5]]], dtype=torch.float64)
    found = scores.MutualInformation()(p)
    first = float(h(torch.tensor([0.6, 0.4], dtype=torch.float64)) - (h(p[0, 0]) + h(p[1, 0])) / 2)
    assert found[0].item() == pytest.approx(first, rel=1e-12)
    assert found[1].item() == pytest.approx(math.log(2), rel=1e-12)
    assert found[2].item() == 0.0
    with pytest.raises(InputError, match="expected a posterior with at least two samples, got one, which agrees with"):
        scores.MutualInformation()(p[:1])


def test_laplace_is_the_mutual_information_of_the_posterior(model: Any, x: Tensor) -> None:
    data = (x, torch.arange(11) % 3)
    found = nescio.score(model, x, "laplace", fit=data, samples=7, seed=2, kind="kron", prior=0.5)
    p = Laplace(model, "kron", 0.5, samples=7, seed=2).fit(data).predict(x)
    torch.testing.assert_close(found, h(p.mean(0)) - h(p).mean(0), rtol=1e-8, atol=1e-12)


def test_the_needs() -> None:
    method = scores.Laplace(samples=3)
    assert method.training == method.needs == (LaplacePredictions("auto", "marglik", 3, 0),)
    posteriors: list[Any] = [object(), object()]
    requests = [LaplacePredictions(samples=3, posterior=posterior) for posterior in posteriors]
    one, other = (method.fitted([request], torch.arange(2)) for request in requests)
    assert one.needs == (requests[0],) and one.training == method.training
    assert one == other == method and hash(one) == hash(other) and one.needs != other.needs
    assert scores.MutualInformation().needs == (Predictions(),)
    with pytest.raises(InputError, match="expected 'laplace' to be fitted"):
        method(torch.full((2, 1, 2), 0.5))


def test_two_fits_in_one_list_are_kept_apart(model: Any, x: Tensor) -> None:
    y = torch.arange(11) % 3
    one = fit(model, "laplace", (x, y), samples=5)
    other = fit(model, scores.Laplace(samples=5, prior=3.0), (x[:6], y[:6]))
    together = nescio.score(model, x, [one, other])
    assert list(together) == ["laplace(samples=5)", "laplace(samples=5, prior=3.0)"]
    for method, found in zip([one, other], together.values(), strict=True):
        assert torch.equal(nescio.score(model, x, method), found)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"samples": 1}, "expected samples to be a whole number of at least 2, got 1"),
        ({"kind": "low rank"}, "expected kind to be 'auto', 'full', 'kron' or 'diag', got 'low rank'"),
        ({"prior": "validation"}, "expected prior to be 'marglik', got 'validation'"),
        ({"prior": 0}, "expected prior to be a finite number above 0, got 0"),
        ({"seed": -1}, "expected seed to be a whole number of at least 0, got -1"),
    ],
)
def test_bad_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        scores.get("laplace", **settings)
    assert str(caught.value).startswith(f"laplace: {words}")
