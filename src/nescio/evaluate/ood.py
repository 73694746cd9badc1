"""How well a score separates foreign inputs (out of distribution, OOD) from known ones (in distribution, ID).

OOD is the positive class, and a higher score must mean "more foreign". With id scores u_1…u_n and ood scores
v_1…v_m, and #{…} for "the number of":

    auroc = [ #{(i, j): v_j > u_i} + ½ #{(i, j): v_j = u_i} ] / (n m)

For a threshold t an input counts as caught when its score is ≥ t, so that

    recall(t)    = #{j: v_j ≥ t} / m          false alarms(t) = #{i: u_i ≥ t} / n
    precision(t) = #{j: v_j ≥ t} / ( #{j: v_j ≥ t} + #{i: u_i ≥ t} )

    aupr  = Σ_k precision(t_k) [recall(t_k) − recall(t_{k−1})]    t_1 > t_2 > … the distinct scores (average precision)
    fpr95 = false alarms(t*),  t* the highest of the t_k with recall(t*) ≥ 95 %

Equal scores enter a threshold together, so the order of the inputs never matters. Nothing is ever turned round:
a score that is higher for known inputs gets an AUROC below 0.5.

The intervals are percentiles over bootstrap resamples: n of the ID scores and m of the OOD scores, each drawn with
replacement from its own set. All three figures depend only on how many scores of each set lie at each distinct score,
so a resample is two rows of counts, and no resample is ever sorted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nescio._common.argument_checks import integer, probability
from nescio._common.arrays import Values
from nescio.evaluate.metric_inputs import Floats, Integers, scores
from nescio.types import InputError

Interval = tuple[float, float]

_BLOCK = 2**18  # counts held at a time, 2 MB for each array: small enough for a processor's cache


@dataclass(frozen=True)
class OODResult:
    """Hold AUROC, AUPR and FPR95 as shares from 0 to 1, where foreign inputs (OOD) are the positive ones.

    An interval says how much a figure may be off because the inputs are a sample; None where no intervals were wanted.

    Attributes:
        auroc: 1 is perfect, 0.5 is chance.
        aupr: 1 is perfect, n_ood / (n_id + n_ood) is chance.
        fpr95: The share of known inputs (ID) that are flagged when at least 95 % of the foreign ones are; 0 is perfect.
        n_id: How many known inputs there were.
        n_ood: How many foreign inputs there were.
        auroc_interval: The interval of AUROC.
        aupr_interval: The interval of AUPR.
        fpr95_interval: The interval of FPR95.

    Examples:
        >>> nescio.evaluate.ood([0.1, 0.2], [0.5, 0.9], bootstrap=0)
        OODResult(auroc=1.0, aupr=1.0, fpr95=0.0, n_id=2, n_ood=2, ...)
    """

    auroc: float
    aupr: float
    fpr95: float
    n_id: int
    n_ood: int
    auroc_interval: Interval | None = None
    aupr_interval: Interval | None = None
    fpr95_interval: Interval | None = None


@dataclass(frozen=True)
class ROC:
    """Hold a ROC curve from (0, 0) to (1, 1), with one point for each distinct score.

    Attributes:
        false_positive_rate: The share of known inputs that are flagged at each threshold.
        true_positive_rate: The share of foreign inputs that are flagged at each threshold.
        thresholds: The thresholds, falling from +∞.

    Examples:
        >>> nescio.evaluate.roc([0.1, 0.3], [0.2, 0.9]).thresholds
        array([inf, 0.9, 0.3, 0.2, 0.1])
    """

    false_positive_rate: Floats
    true_positive_rate: Floats
    thresholds: Floats


def ood(
    id_scores: Values, ood_scores: Values, *, bootstrap: int = 1000, confidence: float = 0.95, seed: int = 0
) -> OODResult:
    """Measure how well a score separates foreign inputs (OOD) from known ones (ID).

    The conventions for ties and thresholds stand at the top of this file.

    Args:
        id_scores: Scores of the known inputs, ``[n]``; higher means more uncertain. ±∞ may occur, NaN may not.
        ood_scores: Scores of the foreign inputs, ``[m]``.
        bootstrap: How many resamples the intervals come from; 0 for no intervals. The intervals know no more than the
            scores at hand. With a handful of inputs, or with sets that do not overlap, they are too narrow.
        confidence: The share of the resamples that an interval holds.
        seed: The seed of the resamples.

    Returns:
        AUROC, AUPR and FPR95 as shares from 0 to 1, each with its interval.

    Raises:
        InputError: If a score is NaN, a set is empty, or `bootstrap` is too small for `confidence`.

    Examples:
        >>> result = nescio.evaluate.ood([0.1, 0.2, 0.3], [0.25, 0.5, 0.9])
        >>> round(result.auroc, 3), round(result.fpr95, 3)
        (0.889, 0.333)
    """
    known, foreign = scores(id_scores, "id_scores"), scores(ood_scores, "ood_scores")
    resamples, start = integer("bootstrap", bootstrap, at_least=0), integer("seed", seed, at_least=0)
    if resamples:
        _check_confidence(confidence, resamples)
    distinct, id_places, ood_places = _ranks(known, foreign)
    auroc, aupr, fpr95 = _figures(id_places[None], ood_places[None], distinct.size)[:, 0]
    intervals: list[Interval | None] = [None, None, None]
    if resamples:
        ends = [(1 - confidence) / 2, (1 + confidence) / 2]
        drawn = _resampled(id_places, ood_places, distinct.size, resamples, start)
        intervals = [(float(low), float(high)) for low, high in np.quantile(drawn, ends, axis=1).T]
    return OODResult(float(auroc), float(aupr), float(fpr95), known.size, foreign.size, *intervals)


def roc(id_scores: Values, ood_scores: Values) -> ROC:
    """Return the ROC curve: the share of foreign inputs that are caught against the share of false alarms.

    Args:
        id_scores: Scores of the known inputs, ``[n]``; higher means more uncertain.
        ood_scores: Scores of the foreign inputs, ``[m]``.

    Returns:
        The curve over all thresholds.

    Examples:
        >>> curve = nescio.evaluate.roc([0.1, 0.3], [0.2, 0.9])
        >>> curve.false_positive_rate, curve.true_positive_rate
        (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    known, foreign = scores(id_scores, "id_scores"), scores(ood_scores, "ood_scores")
    distinct, *counts = _ranks(known, foreign)
    alarms, caught = (_counts(place[None], distinct.size)[0].cumsum() for place in counts)
    return ROC(
        false_positive_rate=np.concatenate([[0.0], alarms / known.size]),
        true_positive_rate=np.concatenate([[0.0], caught / foreign.size]),
        thresholds=np.concatenate([[np.inf], distinct]),
    )


def _ranks(known: Floats, foreign: Floats) -> tuple[Floats, Integers, Integers]:
    """Distinct scores, falling, and the place among them of each ID and each OOD score.

    The places are sorted, so that a resample drawn from them does not depend on the order of the inputs.
    """
    rising, place = np.unique(np.concatenate([known, foreign]), return_inverse=True)
    place = rising.size - 1 - place
    return rising[::-1], np.sort(place[: known.size]), np.sort(place[known.size :])


def _counts(places: Integers, size: int) -> Integers:
    """How many scores of each row of `places` [R, n] lie at each of `size` distinct scores, [R, size]."""
    rows = len(places)
    shifted = places + size * np.arange(rows)[:, None]
    return np.bincount(shifted.ravel(), minlength=rows * size).reshape(rows, size)


def _figures(id_places: Integers, ood_places: Integers, size: int) -> Floats:
    """AUROC, AUPR and FPR95, [3, R], of R pairs of samples: places [R, n] and [R, m] among `size` distinct scores."""
    id_at, ood_at = _counts(id_places, size), _counts(ood_places, size)
    alarms, caught = id_at.cumsum(1), ood_at.cumsum(1)
    n, m = alarms[:, -1:], caught[:, -1:]
    wins_twice = (ood_at * (2 * (n - alarms) + id_at)).sum(1)  # integers: no rounding before the one division
    precision = caught / np.maximum(caught + alarms, 1)  # a resample may lack the highest scores: 0 of 0
    enough = (caught * 100 >= 95 * m).argmax(1)  # counts rise, so the first place is the highest threshold
    return np.stack(
        [
            wins_twice / (2 * n * m)[:, 0],
            (precision * ood_at).sum(1) / m[:, 0],
            alarms[np.arange(len(alarms)), enough] / n[:, 0],
        ]
    )


def _resampled(id_places: Integers, ood_places: Integers, size: int, resamples: int, seed: int) -> Floats:
    """The three figures of each resample, [3, resamples], in blocks of bounded memory.

    Each set has a generator of its own, so that the draws do not depend on how large a block is.
    """
    id_rng, ood_rng = np.random.default_rng(seed).spawn(2)
    rows = max(1, _BLOCK // max(size, id_places.size, ood_places.size))
    blocks = []
    for done in range(0, resamples, rows):
        count = min(rows, resamples - done)
        drawn_id = id_places[id_rng.integers(id_places.size, size=(count, id_places.size))]
        drawn_ood = ood_places[ood_rng.integers(ood_places.size, size=(count, ood_places.size))]
        blocks.append(_figures(drawn_id, drawn_ood, size))
    return np.concatenate(blocks, axis=1)


def _check_confidence(confidence: float, resamples: int) -> None:
    probability("confidence", confidence)
    least = math.ceil(2 / (1 - confidence) - 1e-9)  # one resample beyond each end
    if resamples < least:
        raise InputError(
            f"bootstrap: expected at least {least} resamples for intervals of confidence {confidence} (or 0 for none) "
            f"but got {resamples}"
        )
