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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nescio.types import InputError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class OODResult:
    """AUROC, AUPR and FPR95 as shares between 0 and 1 (OOD positive), and how many inputs they rest on.

    auroc: 1 is perfect and 0.5 is chance; aupr: 1 is perfect and n_ood / (n_id + n_ood) is chance;
    fpr95: 0 is perfect, the share of ID inputs that are flagged when at least 95 % of the OOD inputs are.
    """

    auroc: float
    aupr: float
    fpr95: float
    n_id: int
    n_ood: int


@dataclass(frozen=True)
class ROC:
    """The ROC curve, from (0, 0) to (1, 1): one point for each distinct score, thresholds falling from +∞."""

    false_positive_rate: Floats
    true_positive_rate: Floats
    thresholds: Floats


def ood(id_scores: ArrayLike | Tensor, ood_scores: ArrayLike | Tensor) -> OODResult:
    """Separation of OOD from ID scores; higher scores must mean more uncertain.

    Both are one-dimensional arrays, tensors or lists of real numbers (±∞ may occur, NaN may not). The module's
    docstring has the exact conventions for ties and thresholds.
    """
    known, foreign = _scores(id_scores, "id_scores"), _scores(ood_scores, "ood_scores")
    n, m = known.size, foreign.size
    ordered = np.sort(known)
    below = np.searchsorted(ordered, foreign, side="left")
    not_above = np.searchsorted(ordered, foreign, side="right")
    wins_twice = int(below.sum()) + int(not_above.sum())  # integers: no rounding before the one division

    _, alarms, caught = _counts(known, foreign)
    precision = caught / (caught + alarms)
    gained = np.diff(caught, prepend=0)
    enough = int(np.argmax(caught * 100 >= 95 * m))  # counts rise, so the first place is the highest threshold
    return OODResult(
        auroc=wins_twice / (2 * n * m),
        aupr=float((precision * gained).sum() / m),
        fpr95=int(alarms[enough]) / n,
        n_id=n,
        n_ood=m,
    )


def roc(id_scores: ArrayLike | Tensor, ood_scores: ArrayLike | Tensor) -> ROC:
    """The curve of caught OOD inputs (true positives) against false alarms among ID inputs, over all thresholds."""
    known, foreign = _scores(id_scores, "id_scores"), _scores(ood_scores, "ood_scores")
    thresholds, alarms, caught = _counts(known, foreign)
    return ROC(
        false_positive_rate=np.concatenate([[0.0], alarms / known.size]),
        true_positive_rate=np.concatenate([[0.0], caught / foreign.size]),
        thresholds=np.concatenate([[np.inf], thresholds]),
    )


def _counts(known: Floats, foreign: Floats) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Distinct scores, falling, and how many ID and OOD scores are at or above each."""
    thresholds = np.unique(np.concatenate([known, foreign]))[::-1]
    alarms = known.size - np.searchsorted(np.sort(known), thresholds, side="left")
    caught = foreign.size - np.searchsorted(np.sort(foreign), thresholds, side="left")
    return thresholds, alarms.astype(np.int64), caught.astype(np.int64)


def _scores(values: Any, name: str) -> Floats:
    if isinstance(values, Tensor):
        values = values.detach().to("cpu")
        values = values.double() if values.is_floating_point() else values
        values = values.numpy()
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError("complex numbers have no order")
        array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: expected real numbers, one for each input, but got {values!r:.80} ({error})"
        ) from error
    if array.ndim != 1:
        raise InputError(
            f"{name}: expected one number for each input, shape [N], but got shape {list(array.shape)}; "
            "reduce or flatten it first"
        )
    if array.size == 0:
        raise InputError(f"{name}: expected at least one score but got none; nothing can be said about an empty set")
    bad = np.flatnonzero(np.isnan(array))
    if bad.size:
        listed = ", ".join(map(str, bad[:5])) + (", …" if bad.size > 5 else "")
        raise InputError(
            f"{name}: expected numbers but {bad.size} of {array.size} scores are NaN (at {listed}); "
            "find out why, or leave those inputs out"
        )
    return array
