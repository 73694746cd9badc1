"""Labels as they lie in a file, as class indices: whole numbers as they are, words by their place among the classes.

What most labels are decides: where more than half are whole numbers, a word among them is a fault of its row, and where
more than half are classes of the model, so is any other word. The index of a row at fault is −1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

BROKEN: Final = object()
"""In the place of a label, or a name, of a row that cannot be read at all."""

_WHOLE = re.compile(r"-?\d{1,18}(\.0*)?")


@dataclass(frozen=True)
class Labels:
    """One value for each row; names: what whole numbers mean, where the data say so."""

    values: Sequence[Any]
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Resolved:
    """Class indices int64 ``[N]`` or None, the names of the classes or None, and why a row has no index."""

    indices: Tensor | None = None
    classes: tuple[str, ...] | None = None
    faults: dict[int, str] = field(default_factory=dict)


def resolved(labels: Labels | None, known: tuple[str, ...] | None) -> Resolved:
    """The labels by class index.

    If most words are among the `known` classes of the model, a word's index is its place there; otherwise its place
    among all words in sorted order. If all labels are −1, as in test sets without labels, there are no labels.
    """
    if labels is None:
        return Resolved(classes=known)
    values = [None if _missing(value) else value for value in labels.values]
    told = [value for value in values if value is not None and value is not BROKEN]
    whole = [_as_whole_number(value) for value in values]
    count = sum(one is not None for one in whole)
    if told and count == len(told) and all(one in (None, -1) for one in whole):
        return Resolved(classes=labels.names or known)
    if 2 * count > len(told) or not told:
        names, most = labels.names or known, labels.names
        place = list(range(len(names))) if names is not None else None
        if most is not None and known is not None and set(most) <= set(known):
            names, place = known, [known.index(name) for name in most]
        indices = [_index(one, place if most is not None else None) for one in whole]
        words = "a class index from 0" + (f" to {len(most) - 1}" if most is not None else "")
    else:
        texts = [str(value) for value in told]
        names = tuple(sorted(set(texts)))
        words = "a label"
        if known is not None and 2 * sum(text in known for text in texts) > len(texts):
            names, words = known, f"one of the model's {len(known)} classes"
        by_name = {name: index for index, name in enumerate(names)}
        indices = [-1 if value is None or value is BROKEN else by_name.get(str(value), -1) for value in values]
    faults = {
        row: "it has no label (--label none does without)"
        if values[row] is None
        else f"expected {words} as its label, got {values[row]!r}"
        for row, index in enumerate(indices)
        if index < 0 and values[row] is not BROKEN
    }
    return Resolved(torch.tensor(indices, dtype=torch.long), names, faults)


def _index(value: int | None, place: list[int] | None) -> int:
    if value is None or value < 0:
        return -1
    if place is None:
        return value
    return place[value] if value < len(place) else -1


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value) or (isinstance(value, str) and not value)


def _as_whole_number(value: object) -> int | None:
    """The value as a whole number, also where it is written as text; None for other values."""
    if isinstance(value, str):
        return int(value.partition(".")[0]) if _WHOLE.fullmatch(value) else None
    if isinstance(value, int | float) and value == value and abs(value) < 2**62 and value == int(value):
        return int(value)
    return None
