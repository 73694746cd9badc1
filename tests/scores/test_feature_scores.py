"""The scores from features against scikit-learn and scipy, and where training data are few or odd."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nescio import scores
from nescio.quantities import Features
from nescio.scores.feature_scores import ledoit_wolf
from nescio.types import InputError


def examples(count: int = 60, width: int = 5, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Features, labels, and features to be scored."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % classes
    mixing = torch.randn(width, width, generator=generator, dtype=torch.float64)
    h = torch.randn(count, width, generator=generator, dtype=torch.float64) @ mixing + 3.0 * y[:, None]
    return h, y, 4.0 * torch.randn(7, width, generator=generator, dtype=torch.float64)


def scored(method: scores.FittedScore, h: Tensor, y: Tensor, new: Tensor) -> Tensor:
    return method.fitted([h], y)(new)


def centred(h: Tensor, y: Tensor) -> Tensor:
    return torch.cat([h[y == c] - h[y == c].mean(0) for c in y.unique()])


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 1000))
def test_the_shrinkage_is_scikit_learns(count: int, width: int, seed: int) -> None:
    sklearn = pytest.importorskip("sklearn.covariance")
    h = torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    h = (h - h.mean(0)) * torch.arange(1.0, width + 1)
    truth = sklearn.ledoit_wolf(h.numpy(), assume_centered=True)[1]
    assert ledoit_wolf(h) == pytest.approx(float(truth), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("count", "width"), [(60, 5), (12, 30)])
def test_tied_is_the_squared_distance_in_scikit_learns_covariance(count: int, width: int) -> None:
    sklearn = pytest.importorskip("sklearn.covariance")
    h, y, new = examples(count, width)
    model = sklearn.LedoitWolf(assume_centered=True).fit(centred(h, y).numpy())
    truth = np.min([model.mahalanobis((new - h[y == c].mean(0)).numpy()) for c in range(3)], axis=0)
    np.testing.assert_allclose(scored(scores.Mahalanobis(), h, y, new).numpy(), truth, rtol=1e-9)


@pytest.mark.parametrize("shrinkage", ["auto", 0.0, 0.3, 1.0])
def test_by_class_is_the_density_of_scipy(shrinkage: float | str) -> None:
    stats = pytest.importorskip("scipy.stats")
    sklearn = pytest.importorskip("sklearn.covariance")
    h, y, new = examples()
    densities = []
    for c in range(3):
        part = h[y == c].numpy()
        if shrinkage == "auto":
            covariance = sklearn.ledoit_wolf(part)[0]
        else:
            covariance = sklearn.shrunk_covariance(np.cov(part.T, bias=True), shrinkage)
        densities.append(stats.multivariate_normal(part.mean(0), covariance).logpdf(new.numpy()))
    truth = -2 * np.max(densities, axis=0) - 5 * np.log(2 * np.pi)
    found = scored(scores.Mahalanobis(covariance="class", shrinkage=shrinkage), h, y, new)
    np.testing.assert_allclose(found.numpy(), truth, rtol=1e-9)


def test_by_hand() -> None:
    """Two classes at 0 and 10 with variance 1 and the whole line: the distance from 3 is 9, and from 8 it is 4."""
    h = torch.tensor([[-1.0], [1.0], [9.0], [11.0]], dtype=torch.float64)
    new = torch.tensor([[3.0], [8.0], [10.0]], dtype=torch.float64)
    found = scored(scores.Mahalanobis(shrinkage=0.0), h, torch.tensor([0, 0, 4, 4]), new)
    torch.testing.assert_close(found, torch.tensor([9.0, 4.0, 0.0], dtype=torch.float64), rtol=1e-12, atol=1e-14)
    wide = torch.tensor([[-2.0], [2.0], [9.0], [11.0]], dtype=torch.float64)  # variance 4 and 1
    found = scored(scores.Mahalanobis(covariance="class", shrinkage=0.0), wide, torch.tensor([0, 0, 4, 4]), new)
    truth = torch.tensor([9 / 4 + np.log(4), 4.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-14)


def test_a_class_without_spread_takes_the_tied_covariance() -> None:
    h, y, new = examples()
    h, y = torch.cat([h, new[:1]]), torch.cat([y, torch.tensor([7])])  # a class of one input
    found = scored(scores.Mahalanobis(covariance="class"), h, y, new)
    assert found.isfinite().all()
    within = centred(h, y)
    cov = within.T @ within / len(within)
    s = ledoit_wolf(within)
    shrunk = (1 - s) * cov + s * cov.trace() / 5 * torch.eye(5, dtype=torch.float64)
    assert found[0].item() == pytest.approx(float(torch.logdet(shrunk)), rel=1e-9)


def test_round_off_is_no_spread() -> None:
    """The mean of three equal numbers is often not that number; in float32 equal inputs differ with their batch."""
    h, y, new = examples()
    h, y = torch.cat([h, new[:1].expand(3, -1)]), torch.cat([y, torch.full((3,), 7)])
    method = scores.Mahalanobis(covariance="class")
    found = scored(method, h, y, new)
    for digits in (1e-16, 1e-7):
        random = torch.Generator().manual_seed(1)
        noisy = h * (1 + digits * torch.randn(h.shape, generator=random, dtype=torch.float64))
        torch.testing.assert_close(scored(method, noisy, y, new), found, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="expected features that differ within a class, got 3 training inputs"):
        scored(method, noisy[-3:], y[-3:], new)


@pytest.mark.parametrize("covariance", ["tied", "class"])
def test_scale_and_shift_and_dead_features(covariance: str) -> None:
    h, y, new = examples()
    method = scores.Mahalanobis(covariance=covariance)
    plain = scored(method, h, y, new)
    moved = scored(method, 1000 * h + 5e4, y, 1000 * new + 5e4)
    shift = 0.0 if covariance == "tied" else 10 * np.log(1000)
    torch.testing.assert_close(moved - shift, plain, rtol=1e-7, atol=1e-7)
    dead = torch.cat([h, torch.zeros(60, 2)], 1), torch.cat([new, torch.ones(7, 2)], 1)
    assert (
        scored(method, dead[0], y, dead[1]) > scored(method, dead[0], y, torch.cat([new, torch.zeros(7, 2)], 1))
    ).all()


def test_what_mahalanobis_cannot_use_is_said() -> None:
    h, y, new = examples(12, 30)
    with pytest.raises(
        InputError, match=r"without variance in some of 30 directions from 12 .* use shrinkage='auto', or"
    ):
        scored(scores.Mahalanobis(shrinkage=0.0), h, y, new)
    assert scored(scores.Mahalanobis(shrinkage=0.01), h, y, new).isfinite().all()
    with pytest.raises(InputError, match="features that differ within a class, got 12 training inputs in 12 classes"):
        scored(scores.Mahalanobis(), h, torch.arange(12), new)
    with pytest.raises(InputError, match="mahalanobis: expected 30 features as in the training data, got 4"):
        scored(scores.Mahalanobis(), h, y, new[:, :4])


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("k", [1, 4, 60])
@pytest.mark.parametrize("average", [True, False])
def test_knn_is_scikit_learns(normalise: bool, k: int, average: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    neighbours = pytest.importorskip("sklearn.neighbors")
    h, y, new = examples()
    length: Any = (lambda a: a / a.norm(dim=1, keepdim=True)) if normalise else (lambda a: a)
    truth = neighbours.NearestNeighbors(n_neighbors=k, algorithm="brute").fit(length(h).numpy())
    distances = truth.kneighbors(length(new).numpy())[0]
    truth = distances.mean(1) if average else distances[:, -1]
    method = scores.KNN(k=k, normalise=normalise, average=average)
    np.testing.assert_allclose(scored(method, h, y, new).numpy(), truth, rtol=1e-9)
    monkeypatch.setattr("nescio.scores.feature_scores.ELEMENTS", 1)
    np.testing.assert_allclose(scored(method, h, y, new).numpy(), truth, rtol=1e-9)


def test_knn_of_a_training_input_and_of_nothing() -> None:
    h, y, new = examples()
    assert (scored(scores.KNN(k=1), h, y, 5.0 * h[:6]) < 1e-15).all()
    assert scored(scores.KNN(k=1), h, y, torch.zeros(1, 5, dtype=torch.float64)).tolist() == pytest.approx([1.0])
    with pytest.raises(InputError, match="knn: expected 5 features as in the training data, got 4"):
        scored(scores.KNN(k=1), h, y, new[:, :4])


@pytest.mark.parametrize("average", [True, False])
def test_with_fewer_than_k_training_inputs_k_is_their_number_and_that_is_said(average: bool) -> None:
    h, y, new = examples()
    with pytest.warns(UserWarning, match=r"knn: expected at least k = 61 training inputs, got 60; k is 60 now\. Give"):
        method = scores.KNN(k=61, average=average).fitted([h], y)
    assert torch.equal(method(new), scored(scores.KNN(k=60, average=average), h, y, new))


@pytest.mark.parametrize("method", [scores.Mahalanobis(layer="conv"), scores.KNN(layer="conv", k=3)])
def test_what_was_found_is_no_setting(method: Any) -> None:
    h, y, new = examples()
    assert method.needs == method.training == (Features("conv"),) and not method.is_fitted
    one, other = method.fitted([h], y), method.fitted([2 * h + 1], y)
    assert one.is_fitted and not method.is_fitted
    assert one == other == method and hash(one) == hash(method)
    assert one.label == method.label and repr(one) == repr(method)
    assert scores.get(one) is one
    assert not scores.get(one, layer=None).is_fitted
    assert not torch.equal(one(new), other(new))
    with pytest.raises(
        InputError, match=rf"expected '{method.name}' to be fitted, got one that was not; .* nescio\.fit"
    ):
        method(new)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("mahalanobis", {"covariance": "full"}, "expected covariance to be 'tied' or 'class', got 'full'"),
        ("mahalanobis", {"shrinkage": "none"}, "expected shrinkage to be 'auto', got 'none'"),
        ("mahalanobis", {"shrinkage": 1.5}, "expected shrinkage to be 'auto' or a number from 0 to 1, got 1.5"),
        ("mahalanobis", {"shrinkage": -0.5}, "expected shrinkage to be a finite number of at least 0, got -0.5"),
        ("mahalanobis", {"layer": 3}, "expected layer to be None or the name of a module, got 3"),
        ("knn", {"k": 0}, "expected k to be a whole number of at least 1, got 0"),
        ("knn", {"normalise": 1}, "expected normalise to be True or False, got 1"),
        ("knn", {"average": "yes"}, "expected average to be True or False, got 'yes'"),
    ],
)
def test_bad_settings(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        scores.get(name, **settings)
    assert str(caught.value).startswith(f"{name}: {words}")
