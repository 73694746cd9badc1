"""What labels tell: calibration, and what is gained by answering only where doubt is low.

The temperature is fitted to one half of the labelled rows, drawn with the seed, and judged on the other half. It scales
log p of the answer, which for a single network is the same as scaling its logits.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio import evaluate
from nescio.decide.binomial import upper_bound
from nescio.posteriors import Temperature
from nescio.report.findings_types import CalibrationFacts, CalibrationFigures, RiskFigures
from nescio.types import InputError

LEAST = 20
"""Labelled rows below which no temperature is fitted."""
Floats = NDArray[np.float64]


def calibration_and_risks(
    p: Tensor, scores: Mapping[str, Floats], truth: NDArray[np.int64] | None, seed: int
) -> tuple[CalibrationFacts | None, dict[str, RiskFigures] | None]:
    """Return the calibration and the selective risks of those rows whose label is known; None without labels.

    Args:
        p: Probabilities ``[N, C]``.
        scores: Scores by their names, ``[N]`` each.
        truth: The class index of each row, −1 where it is not known.
        seed: Of the split into halves.
    """
    if truth is None:
        return None, None
    labelled = truth >= 0
    right = p.argmax(1).numpy() == truth
    own = {name: values[labelled] for name, values in scores.items()}
    return calibration(p[labelled], torch.from_numpy(truth[labelled]), seed), selective(own, right[labelled])


def calibration(p: Tensor, labels: Tensor, seed: int) -> CalibrationFacts:
    """Find whether probabilities mean what they say: on all rows, and before and after a temperature on one half.

    Args:
        p: Probabilities ``[N, C]``.
        labels: The class index of each row, ``[N]``.
        seed: Of the split into halves.
    """
    facts: CalibrationFacts = {"all": _figures(p, labels), "temperature": None, "note": ""}
    if len(labels) < LEAST:
        return facts | {"note": f"{len(labels)} labelled rows are too few to fit a temperature: it takes {LEAST}."}
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    fit, test = order[: len(labels) // 2].sort().values, order[len(labels) // 2 :].sort().values
    z = p.clamp(min=torch.finfo(torch.float64).tiny).log()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        scaling = Temperature(lambda x: x).fit_logits(z[fit], labels[fit])
    assert scaling.temperature is not None
    if told:  # it ended at a bound
        return facts | {"note": "No temperature: " + " ".join(str(one.message) for one in told) + "."}
    after = (z[test] / scaling.temperature).softmax(1)
    return facts | {
        "temperature": scaling.temperature,
        "fitted": len(fit),
        "tested": len(test),
        "before": _figures(p[test], labels[test]),
        "after": _figures(after, labels[test]),
    }


def selective(scores: Mapping[str, Floats], correct: NDArray[np.bool_]) -> dict[str, RiskFigures]:
    """Find for each score how well it puts wrong answers last.

    Args:
        scores: Scores by their names, ``[N]`` each.
        correct: Whether each answer is right, ``[N]``.
    """
    mixed = bool(correct.any()) and not bool(correct.all())
    risks: dict[str, RiskFigures] = {}
    for name, values in scores.items():
        curve = evaluate.risk_coverage(values, correct)
        known = evaluate.raulc(values, correct) if mixed else None
        risks[name] = {"aurc": curve.aurc, "eaurc": curve.eaurc, "raulc": known}
    return risks


def fitting_labels(labels: NDArray[np.int64] | None, classes: int) -> NDArray[np.int64] | None:
    """Labels that fit the model, or None where no row has one; −1 stands for a label that is not known."""
    if labels is None or not (labels >= 0).any():
        return None
    if labels.max() >= classes:
        raise InputError(
            f"expected labels from 0 to {classes - 1}, as the model has {classes} classes, but got {labels.max()}; "
            "name the right ones (--label, --labels), or leave them out (--label none)"
        )
    return labels


def numbers(values: object) -> list[float | None]:
    """Floats as JSON can hold them."""
    return [float(v) if math.isfinite(v) else None for v in np.asarray(values, dtype=np.float64)]


def interval(right: int, n: int) -> tuple[float, float]:
    """Between which shares the true one lies, with a confidence of 95 % (Clopper and Pearson)."""
    return 1.0 - upper_bound(n - right, n, 0.025), upper_bound(right, n, 0.025)


def _by_chance(p: Tensor, draws: int = 200) -> float:
    """The ECE that a model whose probabilities are true would not exceed in 95 of 100 sets of these inputs."""
    labels = torch.multinomial(p, draws, replacement=True, generator=torch.Generator().manual_seed(0))
    return float(np.quantile([evaluate.ece(p, own) for own in labels.T], 0.95))


def _figures(p: Tensor, labels: Tensor) -> CalibrationFigures:
    reliability = evaluate.reliability(p, labels)
    bins: Sequence[str] = ("lower", "upper", "count", "confidence", "accuracy", "gap")
    nll = evaluate.nll(p, labels)
    right = int((p.argmax(1) == labels).sum())
    return {
        "n": len(labels),
        "ece": reliability.ece,
        "mce": reliability.mce,
        "mean_accuracy": reliability.mean_accuracy,
        "mean_confidence": reliability.mean_confidence,
        "right": right,
        "accuracy_interval": interval(right, len(labels)),
        "ece_by_chance": _by_chance(p),
        "nll": nll if math.isfinite(nll) else None,
        "brier": evaluate.brier(p, labels),
        "bins": {name: numbers(getattr(reliability, name)) for name in bins},
    }
