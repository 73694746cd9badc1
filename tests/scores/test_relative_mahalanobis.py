"""The relative distance against scikit-learn, and where it is not defined."""

import numpy as np
import pytest
import torch
from torch import Tensor

from nescio import scores
from nescio.types import InputError


def examples() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 3
    h = torch.randn(60, 5, generator=generator, dtype=torch.float64) + 3.0 * y[:, None]
    return h, y, 4.0 * torch.randn(7, 5, generator=generator, dtype=torch.float64)


def test_it_is_the_difference_of_two_distances_in_scikit_learns_covariances() -> None:
    sklearn = pytest.importorskip("sklearn.covariance")
    h, y, new = examples()
    means = np.stack([h[y == c].mean(0).numpy() for c in range(3)])
    for settings, kind in [({}, sklearn.LedoitWolf), ({"shrinkage": 0.0}, sklearn.EmpiricalCovariance)]:
        within = kind(assume_centered=True).fit(h.numpy() - means[y])
        whole = kind().fit(h.numpy())
        nearest = np.min([within.mahalanobis(new.numpy() - mean) for mean in means], axis=0)
        found = scores.RelativeMahalanobis(**settings).fitted([h], y)(new)
        np.testing.assert_allclose(found.numpy(), nearest - whole.mahalanobis(new.numpy()), rtol=1e-9, atol=1e-9)


def test_by_hand() -> None:
    """Classes at 0 and 10 with variance 1, together at 5 with variance 26: at 0 the score is 0 − 25/26."""
    h = torch.tensor([[-1.0], [1.0], [9.0], [11.0]], dtype=torch.float64)
    method = scores.RelativeMahalanobis(shrinkage=0.0).fitted([h], torch.tensor([0, 0, 4, 4]))
    found = method(torch.tensor([[0.0], [5.0], [30.0]], dtype=torch.float64))
    assert found.tolist() == pytest.approx([-25 / 26, 25.0, 400 - 625 / 26], rel=1e-12)


def test_what_it_cannot_use_is_said_under_its_own_name() -> None:
    h, y, new = examples()
    method = scores.RelativeMahalanobis()
    with pytest.raises(InputError, match=r"relative_mahalanobis: expected training inputs of at least two classes"):
        method.fitted([h], 0 * y)
    with pytest.raises(InputError, match="relative_mahalanobis: expected features that differ within a class"):
        method.fitted([h], torch.arange(60))
    with pytest.raises(InputError, match="relative_mahalanobis: expected 5 features as in the training data, got 4"):
        method.fitted([h], y)(new[:, :4])
