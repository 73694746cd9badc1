"""Whether the uncertain answers are the wrong ones: what is gained by answering only where uncertainty is low.

Sort N inputs by rising uncertainty, let a_i say whether the i-th answer is right, and A_i = (a_1 + … + a_i)/i be the
accuracy of the first i; A_N is the accuracy of all. A* is the same for the perfect order, right answers first.

    lift_i = A_i/A_N    AULC = mean_i lift_i − 1     rAULC = AULC/AULC*     1 is perfect, 0 is chance, below 0 is worse
    AURC   = mean_i (1 − A_i)                        E-AURC = AURC − AURC*  0 is perfect
    area under the accuracy–rejection curve = mean_i A_i = 1 − AURC         i from 1 to N everywhere

Equal uncertainties have no order. Each figure is its mean over all orders of them: of a group with s inputs and r right
answers, the first j hold j·r/s right ones on average, and every figure is linear in those. The curves have one point
for each distinct uncertainty, because a threshold takes in all equal ones together. So the order of the inputs never
matters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nescio._common.arrays import Values
from nescio.evaluate.metric_inputs import Booleans, Floats, flags, scores
from nescio.types import InputError


@dataclass(frozen=True)
class RiskCoverage:
    """Hold the share of wrong answers among the inputs whose uncertainty is at most a threshold.

    The arrays have one entry for each distinct uncertainty, rising.

    Attributes:
        coverage: The share of inputs that are accepted; the last is 1.
        risk: The share of wrong answers among them.
        thresholds: The distinct uncertainties.
        aurc: The mean risk; 0 is without error.
        eaurc: How much larger the mean risk is than that of the perfect order.

    Examples:
        >>> nescio.evaluate.risk_coverage([0.1, 0.9], [True, False]).risk
        array([0. , 0.5])
    """

    coverage: Floats
    risk: Floats
    thresholds: Floats
    aurc: float
    eaurc: float


@dataclass(frozen=True)
class AccuracyRejection:
    """Hold the accuracy of the inputs that are left when those with an uncertainty above a threshold are rejected.

    The arrays have one entry for each distinct uncertainty. The thresholds fall, so the share of rejected inputs rises.

    Attributes:
        rejected: The share of rejected inputs; the first is 0.
        accuracy: The accuracy of the rest.
        thresholds: The distinct uncertainties.
        area: The mean accuracy over all shares; 1 is without error.

    Examples:
        >>> nescio.evaluate.accuracy_rejection([0.1, 0.9], [True, False]).accuracy
        array([0.5, 1. ])
    """

    rejected: Floats
    accuracy: Floats
    thresholds: Floats
    area: float


def raulc(uncertainty: Values, correct: Values) -> float:
    """Return the relative area under the lift curve, which says whether the uncertain answers are the wrong ones.

    Args:
        uncertainty: One number for each input, ``[N]``; higher means more uncertain.
        correct: Whether each answer is right, ``[N]``, booleans or 0 and 1.

    Returns:
        1 for the perfect order, 0 for an order by chance, below 0 for worse than chance.

    Raises:
        InputError: If all answers are right or all are wrong. There is nothing to sort then, and the measure is 0/0.

    Examples:
        >>> nescio.evaluate.raulc([0.1, 0.2, 0.8, 0.9], [True, True, False, False])
        1.0
    """
    u, right = _checked_uncertainty(uncertainty, correct)
    total = int(right.sum())
    if total in (0, right.size):
        raise InputError(
            f"correct: expected some right and some wrong answers but all {right.size} are "
            f"{'right' if total else 'wrong'}; every order is then as good as any other, and rAULC is not defined: "
            "use more inputs, or risk_coverage"
        )
    # AULC/AULC*, both multiplied by the accuracy, which cancels
    accuracy = total / right.size
    return float((_accuracies(u, right).mean() - accuracy) / (_perfect(right).mean() - accuracy))


def risk_coverage(uncertainty: Values, correct: Values) -> RiskCoverage:
    """Compute the risk among the accepted inputs against their share, for every threshold.

    Args:
        uncertainty: One number for each input, ``[N]``; higher means more uncertain.
        correct: Whether each answer is right, ``[N]``, booleans or 0 and 1.

    Returns:
        The curve with its area.

    Examples:
        >>> curve = nescio.evaluate.risk_coverage([0.1, 0.2, 0.8, 0.9], [True, True, False, False])
        >>> curve.coverage, curve.risk, round(curve.aurc, 3)
        (array([0.25, 0.5 , 0.75, 1.  ]), array([0.        , 0.        , 0.33333333, 0.5       ]), 0.208)
    """
    u, right = _checked_uncertainty(uncertainty, correct)
    thresholds, accepted, hits = _groups(u, right)
    accuracies = _accuracies(u, right)
    return RiskCoverage(
        coverage=accepted / right.size,
        risk=(accepted - hits) / accepted,
        thresholds=thresholds,
        aurc=float((1 - accuracies).mean()),
        eaurc=float((_perfect(right) - accuracies).mean()),
    )


def accuracy_rejection(uncertainty: Values, correct: Values) -> AccuracyRejection:
    """Compute the accuracy of the rest against the share of rejected inputs, for every threshold.

    Args:
        uncertainty: One number for each input, ``[N]``; higher means more uncertain.
        correct: Whether each answer is right, ``[N]``, booleans or 0 and 1.

    Returns:
        The curve with its area.

    Examples:
        >>> curve = nescio.evaluate.accuracy_rejection([0.1, 0.2, 0.8, 0.9], [True, True, False, False])
        >>> curve.rejected, round(curve.area, 3)
        (array([0.  , 0.25, 0.5 , 0.75]), 0.792)
    """
    u, right = _checked_uncertainty(uncertainty, correct)
    thresholds, accepted, hits = (values[::-1] for values in _groups(u, right))
    return AccuracyRejection(
        rejected=(right.size - accepted) / right.size,
        accuracy=hits / accepted,
        thresholds=thresholds,
        area=float(_accuracies(u, right).mean()),
    )


def _groups(u: Floats, right: Booleans) -> tuple[Floats, Floats, Floats]:
    """Distinct uncertainties, rising, and how many inputs and how many right answers lie at or below each."""
    thresholds, group, sizes = np.unique(u, return_inverse=True, return_counts=True)
    return thresholds, sizes.cumsum().astype(np.float64), np.bincount(group, weights=right).cumsum()


def _accuracies(u: Floats, right: Booleans) -> Floats:
    """A_i for i = 1…N, the mean over all orders of equal uncertainties."""
    _, accepted, hits = _groups(u, right)
    i = np.arange(1, right.size + 1)
    result: Floats = np.interp(i, np.concatenate([[0.0], accepted]), np.concatenate([[0.0], hits])) / i
    return result


def _perfect(right: Booleans) -> Floats:
    """A*_i for i = 1…N."""
    i = np.arange(1, right.size + 1)
    result: Floats = np.minimum(i, right.sum()) / i
    return result


def _checked_uncertainty(uncertainty: Values, correct: Values) -> tuple[Floats, Booleans]:
    u = scores(uncertainty, "uncertainty")
    return u, flags(correct, "correct", u.size)
