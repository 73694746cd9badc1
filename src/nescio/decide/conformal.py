"""Sets of answers that hold the true one with a promised probability (conformal prediction).

With a score s(x, c) for each class and calibration scores s_i = s(x_i, y_i), let q be the ⌈(n + 1) coverage⌉-th
smallest of the s_i (+∞ when there are too few). The set of a new input is {c: s(x, c) ≤ q}. The rank of the new s(x,
y) among n + 1 is uniform (ties only help), so P(y in the set) ≥ coverage, on average over calibration data and new
inputs like them.

    split:     s(x, c) = 1 − p_c                      the smallest sets on average
    adaptive:  s(x, c) = Σ_{c': p_c' ≥ p_c} p_c'      larger sets for harder inputs (APS, not randomised)

The likeliest class is always in the set, so that no set is empty: this can only add to the coverage. Classes of equal
probability enter together, so their order never matters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nescio._common.argument_checks import probability
from nescio._common.arrays import Values
from nescio._common.formatting import count, percent
from nescio.decide.checks import Floats, labels_of, probabilities_of
from nescio.decide.saved_policy import SavedPolicy, about_of
from nescio.decide.thresholds import rank
from nescio.types import InputError

Kind = Literal["split", "adaptive"]


@dataclass(frozen=True)
class ConformalPolicy(SavedPolicy):
    """Give each input the set of the classes with s(x, c) ≤ `threshold`; s stands at the top of this file.

    Attributes:
        kind: "split" or "adaptive".
        threshold: The largest s of a class in the set. None: the examples were too few, and each set holds all classes.
        coverage: The promised probability that a set holds the true class.
        n: How many calibration examples were used.
        classes: How many classes there are.
        size: The mean size of the sets of the examples.
        about: What the caller says of how the probabilities were made.

    Examples:
        >>> p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
        >>> print(nescio.decide.conformal(p, [0, 1, 0, 1], coverage=0.8))
        The set of answers holds the true class for at least 80... of new inputs like the 4 examples, ...
    """

    kind: Kind
    threshold: float | None
    coverage: float
    n: int
    classes: int
    size: float
    about: Mapping[str, str] = field(default_factory=dict)

    _form = "nescio prediction sets"

    def sets(self, probabilities: Values) -> Tensor:
        """Return the sets of classes.

        Args:
            probabilities: Probabilities ``[N, C]``.

        Returns:
            True for each class that is in an input's set, bool ``[N, C]``.
        """
        p = probabilities_of(probabilities, classes=self.classes)
        return torch.from_numpy(_sets(p, self.kind, self.threshold))

    def _sentence(self) -> str:
        if self.threshold is None:
            return (
                f"With {count(self.n, 'example')} only the set of all {self.classes} classes can promise to hold the "
                f"true class for {percent(self.coverage)} of inputs; it takes more examples."
            )
        return (
            f"The set of answers holds the true class for at least {percent(self.coverage)} of new inputs like the "
            f"{count(self.n, 'example')}, on average over such sets; it names {self.size:.3g} of {self.classes} "
            f"classes on average."
        )

    def _wrong(self) -> str | None:
        numbers = [self.coverage, self.n, self.classes, self.size, self.threshold or 0.0]
        sound = all(isinstance(v, int | float) and math.isfinite(v) for v in numbers) and 0 < self.coverage < 1
        sound = sound and self.kind in ("split", "adaptive") and self.classes >= 2 and self.n >= 1
        return None if sound else "its numbers do not fit together"


def conformal(
    probabilities: Values,
    labels: Values,
    coverage: float = 0.9,
    kind: Kind = "split",
    *,
    about: Mapping[str, str] | None = None,
) -> ConformalPolicy:
    """Make sets of answers that hold the true class with a promised probability.

    Args:
        probabilities: Probabilities ``[N, C]`` of held-out examples that the model was not fitted on.
        labels: The class of each example, ``[N]``.
        coverage: The probability that the set of a new input holds its true class, at least.
        kind: ``"split"`` for the smallest sets on average, ``"adaptive"`` for larger sets where an input is harder.
        about: What you want to note of how the probabilities were made.

    Returns:
        The rule; its method `sets` gives the set of each input.

    Examples:
        >>> p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]])
        >>> policy = nescio.decide.conformal(p, [0, 1, 0, 1], coverage=0.8)
        >>> policy.sets([[0.55, 0.45], [0.61, 0.39]])
        tensor([[ True, False],
                [ True, False]])
    """
    p = probabilities_of(probabilities)
    y = labels_of(labels, *p.shape)
    coverage = probability("coverage", coverage)
    if kind not in ("split", "adaptive"):
        raise InputError(f"kind: expected 'split' or 'adaptive', but got {kind!r}")
    own = np.sort(_nonconformity(p, kind)[np.arange(len(y)), y])
    k = rank(len(own), coverage)
    q = float(own[k - 1]) if k <= len(own) else None
    size = float(_sets(p, kind, q).sum(1).mean())
    return ConformalPolicy(kind, q, coverage, len(own), p.shape[1], size, about_of(about))


def _sets(p: Floats, kind: Kind, q: float | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if q is None:
        return np.ones(p.shape, dtype=np.bool_)
    result: np.ndarray[Any, np.dtype[np.bool_]] = (_nonconformity(p, kind) <= q) | (p == p.max(1, keepdims=True))
    return result


def _nonconformity(p: Floats, kind: Kind) -> Floats:
    """s(x, c) for every class, [N, C]."""
    if kind == "split":
        return 1.0 - p
    order = np.argsort(-p, axis=1, kind="stable")
    falling = np.take_along_axis(p, order, 1)
    sums = falling.cumsum(1)
    # Equal probabilities share the sum at the end of their group: sums rise, so it is the least one to the right.
    ends = np.concatenate([falling[:, 1:] != falling[:, :-1], np.ones((len(p), 1), dtype=np.bool_)], 1)
    sums = np.minimum.accumulate(np.where(ends, sums, np.inf)[:, ::-1], axis=1)[:, ::-1]
    result = np.empty_like(p)
    np.put_along_axis(result, order, sums, 1)
    return result
