"""Inpainting: against ramps, which it restores, against a dense solver, and its bounds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nescio.mitigate import inpaint
from nescio.types import InputError


def solved_densely(picture, mask):
    """Laplace's equation pixel by pixel as one dense system."""
    high, wide = picture.shape
    places = [tuple(at) for at in np.argwhere(mask)]
    matrix, right = np.zeros((len(places), len(places))), np.zeros(len(places))
    for row, (i, j) in enumerate(places):
        for k, m in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            if 0 <= k < high and 0 <= m < wide:
                matrix[row, row] += 1
                if mask[k, m]:
                    matrix[row, places.index((k, m))] -= 1
                else:
                    right[row] += picture[k, m]
    found = picture.copy()
    for (i, j), value in zip(places, np.linalg.solve(matrix, right), strict=True):
        found[i, j] = value
    return found


def ramp(high=14, wide=11):
    i, j = torch.arange(high, dtype=torch.float64)[:, None], torch.arange(wide, dtype=torch.float64)
    return (100.0 + 2.0 * i - 3.0 * j).expand(1, 2, high, wide) * torch.tensor([1.0, -5.0]).view(1, 2, 1, 1)


def test_a_ramp_is_restored():
    mask = torch.zeros(1, 14, 11, dtype=torch.bool)
    mask[0, 2:9, 3:10] = True
    mask[0, 11, 1:5] = True
    broken = ramp().masked_fill(mask[:, None], 777.0)
    assert (inpaint(broken, mask) - ramp()).abs().max() < 1e-9
    assert float(broken[0, 0, 2, 3]) == 777.0  # the input is left as it is


def test_one_pixel_by_hand():
    x = torch.tensor([[[[1.0, 2.0, 9.0], [4.0, 0.0, 6.0], [7.0, 8.0, 9.0]]]])
    mask = torch.zeros(1, 3, 3, dtype=torch.bool)
    mask[0, 1, 1] = True
    assert float(inpaint(x, mask)[0, 0, 1, 1]) == 5.0  # (2 + 4 + 6 + 8)/4
    mask[:] = False
    mask[0, 0, 0] = True
    assert float(inpaint(x, mask)[0, 0, 0, 0]) == 3.0  # at the corner two neighbours are left


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.05, 0.95))
def test_like_a_dense_solver_and_within_bounds(seed, share):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 2, 6, 5, generator=draw, dtype=torch.float64)
    mask = torch.rand(3, 6, 5, generator=draw) < share
    mask[:, 2, 2] = False
    mask[1] = False  # one picture has nothing to fill
    found = inpaint(x, mask)
    assert torch.equal(found[1], x[1])
    for n, c in ((0, 0), (0, 1), (2, 0)):
        known = x[n, c][~mask[n]]
        assert np.abs(solved_densely(x[n, c].numpy(), mask[n].numpy()) - found[n, c].numpy()).max() < 1e-9
        assert torch.equal(found[n, c][~mask[n]], known)
        assert known.min() - 1e-9 <= found[n, c].min() and found[n, c].max() <= known.max() + 1e-9


def test_the_result_does_not_depend_on_the_batch():
    x = torch.randn(6, 3, 12, 12, dtype=torch.float64)
    mask = torch.rand(6, 12, 12) < torch.linspace(0.1, 0.9, 6).view(-1, 1, 1)
    alone = torch.cat([inpaint(x[n : n + 1], mask[n : n + 1]) for n in range(6)])
    assert (inpaint(x, mask) - alone).abs().max() < 1e-10


@pytest.mark.parametrize("kind", [torch.uint8, torch.float16, torch.float32])
def test_the_type_of_pictures_stays(kind):
    x = (ramp()[:, :1] + 60).to(kind)
    mask = torch.zeros(1, 14, 11, dtype=torch.bool)
    mask[0, 4:6, 4:6] = True
    found = inpaint(x.masked_fill(mask[:, None], 3), mask)
    assert found.dtype == kind and torch.equal(found, x)


def test_mistakes_are_named():
    x, mask = torch.rand(2, 1, 4, 4), torch.zeros(2, 4, 4, dtype=torch.bool)
    with pytest.raises(InputError, match="booleans of shape \\[2, 4, 4\\], got a tensor of float32"):
        inpaint(x, mask.float())
    with pytest.raises(InputError, match="booleans of shape"):
        inpaint(x, mask[:1])
    with pytest.raises(InputError, match="covers a whole picture"):
        inpaint(x, ~mask)
    with pytest.raises(InputError, match="a tensor \\[N, C, H, W\\]"):
        inpaint(x[0], mask)
    with pytest.raises(InputError, match="real numbers, got a tensor of bool"):
        inpaint(x > 0.5, mask)
    with pytest.raises(InputError, match="finite pixels outside of the mask"):
        inpaint(x.masked_fill(x == x.amax(), torch.nan), mask)


def test_pixels_without_a_value_are_filled_in():
    x, mask = torch.ones(1, 1, 4, 4), torch.eye(4).bool()[None]
    assert torch.equal(inpaint(x.masked_fill(mask, torch.nan), mask), x)
