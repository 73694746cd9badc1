"""Rays through the regions."""

import numpy as np
import pytest

from nescio_papers.know_your_limits import polytopes
from nescio_papers.know_your_limits.half_moons import half_moons
from papers.tests.know_your_limits.conftest import network


def test_rays_end_at_the_window():
    data = half_moons(0, 40, 20)
    window = polytopes.zoomed(2.0)
    assert window == ((-7.5, 8.5), (-6.25, 6.75))
    for path in polytopes._rays(network(6, 5), data, window):
        assert path[0] == pytest.approx(data.x.mean(0).numpy())
        on_edge = [abs(path[-1][axis] - bound) < 1e-9 for axis in (0, 1) for bound in window[axis]]
        assert any(on_edge)
        assert (np.diff(np.linalg.norm(path - path[0], axis=1)) > 0).all()
