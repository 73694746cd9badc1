"""Figures of merit: pure functions of arrays, with typed results.

result = nescio.evaluate.ood(scores_of_known, scores_of_foreign)
result.auroc, result.auroc_interval, result.aupr, result.fpr95

Arrays, tensors (on any device, in any precision) and lists are taken alike. A higher score means more uncertain, and
the order of the inputs never matters: ties are averaged.
"""

from nescio.evaluate import active
from nescio.evaluate.active import ActiveLearning, active_learning
from nescio.evaluate.blurring import Blurring, blurring
from nescio.evaluate.calibration import Reliability, brier, ece, mce, nll, reliability
from nescio.evaluate.correlation import rank_correlation
from nescio.evaluate.disentanglement import Disentanglement, Parts, disentanglement
from nescio.evaluate.map_checks import AnomalyResult, RewrittenResult, anomaly, randomised, rewritten
from nescio.evaluate.ood import ROC, OODResult, ood, roc
from nescio.evaluate.selective import AccuracyRejection, RiskCoverage, accuracy_rejection, raulc, risk_coverage
from nescio.evaluate.timing import MapTime, time_per_map

__all__ = [
    "ood",
    "roc",
    "ece",
    "mce",
    "nll",
    "brier",
    "reliability",
    "raulc",
    "risk_coverage",
    "accuracy_rejection",
    "disentanglement",
    "rank_correlation",
    "blurring",
    "anomaly",
    "randomised",
    "rewritten",
    "time_per_map",
    "active_learning",
    "active",
    "OODResult",
    "ROC",
    "Reliability",
    "RiskCoverage",
    "AccuracyRejection",
    "Disentanglement",
    "Parts",
    "ActiveLearning",
    "Blurring",
    "AnomalyResult",
    "RewrittenResult",
    "MapTime",
]
