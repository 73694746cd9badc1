"""Figures of merit: pure functions of arrays, with typed results.

result = nescio.evaluate.ood(scores_of_known, scores_of_foreign)
result.auroc, result.aupr, result.fpr95
"""

from nescio.evaluate.ood import ROC, OODResult, ood, roc

__all__ = ["ood", "roc", "OODResult", "ROC"]
