"""Whether the two parts of an uncertainty measure two things.

A decomposition is worth having when its parts differ, and each finds what it should: the aleatoric part inputs that
people disagree on, the epistemic part inputs unlike what was seen.

    spearman = correlation of the ranks of aleatoric and epistemic (equal values share the mean of their ranks)
    pearson  = Σ (x − x̄)(y − ȳ) / √(Σ (x − x̄)² Σ (y − ȳ)²)  of the values themselves
    label_entropy: Spearman correlation of each part with H(q_i) = −Σ_c q_ic log q_ic, q_i the soft label of input i
    errors, ood:   AUROC of each part for telling wrong from right answers, and OOD from ID inputs

A correlation with something that is the same for all inputs is 0/0: it is None, not a number. (A single network, say,
has no epistemic part: it is 0 everywhere.) An AUROC needs no such care: a constant part has 0.5, chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nescio._common.arrays import Values
from nescio.evaluate.correlation import correlation, ranks
from nescio.evaluate.metric_inputs import Booleans, Floats, flags, scores, table
from nescio.evaluate.ood import ood
from nescio.types import Decomposition, InputError


@dataclass(frozen=True)
class Parts:
    """Hold one figure for each part of the uncertainty; None where the part is constant, so that there is no figure.

    Attributes:
        aleatoric: The figure of the aleatoric part.
        epistemic: The figure of the epistemic part.
        total: The figure of both together.

    Examples:
        >>> nescio.evaluate.Parts(aleatoric=0.5, epistemic=0.9, total=0.8).epistemic
        0.9
    """

    aleatoric: float | None
    epistemic: float | None
    total: float | None


@dataclass(frozen=True)
class Disentanglement:
    """Hold how much aleatoric and epistemic uncertainty agree, and what each finds.

    Attributes:
        spearman: The rank correlation of the two, from −1 to 1; near 1 they say the same thing. None where one is
            constant.
        pearson: Their linear correlation, from −1 to 1; None where one is constant.
        label_entropy: The Spearman correlation of each part with the entropy of the soft labels; None without
            soft labels.
        errors: The AUROC of each part for finding wrong answers; None where it is not known which answers are right.
        ood: The AUROC of each part for finding foreign inputs (OOD); None where it is not known which inputs are.

    Examples:
        >>> p = torch.tensor([[[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]], [[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]])
        >>> nescio.evaluate.disentanglement(nescio.decompose(p), is_ood=[False, False, True]).ood.epistemic
        1.0
    """

    spearman: float | None
    pearson: float | None
    label_entropy: Parts | None = None
    errors: Parts | None = None
    ood: Parts | None = None


def disentanglement(
    decomposition: Decomposition,
    soft_labels: Values | None = None,
    correct: Values | None = None,
    is_ood: Values | None = None,
) -> Disentanglement:
    """Measure whether the two parts of an uncertainty differ, and whether each finds what it should.

    Every figure is over all inputs that are given. For errors among ID inputs alone, give those alone.

    Args:
        decomposition: What `nescio.decompose` gives for N inputs, N at least 2.
        soft_labels: How people labelled each input, ``[N, C]``, as counts or probabilities; None without such labels.
        correct: Whether each answer is right, ``[N]``; some must be right and some wrong. None if it is not known.
        is_ood: Whether each input is foreign, ``[N]``; some must be and some not. None if it is not known.

    Returns:
        Correlations and AUROCs of the parts.

    Examples:
        >>> p = torch.tensor([[[0.9, 0.1], [0.5, 0.5], [0.6, 0.4]], [[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]])
        >>> result = nescio.evaluate.disentanglement(nescio.decompose(p), correct=[True, True, False])
        >>> round(result.spearman, 3), result.errors.epistemic
        (-0.5, 1.0)
    """
    if not isinstance(decomposition, Decomposition):
        raise InputError(
            f"decomposition: expected a nescio.types.Decomposition but got {type(decomposition).__name__}; "
            "make one with nescio.decompose(probabilities)"
        )
    parts = {name: _part(getattr(decomposition, name), name) for name in ("aleatoric", "epistemic", "total")}
    sizes = {name: part.size for name, part in parts.items()}
    size = sizes["total"]
    if len(set(sizes.values())) > 1 or size < 2:
        raise InputError(f"decomposition: expected parts of one length, at least 2, but got {sizes}")

    result: dict[str, Parts | None] = {"label_entropy": None, "errors": None, "ood": None}
    if soft_labels is not None:
        entropy = ranks(_entropy(soft_labels, size))
        result["label_entropy"] = Parts(**{k: correlation(ranks(part), entropy) for k, part in parts.items()})
    if correct is not None:
        wrong = ~flags(correct, "correct", size)
        result["errors"] = _aurocs(parts, wrong, "correct", "right and wrong answers")
    if is_ood is not None:
        result["ood"] = _aurocs(parts, flags(is_ood, "is_ood", size), "is_ood", "ID and OOD inputs")
    aleatoric, epistemic = parts["aleatoric"], parts["epistemic"]
    return Disentanglement(
        spearman=correlation(ranks(aleatoric), ranks(epistemic)), pearson=correlation(aleatoric, epistemic), **result
    )


def _part(values: Values, name: str) -> Floats:
    part = scores(values, f"decomposition.{name}")
    if not np.isfinite(part).all():
        raise InputError(
            f"decomposition.{name}: expected finite numbers but {(~np.isfinite(part)).sum()} are infinite; "
            "find out why, or leave those inputs out"
        )
    return part


def _aurocs(parts: dict[str, Floats], positive: Booleans, name: str, kinds: str) -> Parts:
    if positive.all() or not positive.any():
        raise InputError(f"{name}: expected both {kinds} but all {positive.size} are of one kind; AUROC needs both")
    return Parts(**{k: ood(part[~positive], part[positive], bootstrap=0).auroc for k, part in parts.items()})


def _entropy(soft_labels: Values, size: int) -> Floats:
    counts = table(soft_labels, "soft_labels", "counts or probabilities")
    if len(counts) != size:
        raise InputError(f"soft_labels: expected a row for each of the {size} inputs but got {len(counts)}")
    sums = counts.sum(1, keepdims=True)
    if not sums.all():
        row = int(np.argmin(sums))
        raise InputError(
            f"soft_labels: expected at least one label for each input but row {row} is all 0; leave it out"
        )
    # Sorted, so that [3, 1] and [1, 3] have the same entropy to the last digit, and share their rank.
    q = np.sort(counts / sums, axis=1)
    result: Floats = -(q * np.log(np.where(q > 0, q, 1.0))).sum(1)
    return result
