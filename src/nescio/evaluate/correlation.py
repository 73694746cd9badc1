"""Rank correlation: Spearman's, which is Pearson's of the ranks, where equal values share the mean of theirs."""

from __future__ import annotations

import numpy as np

from nescio._common.arrays import Values
from nescio.evaluate.metric_inputs import Floats, scores
from nescio.types import InputError


def rank_correlation(one: Values, other: Values) -> float | None:
    """Return Spearman's rank correlation of two scores of the same inputs.

    Args:
        one: One number for each input, ``[N]``, N at least 2.
        other: Another number for each input, ``[N]``.

    Returns:
        The correlation, from −1 to 1; None where one of the scores is constant.

    Examples:
        >>> round(nescio.evaluate.rank_correlation([1, 2, 3], [10, 20, 15]), 3)
        0.5
    """
    x, y = scores(one, "one"), scores(other, "other")
    if x.size != y.size or x.size < 2:
        raise InputError(f"expected two scores of one length, at least 2, but got {x.size} and {y.size} numbers")
    return correlation(ranks(x), ranks(y))


def ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return (sizes.cumsum() - (sizes - 1) / 2)[group]


def correlation(x: Floats, y: Floats) -> float | None:
    """Pearson's correlation; None where one of them is constant."""
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    order = np.lexsort((y, x))  # sums depend on the order in their last digit
    x, y = (_standard(values[order]) for values in (x, y))
    return float(np.clip(x @ y, -1.0, 1.0))


def _standard(values: Floats) -> Floats:
    centred = values - values.mean()
    centred /= np.abs(centred).max()  # squares of tiny numbers would vanish
    result: Floats = centred / np.sqrt(centred @ centred)
    return result
