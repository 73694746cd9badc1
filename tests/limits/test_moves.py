"""What directions change and where they leave the range of the data, against a walk in small steps."""

import math
from decimal import Decimal

import pytest
import torch
from torch import Tensor

from nescio.limits.directions import directions, feature_names
from nescio.limits.moves import EVERY, changes_by_direction, outward, ranges

NAMES = ["age", "pay", "height", "weight"]


def data() -> Tensor:
    x = torch.randn(60, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x * torch.tensor([1.0, 100.0, 0.1, 5.0]) + 3


def walked(x: Tensor, d: Tensor, low: Tensor, high: Tensor) -> float:
    """The first step of a hundredth at which some number is outside."""
    steps = (k / 100 for k in range(2000))
    return next(a for a in steps if bool(((x + a * d < low) | (x + a * d > high)).any()))


def test_a_direction_leaves_the_range_where_a_walk_does() -> None:
    x = data()
    starts, low, high = x[:5], x.amin(0), x.amax(0)
    ways = directions(x, starts, ("features", "random", "towards", "away"), NAMES, 4, 3, 0)
    found = changes_by_direction(x, starts, ways, NAMES)
    assert list(found) == list(ways)
    for name, d in ways.items():
        slow = max(walked(start, own, low, high) for start, own in zip(starts, d, strict=True))
        assert slow - 0.011 <= found[name].leaves <= slow


def test_pictures_have_one_range_and_show_the_direction() -> None:
    x = data().view(60, 1, 2, 2)
    starts = x[:3]
    ways = directions(x, starts, "random", None, 4, 1, 0)
    move = changes_by_direction(x, starts, ways, None)["random 1"]
    slow = max(walked(s, d, x.min(), x.max()) for s, d in zip(starts, ways["random 1"], strict=True))
    assert slow - 0.011 <= move.leaves <= slow
    assert move.picture is not None
    spread = x.std(0, correction=0)
    torch.testing.assert_close(torch.from_numpy(move.picture), ways["random 1"][0] / spread)
    assert ranges(x, None) == {EVERY: (float(x.min()), float(x.max()))}
    assert feature_names(x, None) == ["pixel (0, 0)", "pixel (0, 1)", "pixel (1, 0)", "pixel (1, 1)"]
    assert feature_names(x.view(60, 2, 2, 1), None)[2:] == ["pixel (0, 0) of channel 1", "pixel (1, 0) of channel 1"]


def test_what_changes_is_named_in_order_with_its_sign() -> None:
    x = data()
    sigma = x.std(0, correction=0)
    d = torch.stack([sigma * torch.tensor([1.0, -3.0, 2.0, 0.0]), sigma * torch.tensor([1.0, -3.0, -2.0, 0.0])])
    move = changes_by_direction(x, x[:2], {"out": d}, NAMES)["out"]
    assert move.changes == ("pay ↓", "height ↕", "age ↑")
    assert move.others == 0
    one = changes_by_direction(x, x[:2], {"out": (sigma * torch.tensor([0.0, 0.0, 0.0, 1.0])).expand(2, 4)}, NAMES)[
        "out"
    ]
    assert (one.changes, one.first) == (("weight ↑",), "weight")
    assert one.leaves == pytest.approx(float(((x[:, 3].max() - x[:2, 3]) / sigma[3]).max()))


def test_ranges_are_those_of_the_data() -> None:
    x = data()
    found = ranges(x, NAMES)
    assert list(found) == NAMES
    assert found["pay"] == (float(x[:, 1].min()), float(x[:, 1].max()))
    assert list(ranges(x, None)) == ["feature 0", "feature 1", "feature 2", "feature 3"]


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 0.1, 1 / 3, -1 / 3, 1234567.89, -9.999999999, 6.1e-12, 12.02])
def test_written_ranges_hold_what_they_are_of(value: float) -> None:
    low, high = outward(value, value)
    assert low <= value <= high
    assert max(len(Decimal(repr(one)).normalize().as_tuple().digits) for one in (low, high)) <= 6
    assert math.isclose(low, high, rel_tol=2e-5)
