"""What a guard may promise: conformal p-values, the share of false alarms, and how large a reference has to be.

    p(x) = (1 + number of reference inputs at least as foreign as x) / (n + 1)

If x comes from the same source as the reference, and took no part in the fit, all n + 1 places in the order are equally
likely, whatever the model and the score: P(p ≤ α) ≤ α for every α. The n inputs here only give ranks; the others fit
the witnesses. A small reference uses *cross* ranks: every input gives a rank against a fit to the others, and p adds up
the folds. Then the proof gives only P(p ≤ α) ≤ 2α (Vovk et al. 2018), and simulations at most α
(`benchmarks/promises.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nescio._common.argument_checks import probability
from nescio.types import InputError

ENOUGH = 5  # ranks for each expected false alarm: `foreign(0.05)` needs 5/0.05 = 100 of them
LEVEL = 0.05  # the share of false alarms, unless the user chooses one
MOST = 10**12  # ranks that a message names at most, however small the level
_AT_ONCE, _MANY = 200, 10_000  # values that are looked up in one thread, and those for which threads pay
_SAME = 1e-9  # smaller differences are round-off: an input of the reference ties with itself


def at_least(reference: Tensor, score: Tensor) -> Tensor:
    """Return how many values of the sorted reference ``[n]`` are at least as large as each score: int64 ``[N]``."""
    return len(reference) - positions(reference, score - _SAME * (1.0 + score.abs()))


def positions(ordered: Tensor, values: Tensor) -> Tensor:
    """Return where values ``[N]`` belong among sorted ones ``[n]``: int64 ``[N]``.

    A few at a time: for more of them PyTorch wakes all threads, and on a busy machine waits milliseconds for them.
    """
    if len(values) > _MANY:
        return torch.searchsorted(ordered, values.contiguous())
    return torch.cat([torch.searchsorted(ordered, part) for part in values.contiguous().split(_AT_ONCE)])


def check_level(alpha: float, ranks: int) -> None:
    """Raise an InputError for a level outside 0 … 1, or one that so few ranks cannot hold."""
    probability("the level", alpha)
    needed = math.ceil(min(ENOUGH / alpha, MOST))
    if ranks < needed:
        raise InputError(
            f"expected at least {needed} ranks for a level of {alpha:g}, got {ranks}: with so few the share of false "
            f"alarms could be far from {alpha:g}. Give a reference of {reference_size(needed)} inputs or more, choose "
            f"a level of at least {ENOUGH / max(ranks, 1):.2g}, or use p_value itself"
        )


def usual_level(ranks: int) -> float:
    """Return the default level: `LEVEL`, or the least full hundredth that so few ranks can hold."""
    return max(LEVEL, math.ceil(100 * ENOUGH / ranks) / 100)


def reference_size(ranks: int) -> int:
    """Return how many inputs give so many ranks: in a small reference all give one, in a large one half of them."""
    from nescio.guard.split import FEW

    return ranks if ranks < FEW else 2 * ranks


def benjamini_hochberg(p: Tensor, fdr: float) -> Tensor:
    """Return which p-values ``[N]`` to flag so that at most a share `fdr` of the flagged are false alarms, on average.

    With m inputs the flagged are those with p ≤ t, t the largest p-value of which the k-th smallest is ≤ k·fdr/m
    (Benjamini and Hochberg 1995; for conformal p-values Bates et al. 2023).
    """
    probability("fdr", fdr)
    if not len(p):
        return torch.zeros(0, dtype=torch.bool)
    ordered = p.sort().values
    good = ordered <= torch.arange(1, len(p) + 1, dtype=torch.float64) * fdr / len(p)
    if not bool(good.any()):
        return torch.zeros_like(p, dtype=torch.bool)
    return p <= ordered[good.nonzero().max()]
