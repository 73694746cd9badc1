"""Known values as a histogram on a logarithmic axis, with the place of one input and ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from nescio._common.formatting import number
from nescio.app.card_content import Histogram
from nescio.app.doubt_scale import Scale
from nescio.app.opinion import Reading

WIDTH = 400
BINS = 40
DECADES = 6
"""How far below the largest value a scale goes at most; what lies below is in its first bar."""
APART = 50
"""The least distance between two ticks: their labels must not touch, on a telephone neither."""
EDGE = 22
"""The least distance of a tick from the ends, so that its label is not cut."""


def histogram(scale: Scale, one: Reading) -> Histogram:
    """Return known values as bars up to 40 high, the end that is flagged, where this input is, and ticks.

    Args:
        scale: The values of known inputs.
        one: The reading of this input.

    Returns:
        The histogram, 400 wide.
    """
    known = scale.values[one.name]
    high = max(float(known.max()), one.value, 1e-300) * 1.2
    low = max(high * 10.0**-DECADES, 0.3 * min(float(known.min()), one.value))
    counts = np.histogram(known.clip(low, high), np.geomspace(low, high, BINS + 1))[0]
    heights = (40 * counts / counts.max()).tolist()
    return Histogram(
        bars=[(WIDTH // BINS * i, height) for i, height in enumerate(heights) if height > 0],
        limit=_place(scale.limit(one.name), low, high),
        here=_place(one.value, low, high),
        ticks=ticks(low, high),
    )


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round numbers on a logarithmic axis: as many as there is room for.

    Args:
        low: The value at the left end, above 0.
        high: The value at the right end.

    Returns:
        The place of each, from 0 to 400, and its label.

    Examples:
        >>> [label for _, label in ticks(0.05, 9)]
        ['0.1', '0.2', '0.5', '1', '2', '5']
        >>> [label for _, label in ticks(1e-6, 1)]
        ['10⁻⁵', '0.0001', '0.001', '0.01', '0.1']
    """
    best: list[tuple[float, str]] = []
    for values in _candidates(low, high):
        drawn = [(_place(value, low, high), number(value)) for value in values if low <= value <= high]
        drawn = [one for one in drawn if EDGE <= one[0] <= WIDTH - EDGE]
        places = [place for place, _ in drawn]
        roomy = all(after - before >= APART for before, after in pairwise(places))
        if roomy and len({label for _, label in drawn}) == len(drawn) > len(best):
            best = drawn
    return best


def _candidates(low: float, high: float) -> Iterator[list[float]]:
    """Powers of ten, alone and with round numbers between them; and equal steps, for an axis without a power of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for firsts in ((1,), (1, 3), (1, 2, 5)):
        yield [float(f"{first}e{power}") for power in powers for first in firsts]
    for step in (float(f"{first}e{power}") for power in powers for first in (1, 2, 5)):
        if (high - low) / step <= WIDTH / APART:
            yield [float(f"{step * k:.9g}") for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _place(value: float, low: float, high: float) -> float:
    return WIDTH * math.log(min(max(value, low), high) / low) / math.log(high / low)
