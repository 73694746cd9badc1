"""Linear regions as polygons."""

import numpy as np
import pytest
import torch
from torch import nn

from nescio_papers.know_your_limits.polygons import Polygons, _cut, polygons
from papers.tests.know_your_limits.conftest import network


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
