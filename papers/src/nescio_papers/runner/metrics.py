"""The numbers of a cell, from scores or answers, by `nescio.evaluate`."""

from __future__ import annotations

from torch import Tensor

from nescio import evaluate
from nescio_papers.runner.cells import Floats


def detection(known: Floats, foreign: Floats) -> dict[str, float]:
    """Return AUROC, AUPR and FPR95 of foreign against known pictures."""
    result = evaluate.ood(known, foreign, bootstrap=0)
    return {"auroc": result.auroc, "aupr": result.aupr, "fpr95": result.fpr95}


def calibration(scores: Floats, right: Floats) -> dict[str, float]:
    """Return rAULC."""
    return {"raulc": evaluate.raulc(scores, right)}


def answers(p: Tensor, y: Tensor) -> dict[str, float]:
    """Return accuracy and negative log-likelihood of predicted probabilities [N, C]."""
    return {"acc": float((p.argmax(1) == y).double().mean()), "nll": evaluate.nll(p, y)}
