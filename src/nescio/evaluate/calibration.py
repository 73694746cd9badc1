"""Whether probabilities mean what they say.

For input i with probabilities p_i and label y_i: the predicted class is argmax_c p_ic (the lowest index of equal ones),
the confidence c_i = max_c p_ic, and a_i = 1 if the prediction is right, else 0. In a bin b of n_b inputs

    conf(b) = mean of c_i    acc(b) = mean of a_i    gap(b) = conf(b) − acc(b)    (above 0: too sure)

    ece = Σ_b (n_b/N) |gap(b)|        mce = max_b |gap(b)|       over the bins that are not empty

    mode="width": bin m of M holds the confidences in ((m−1)/M, m/M]; a confidence of 0 goes to the first.
    mode="mass":  bin m holds those in (e_{m−1}, e_m], where e_m is the ⌈mN/M⌉-th smallest confidence, e_0 = 0, e_M = 1.
                  Without ties the bins' sizes differ by at most one. Equal confidences are never parted: all go to the
                  lowest bin that one of them reaches, and bins that are left empty are dropped, so there may be fewer.

    nll   = −mean_i log p_{i y_i}                   0 is perfect; ∞ where a true class got the probability 0
    brier = mean_i Σ_c (p_ic − 1[c = y_i])²         from 0 to 2: the sum over all classes, not half of it

The order of the inputs never matters, to the last digit: sums are taken in sorted order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from nescio._common.argument_checks import integer
from nescio._common.arrays import Values
from nescio.evaluate.metric_inputs import Floats, Integers
from nescio.evaluate.metric_inputs import classes as _classes
from nescio.evaluate.metric_inputs import probabilities as _probabilities
from nescio.types import InputError

Mode = Literal["width", "mass"]


@dataclass(frozen=True)
class Reliability:
    """Hold confidence and accuracy bin by bin, from low to high confidence, and over all inputs.

    A bin holds the confidences above its lower end and up to its upper end. In a bin without inputs, confidence,
    accuracy and gap are NaN.

    Attributes:
        lower: The lower end of each bin, ``[B]``.
        upper: The upper end of each bin, ``[B]``.
        count: How many inputs are in each bin, ``[B]``.
        confidence: The mean confidence in each bin, ``[B]``.
        accuracy: The accuracy in each bin, ``[B]``.
        gap: Confidence − accuracy, ``[B]``.
        ece: The expected calibration error.
        mce: The maximum calibration error.
        mean_accuracy: The accuracy of all inputs.
        mean_confidence: The mean confidence of all inputs.

    Examples:
        >>> nescio.evaluate.reliability([[0.9, 0.1], [0.2, 0.8]], [0, 0], bins=2).gap.round(2)
        array([ nan, 0.35])
    """

    lower: Floats
    upper: Floats
    count: Integers
    confidence: Floats
    accuracy: Floats
    gap: Floats
    ece: float
    mce: float
    mean_accuracy: float
    mean_confidence: float


def ece(probabilities: Values, labels: Values, bins: int = 15, mode: Mode = "width") -> float:
    """Return the expected calibration error: how much confidence and accuracy differ in a bin, on average.

    Args:
        probabilities: Probabilities ``[N, C]``, rows that sum to 1.
        labels: The class index of each input, ``[N]``.
        bins: The number of bins.
        mode: ``"width"`` for bins of equal width, ``"mass"`` for bins of about as many inputs each.

    Returns:
        The error, from 0 (calibrated) to 1.

    Examples:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(nescio.evaluate.ece(p, [0, 0, 1]), 3)
        0.2
    """
    return reliability(probabilities, labels, bins, mode).ece


def mce(probabilities: Values, labels: Values, bins: int = 15, mode: Mode = "width") -> float:
    """Return the maximum calibration error: how much confidence and accuracy differ in the worst bin.

    Args:
        probabilities: Probabilities ``[N, C]``, rows that sum to 1.
        labels: The class index of each input, ``[N]``.
        bins: The number of bins.
        mode: ``"width"`` for bins of equal width, ``"mass"`` for bins of about as many inputs each.

    Returns:
        The error, from 0 (calibrated) to 1.

    Examples:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(nescio.evaluate.mce(p, [0, 0, 1]), 3)
        0.3
    """
    return reliability(probabilities, labels, bins, mode).mce


def nll(probabilities: Values, labels: Values) -> float:
    """Return the negative log-likelihood: the mean of −log p of the true class.

    Args:
        probabilities: Probabilities ``[N, C]``, rows that sum to 1.
        labels: The class index of each input, ``[N]``.

    Returns:
        The mean, 0 where all answers are right and certain; ∞ where a true class has the probability 0.

    Examples:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(nescio.evaluate.nll(p, [0, 0, 1]), 3)
        0.228
    """
    p, y = _checked_probabilities(probabilities, labels)
    with np.errstate(divide="ignore"):  # −log 0 = ∞ is the answer, not an accident
        return float(np.sort(-np.log(p[np.arange(y.size), y])).mean())


def brier(probabilities: Values, labels: Values) -> float:
    """Return the Brier score: the mean over inputs of Σ_c (p_c − 1[c is the true class])².

    Args:
        probabilities: Probabilities ``[N, C]``, rows that sum to 1.
        labels: The class index of each input, ``[N]``.

    Returns:
        The score, from 0 (right and certain) to 2.

    Examples:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> round(nescio.evaluate.brier(p, [0, 0, 1]), 3)
        0.093
    """
    p, y = _checked_probabilities(probabilities, labels)
    p = p.copy()
    p[np.arange(y.size), y] -= 1
    return float(np.sort((p * p).sum(1)).mean())


def reliability(probabilities: Values, labels: Values, bins: int = 15, mode: Mode = "width") -> Reliability:
    """Compute what a reliability diagram shows: confidence and accuracy, bin by bin.

    The exact edges of the bins stand at the top of this file.

    Args:
        probabilities: Probabilities ``[N, C]``, rows that sum to 1.
        labels: The class index of each input, ``[N]``.
        bins: The number of bins.
        mode: ``"width"`` for bins of equal width, ``"mass"`` for bins of about as many inputs each.

    Returns:
        The bins, and the figures over all inputs.

    Examples:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]]
        >>> table = nescio.evaluate.reliability(p, [0, 0, 1], bins=2)
        >>> table.count, round(table.mean_confidence, 3), table.mean_accuracy
        (array([0, 3]), 0.8, 1.0)
    """
    p, y = _checked_probabilities(probabilities, labels)
    bins = integer("bins", bins, at_least=1)
    if mode not in ("width", "mass"):
        raise InputError(f'mode: expected "width" (bins of equal width) or "mass" (of equal size) but got {mode!r}')
    confidence, right = p.max(1), p.argmax(1) == y
    order = np.argsort(confidence)
    confidence, right = confidence[order], right[order]

    inner = np.arange(1, bins) / bins if mode == "width" else _mass_edges(confidence, bins)
    place = np.searchsorted(inner, confidence, side="left")  # the first edge that is not below the confidence
    size = inner.size + 1
    count = np.bincount(place, minlength=size)
    filled = np.where(count > 0, count, np.nan)
    mean = np.bincount(place, weights=confidence, minlength=size) / filled
    accuracy = np.bincount(place, weights=right, minlength=size) / filled
    gap = mean - accuracy
    return Reliability(
        lower=np.concatenate([[0.0], inner]),
        upper=np.concatenate([inner, [1.0]]),
        count=count,
        confidence=mean,
        accuracy=accuracy,
        gap=gap,
        ece=float(np.nansum(count * np.abs(gap)) / y.size),
        mce=float(np.nanmax(np.abs(gap))),
        mean_accuracy=float(right.mean()),
        mean_confidence=float(confidence.mean()),
    )


def _mass_edges(confidence: Floats, bins: int) -> Floats:
    """The edges between bins of equal mass, rising, from confidences that rise.

    An edge that comes twice would close an empty bin, and one at the top would leave the last bin empty.
    """
    last = -(-np.arange(1, bins) * confidence.size // bins) - 1  # ⌈mN/M⌉, counted from 0
    edges = np.unique(confidence[last])
    result: Floats = edges[edges < confidence[-1]]
    return result


def _checked_probabilities(probabilities: Values, labels: Values) -> tuple[Floats, Integers]:
    p = _probabilities(probabilities)
    return p, _classes(labels, *p.shape)
