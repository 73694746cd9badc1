"""Answers at every position of a picture, with a promise for the whole picture (conformal risk control).

The loss of picture i at a level λ is a share of positions of it, which falls as λ grows:

    miscoverage   set at q: {c: 1 − p_c(q) ≤ λ}, and the likeliest    loss: positions whose true class is not in it
    misses        found:    {q: 1 − Σ_{c sought} p_c(q) ≤ λ}          loss: positions of sought classes not found

With n pictures the level is the least λ with

    (L_1(λ) + … + L_n(λ) + 1)/(n + 1) ≤ risk            none below 1 = the largest loss: then all is taken

and the expected loss of a new picture like them is at most `risk`, whatever the model (Angelopoulos et al. 2022): with
the new picture among the n + 1 the sum could only be larger by its own loss, which is at most 1. The promise is for the
mean over pictures; positions of one picture need not be independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from nescio._common.argument_checks import choice, integer, probability
from nescio._common.arrays import Values, real_numbers
from nescio._common.formatting import count, percent
from nescio.decide.checks import Floats, labels_of, probabilities_of
from nescio.decide.saved_policy import SavedPolicy, about_of
from nescio.types import InputError

Kind = Literal["miscoverage", "misses"]
_ROUND_OFF = 1e-9  # of a sum of shares, in pictures: what is equal must not depend on it


@dataclass(frozen=True)
class RiskPolicy(SavedPolicy):
    """Give each position a set of classes, or say whether a sought class may be there, with a promise for each input.

    Attributes:
        kind: "miscoverage" or "misses"; the formulas stand at the top of this file.
        threshold: λ. None: the examples were too few, and everything is taken.
        risk: The expected loss of a new input, at most.
        n: How many calibration inputs were used.
        classes: How many classes there are.
        sought: The classes that must not be missed; empty for "miscoverage".
        size: Of the examples: the mean size of the sets, or the share of positions that are found.
        about: What the caller says of how the probabilities were made.

    Examples:
        >>> p = torch.rand(40, 6, 6, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
        >>> policy = nescio.decide.risk_control(p, p.argmax(-1), risk=0.1)
        >>> print(policy)
        Of the positions of a new input like the 40 examples at most 10 % have a true class outside their set, on ...
    """

    kind: Kind
    threshold: float | None
    risk: float
    n: int
    classes: int
    sought: tuple[int, ...]
    size: float
    about: Mapping[str, str] = field(default_factory=dict)

    _form = "nescio risk control"

    def sets(self, probabilities: Values) -> Tensor:
        """Return the set of classes at each position; for "miscoverage".

        Args:
            probabilities: Probabilities ``[N, *positions, C]``.

        Returns:
            True for each class in the set, bool ``[N, *positions, C]``.
        """
        self._only("miscoverage", "found")
        p = _image(probabilities, self.classes)
        return torch.from_numpy(_sets(p.reshape(-1, self.classes), self.threshold).reshape(p.shape))

    def found(self, probabilities: Values) -> Tensor:
        """Return where a sought class may be; for "misses".

        Args:
            probabilities: Probabilities ``[N, *positions, C]``.

        Returns:
            True where it may be, bool ``[N, *positions]``.
        """
        self._only("misses", "sets")
        p = _image(probabilities, self.classes)
        if self.threshold is None:
            return torch.ones(p.shape[:-1], dtype=torch.bool)
        rows = p.reshape(-1, self.classes)
        return torch.from_numpy((_absence(rows, self.sought) <= self.threshold).reshape(p.shape[:-1]))

    def _only(self, kind: Kind, other: str) -> None:
        if self.kind != kind:
            raise InputError(f"expected a policy of kind {kind!r}, got {self.kind!r}; call {other}(probabilities)")

    def _sentence(self) -> str:
        what = {"miscoverage": "have a true class outside their set", "misses": "with a sought class are missed"}
        if self.threshold is None:
            return (
                f"With {count(self.n, 'example')} nothing can promise that at most {percent(self.risk)} of positions "
                f"{what[self.kind]}; it takes {math.ceil(1 / self.risk) - 1} at least. Everything is taken."
            )
        size = f"sets name {self.size:.3g} of {self.classes} classes"
        if self.kind == "misses":
            size = f"{percent(self.size, 3)} of all positions are taken"
        return (
            f"Of the positions of a new input like the {count(self.n, 'example')} at most {percent(self.risk)} "
            f"{what[self.kind]}, on average over such inputs; {size}."
        )

    def _wrong(self) -> str | None:
        numbers = [self.risk, self.n, self.classes, self.size, self.threshold or 0.0, *self.sought]
        sound = all(isinstance(v, int | float) and math.isfinite(v) for v in numbers) and 0 < self.risk < 1
        sound = sound and self.kind in ("miscoverage", "misses") and self.classes >= 2 and self.n >= 1
        sound = sound and bool(self.sought) == (self.kind == "misses")
        return None if sound else "its numbers do not fit together"


def risk_control(
    probabilities: Values,
    labels: Values,
    risk: float = 0.1,
    kind: Kind = "miscoverage",
    *,
    sought: int | Sequence[int] = (),
    ignore_index: int | None = None,
    about: Mapping[str, str] | None = None,
) -> RiskPolicy:
    """Make sets of classes for each position, or find a class, so that little of an input is wrong: with a promise.

    Args:
        probabilities: Probabilities ``[N, *positions, C]`` of held-out inputs that the model was not fitted on; a list
            of such ``[*positions, C]`` where inputs differ in size.
        labels: The class at each position, ``[N, *positions]``, or a list of these.
        risk: The expected share of wrong positions of a new input, at most.
        kind: ``"miscoverage"`` for sets of which at most this share lacks the true class, ``"misses"`` for finding
            sought classes of which at most this share is missed (the false-negative rate).
        sought: The class or the classes that must not be missed; for "misses".
        ignore_index: A label; positions with it do not count.
        about: What you want to note of how the probabilities were made.

    Returns:
        The rule; its method `sets` or `found` applies it.

    Raises:
        InputError: The probabilities and the labels do not fit together.

    Examples:
        >>> p = torch.rand(40, 6, 6, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
        >>> policy = nescio.decide.risk_control(p, p.argmax(-1), risk=0.05, kind="misses", sought=2)
        >>> policy.found(p).shape
        torch.Size([40, 6, 6])
    """
    risk = probability("risk", risk)
    choice("kind", kind, ("miscoverage", "misses"))
    wanted = (sought,) if isinstance(sought, int) else tuple(sought)
    if bool(wanted) != (kind == "misses"):
        raise InputError(f"expected sought classes with kind='misses' alone, got kind={kind!r} and sought={sought!r}")
    images = list(_images(probabilities, labels, ignore_index))
    classes = images[0][0].shape[1]
    if other := {p.shape[1] for p, _ in images} - {classes}:
        raise InputError(f"probabilities: expected {classes} classes in all inputs, but got {min(other)}")
    for one in wanted:
        integer("sought", one, at_least=0, at_most=classes - 1)
    parts, weights = [], []
    for p, y in images:
        own = _absence(p, wanted)[np.isin(y, wanted)] if wanted else _truths(p, y)
        parts.append(own)
        weights.append(np.full(own.size, 1.0 / max(own.size, 1)))
    threshold = _level(np.concatenate(parts), np.concatenate(weights), risk * (len(images) + 1) - 1.0)
    taken = [_size_or_share(p, wanted, threshold) for p, _ in images]
    return RiskPolicy(kind, threshold, risk, len(images), classes, wanted, float(np.mean(taken)), about_of(about))


def _level(scores: Floats, weights: Floats, allowed: float) -> float | None:
    """The least λ for which the weights of the scores above it add up to what is allowed; None where nothing is."""
    if allowed < -_ROUND_OFF:
        return None
    if not scores.size:
        return 0.0
    values, group = np.unique(scores, return_inverse=True)
    own = np.bincount(group, weights=weights)
    above = np.concatenate([own[::-1].cumsum()[::-1][1:], [0.0]])  # of the values beyond each
    fine = above <= max(allowed, 0.0) + _ROUND_OFF
    return float(values[np.argmax(fine)])


def _size_or_share(p: Floats, sought: tuple[int, ...], threshold: float | None) -> float:
    """The mean size of the sets of an input, or the share of its positions that is found."""
    if not sought:
        return float(_sets(p, threshold).sum(1).mean())
    return 1.0 if threshold is None else float((_absence(p, sought) <= threshold).mean())


def _sets(p: Floats, threshold: float | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if threshold is None:
        return np.ones(p.shape, dtype=np.bool_)
    result: np.ndarray[Any, np.dtype[np.bool_]] = (1.0 - p <= threshold) | (p == p.max(1, keepdims=True))
    return result


def _truths(p: Floats, y: np.ndarray[Any, np.dtype[np.int64]]) -> Floats:
    """1 − p of the true class; 0 where it is the likeliest, and so in every set."""
    own = p[np.arange(len(y)), y]
    return np.where(own == p.max(1), 0.0, 1.0 - own)


def _absence(p: Floats, sought: tuple[int, ...]) -> Floats:
    result: Floats = 1.0 - p[:, list(sought)].sum(1)
    return result


def _images(
    probabilities: Any, labels: Any, ignore_index: int | None
) -> Iterator[tuple[Floats, np.ndarray[Any, np.dtype[np.int64]]]]:
    """Probabilities [M, C] and labels [M] of the positions of each input that count."""
    if len(probabilities) != len(labels) or not len(labels):
        raise InputError(
            f"expected labels for each of {len(probabilities)} inputs, and at least one, but got {len(labels)}"
        )
    for at, (given, own) in enumerate(zip(probabilities, labels, strict=True)):
        p, y = _image(given), real_numbers(own, f"labels of input {at}")
        if p.shape[:-1] != y.shape:
            raise InputError(
                f"labels: expected shape {list(p.shape[:-1])} for input {at}, one for each position, but got "
                f"{list(y.shape)}"
            )
        rows, flat = p.reshape(-1, p.shape[-1]), y.reshape(-1)
        counts = np.ones(flat.shape, dtype=np.bool_) if ignore_index is None else flat != ignore_index
        if not counts.any():
            raise InputError(
                f"labels: expected at least one position that counts in input {at}, but got none; leave it out"
            )
        yield rows[counts], labels_of(flat[counts], int(counts.sum()), p.shape[-1])


def _image(values: Values, classes: int | None = None) -> Floats:
    """Float64 [*positions, C] whose last dimension sums to one."""
    array = values.detach().cpu() if isinstance(values, Tensor) else np.asarray(values)
    if array.ndim < 2:
        raise InputError(f"probabilities: expected shape [*positions, C], but got {list(array.shape)}")
    return probabilities_of(array.reshape(-1, array.shape[-1]), classes=classes).reshape(tuple(array.shape))
