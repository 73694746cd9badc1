"""The axis of a histogram: round numbers, enough of them, and no label that touches another or is cut."""

import math

import numpy as np
import pytest

from nescio.app.doubt_scale import Scale
from nescio.app.histograms import APART, EDGE, WIDTH, histogram, ticks
from nescio.app.opinion import Reading

ENDS = [
    (low, low * ratio)
    for low in (3e-7, 0.0011, 0.05, 0.3, 1.65, 2.1, 5.7)
    for ratio in (4, 4.5, 7, 12, 50, 300, 1e4, 9.9e5)
]


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_ticks_are_round_and_have_room(low: float, high: float) -> None:
    drawn = ticks(low, high)
    assert len(drawn) >= 2
    places = [place for place, _ in drawn]
    assert min(places) >= EDGE
    assert max(places) <= WIDTH - EDGE
    assert np.diff(places).min() >= APART
    for place, label in drawn:
        value = low * (high / low) ** (place / WIDTH)
        power = math.floor(math.log10(value) + 1e-9)
        first = value / 10**power
        assert first == pytest.approx(round(first, 1), abs=1e-6), label  # at most two digits
    assert len({label for _, label in drawn}) == len(drawn)


def test_a_label_says_the_value_of_its_place() -> None:
    for place, label in ticks(0.06, 7.2):
        assert 0.06 * (7.2 / 0.06) ** (place / WIDTH) == pytest.approx(float(label))


def test_bars_limit_and_place() -> None:
    known = np.geomspace(0.01, 1, 100)
    scale = Scale("the known", {"total": known}, np.ones((100, 2)) / 2)
    drawn = histogram(scale, Reading("total", "", 0.1))
    low, high = 0.003, 1.2
    assert drawn.here == pytest.approx(WIDTH * math.log(0.1 / low) / math.log(high / low))
    assert drawn.limit == pytest.approx(WIDTH * math.log(scale.limit("total") / low) / math.log(high / low))
    assert max(height for _, height in drawn.bars) == 40
    assert min(x for x, _ in drawn.bars) > 0  # nothing lies at the low end
    assert max(x for x, _ in drawn.bars) < WIDTH
    far = histogram(scale, Reading("total", "", 50.0))
    assert far.here < WIDTH
    assert histogram(scale, Reading("total", "", 0.0)).here == 0  # what is below the axis stands at its beginning
