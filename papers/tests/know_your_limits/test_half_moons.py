"""Half-moons, and places of the plane around them."""

import numpy as np
import pytest
import torch
from sklearn.datasets import make_moons

from nescio_papers.know_your_limits.half_moons import between, half_moons


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
