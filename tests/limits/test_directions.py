"""Directions away from data: their lengths in units of the spread, and what happens where there is none."""

import math

import pytest
import torch
from torch import Tensor

from nescio.limits.directions import KINDS, directions


def data() -> Tensor:
    x = torch.randn(50, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = x * torch.tensor([1.0, 10.0, 100.0]) + 7
    x[:, 1, 2] = 5.0  # a feature that does not vary
    return x


def spread(x: Tensor) -> Tensor:
    found = x.std(0, correction=0)
    found[1, 2] = found.mean()  # its own deviation is 0, and is among those of which this is the mean
    return found


def test_every_direction_is_as_long_as_the_spread() -> None:
    x = data()
    starts, sigma = x[:4], spread(x)
    found = directions(x, starts, KINDS, None, 2, 3, 0)
    assert [name.split()[0] for name in found] == ["feature"] * 4 + ["random"] * 3 + ["towards"] * 3 + ["away"]
    for name, d in found.items():
        assert d.shape == starts.shape
        lengths = (d / sigma).flatten(1).norm(dim=1)
        assert lengths.tolist() == pytest.approx([1.0 if name.startswith("feature") else math.sqrt(6)] * 4)
    away = (found["away from the mean"] / (starts - x.mean(0))).flatten(1)[:, :5]
    assert torch.allclose(away.amin(1), away.amax(1)) and bool((away > 0).all())
    assert torch.equal(found["feature 2 +"], -found["feature 2 -"])
    assert torch.equal(directions(x, starts, "random", None, 2, 3, 0)["random 2"], found["random 2"])
    assert not torch.equal(directions(x, starts, "random", None, 2, 3, 1)["random 2"], found["random 2"])


def test_an_input_is_not_left_towards_itself() -> None:
    """There is no such direction; it goes along the first feature, as far as all others."""
    x = data()
    found = directions(x, x[:1].expand(2, 2, 3), "towards", None, 2, len(x), 0)
    d = found["towards input 0"]
    expected = torch.zeros(2, 3, dtype=torch.float64)
    expected[0, 0] = math.sqrt(6) * spread(x)[0, 0]
    assert torch.allclose(d, expected.expand_as(d))
    other = found["towards input 7"][0]
    assert torch.allclose(other / other[0, 0], (x[7] - x[0]) / (x[7] - x[0])[0, 0])


def test_names_go_with_their_features() -> None:
    x = data()
    names = [f"n{at}" for at in range(6)]
    found = directions(x, x[:2], "features", names, 2, 1, 0)
    chosen = spread(x).flatten().argsort(descending=True)[:2].sort().values.tolist()
    assert list(found) == [f"n{at} {sign}" for at in chosen for sign in "+-"]
    for at in chosen:
        assert found[f"n{at} -"].flatten(1)[:, at].tolist() == pytest.approx([-float(spread(x).flatten()[at])] * 2)
