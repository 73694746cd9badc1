"""The numbers of a cell, from scores: every one comes out of `nescio.evaluate`, but for the rank correlation.

rho   Spearman's: the correlation of ranks, equal values sharing the mean of theirs
"""

from __future__ import annotations

import numpy as np

from nescio import evaluate
from nescio.reproduce.cells import Floats


def detection(known: Floats, foreign: Floats) -> dict[str, float]:
    """AUROC, AUPR and FPR95 of foreign against known pictures."""
    found = evaluate.ood(known, foreign, bootstrap=0)
    return {"auroc": found.auroc, "aupr": found.aupr, "fpr95": found.fpr95}


def calibration(scores: Floats, right: Floats) -> dict[str, float]:
    """RAULC."""
    return {"raulc": evaluate.raulc(scores, right)}


def rank_correlation(one: Floats, other: Floats) -> float | None:
    """Spearman's, None where one of them is constant."""
    ranks = []
    for values in (one, other):
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((counts.cumsum() - (counts - 1) / 2)[place])
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
