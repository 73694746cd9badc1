"""Exact binomial tails, without scipy.

    P(Bin(n, p) ≤ k) = I_{1−p}(n − k, k + 1),   I the regularised incomplete beta function,

from its continued fraction (Lentz), on whichever side of the mean that converges fast. An upper bound for an unknown
rate p after k events in n trials (Clopper and Pearson) is the p at which P(Bin(n, p) ≤ k) has fallen to the error
allowed.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from nescio._common.arrays import Values

Floats = NDArray[np.float64]
_TINY = 1e-300


def binomial_cdf(k: Values, n: Values, p: Values) -> Floats:
    """Compute P(Bin(n, p) ≤ k), exactly and without SciPy.

    Args:
        k: How many events, whole numbers.
        n: How many trials, whole numbers of at least 1.
        p: The probability of an event, above 0 and below 1. The three are broadcast.

    Returns:
        The probabilities, float64.

    Examples:
        >>> nescio.decide.binomial_cdf([0, 1, 2], 2, 0.5)
        array([0.25, 0.75, 1.  ])
    """
    k, n, p = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (k, n, p)))
    result = np.where(k >= n, 1.0, 0.0)
    inside = (k >= 0) & (k < n)
    k, n, p = k[inside], n[inside], p[inside]
    result[inside] = _incomplete_beta(n - k, k + 1.0, 1.0 - p, p)
    return result


def upper_bound(k: int, n: int, error: float) -> float:
    """Return a bound on a rate after k events in n trials (Clopper and Pearson).

    Args:
        k: How many events there were.
        n: How many trials.
        error: The probability that the true rate is above the bound, at most.

    Returns:
        The bound, 1 where every trial was an event.

    Examples:
        >>> round(nescio.decide.upper_bound(0, 100, 0.05), 4)
        0.0295
    """
    if k >= n:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(8):  # each round divides the interval by 128 and keeps the safe end: P(Bin(n, high) ≤ k) ≤ error
        grid = np.linspace(low, high, 129)[1:-1]
        above = int(np.count_nonzero(binomial_cdf(k, n, grid) > error))  # the tail falls with the rate
        ends = [low, *grid.tolist(), high]
        low, high = ends[above], ends[above + 1]
    return high


def enough(risk: float, error: float) -> int:
    """The smallest n with (1 − risk)^n ≤ error: so many examples without a fault rule out a higher risk."""
    n = max(1, math.ceil(math.log(error) / math.log1p(-risk)) - 1)
    while n * math.log1p(-risk) > math.log(error):
        n += 1
    return n


def _log_beta(a: Floats, b: Floats) -> Floats:
    """The logarithm of B(a, b)."""
    x, y = torch.from_numpy(np.ascontiguousarray(a)), torch.from_numpy(np.ascontiguousarray(b))
    result: Floats = (torch.lgamma(x) + torch.lgamma(y) - torch.lgamma(x + y)).numpy()
    return result


def _incomplete_beta(a: Floats, b: Floats, x: Floats, y: Floats) -> Floats:
    """I_x(a, b) with y = 1 − x."""
    if a.size == 0:
        return np.zeros(0)
    turned = x * (a + b + 2.0) > a + 1.0  # beyond the mean: 1 − I_y(b, a)
    first, second = np.where(turned, b, a), np.where(turned, a, b)
    at, rest = np.where(turned, y, x), np.where(turned, x, y)
    front = np.exp(first * np.log(at) + second * np.log(rest) - _log_beta(first, second)) / first
    value = front * _fraction(first, second, at)
    result: Floats = np.clip(np.where(turned, 1.0 - value, value), 0.0, 1.0)
    return result


def _fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    """The continued fraction of I_x(a, b), by Lentz's method."""

    def safe(values: Floats) -> Floats:
        return np.where(np.abs(values) < _TINY, _TINY, values)

    result = np.empty_like(a)
    left = np.arange(a.size)  # what has not converged: the far tails need few steps, and should not wait for the rest
    c = np.ones_like(a)
    d = 1.0 / safe(1.0 - (a + b) * x / (a + 1.0))
    h = d
    for m in range(1, 100_000):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        d, c = 1.0 / safe(1.0 + even * d), safe(1.0 + even / c)
        h = h * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d, c = 1.0 / safe(1.0 + odd * d), safe(1.0 + odd / c)
        h = h * d * c
        going = np.abs(d * c - 1.0) > 1e-15
        if 2 * np.count_nonzero(going) < going.size:
            result[left] = h
            left = left[going]
            a, b, x, c, d, h = (v[going] for v in (a, b, x, c, d, h))
            if not left.size:
                return result
    raise ArithmeticError("the continued fraction of the incomplete beta function did not converge")
