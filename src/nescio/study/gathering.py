"""The scores of batches, one after another, as columns of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio.data.prefetch import Read
from nescio.data.sources import Problem
from nescio.data.sources.arrays import ArrayRows
from nescio.models import Classifier
from nescio.study.jobs import Ready
from nescio.study.scoring import score
from nescio.types import InputError, Logits, Request, Scored

Column = NDArray[Any]


@dataclass(frozen=True)
class Scores:
    """Scored rows: columns by their names, the rows that could not be used, and by method what is known of its error.

    index, name (where rows have one), the methods, predicted, probability, and where they are known predicted_class,
    label and label_class. notes: for a method that estimates, the middle and the largest standard error, and on how
    many inputs that were computed exactly too it was off by how much at most.
    """

    columns: dict[str, Column]
    problems: list[Problem]
    notes: dict[str, dict[str, float]]


class Gathered:
    """Batches that were scored, to be put together."""

    def __init__(self, ready: Ready) -> None:
        self.ready, self.keys = ready, ready.columns
        self.problems: list[Problem] = []
        self.names: list[str] = []
        self.index: list[Tensor] = []
        self.labels: list[Tensor] = []
        self.found: dict[str, list[Scored]] = {key: [] for key in (*self.keys, _Predicted.name, _Probability.name)}

    def take(self, read: Read) -> None:
        """Score a batch that was read."""
        self.problems += read.problems
        if read.batch is None:
            return
        model, batch = self.ready.source.model, read.batch
        given = self.ready.job.model.classes
        methods: list[Any] = [*self.ready.methods, _Predicted(None if given is None else len(given)), _Probability()]
        output: Any = model.output if isinstance(model, Classifier) else None
        for key, one in score(model, batch.inputs, methods, output=output, progress=False, report=True).items():
            self.found[key].append(one)
        self.index.append(batch.indices)
        self.names += batch.names
        self.labels += [] if batch.labels is None else [batch.labels]

    def whole(self) -> Scores:
        """All of them as one table."""
        source, rows, found = self.ready.source, self.ready.rows, self.found
        columns: dict[str, Column] = {"index": _whole(self.index)}
        if not isinstance(rows.store, ArrayRows):  # the rows of an array have no names
            columns["name"] = np.array(self.names, dtype=np.str_)
        columns |= {key: _numbers(found[key]) for key in self.keys}
        predicted = _numbers(found[_Predicted.name]).astype(np.int64)
        columns |= {"predicted": predicted, "probability": _numbers(found[_Probability.name])}
        columns |= _named("predicted_class", predicted, source.classes)
        if rows.labels is not None:
            columns["label"] = _whole(self.labels)
            columns |= _named("label_class", columns["label"], rows.classes)
        return Scores(columns, self.problems, {key: note for key in self.keys if (note := _note(found[key]))})


@dataclass(frozen=True)
class _Predicted:
    """The most probable class. names: how many names of classes were given; there is one for each."""

    names: int | None = None
    name: ClassVar[str] = "predicted"
    needs: tuple[Request, ...] = field(default=(Logits(),), init=False)

    def __call__(self, logits: Tensor) -> Tensor:
        if self.names not in (None, logits.shape[1]):
            raise InputError(
                f"--class-names: expected {logits.shape[1]} names, one for each class, but got {self.names}"
            )
        return logits.softmax(1).max(1).indices.double()


@dataclass(frozen=True)
class _Probability:
    """The probability of that class."""

    name: ClassVar[str] = "probability"
    needs: tuple[Request, ...] = field(default=(Logits(),), init=False)

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.softmax(1).max(1).values


def _whole(parts: list[Tensor]) -> Column:
    return torch.cat([torch.empty(0, dtype=torch.long), *parts]).numpy()


def _numbers(parts: list[Scored]) -> Column:
    return torch.cat([torch.empty(0, dtype=torch.float64), *(part.scores for part in parts)]).numpy()


def _named(column: str, indices: Column, classes: tuple[str, ...] | None) -> dict[str, Column]:
    """The names of classes; an index that has none stands for itself."""
    if classes is None:
        return {}
    found = [classes[i] if 0 <= i < len(classes) else str(i) for i in indices.tolist()]
    return {column: np.array(found, dtype=np.str_)}


def _note(parts: list[Scored]) -> dict[str, float]:
    """What is known of the error of scores that were estimated."""
    errors = [part.error for part in parts if part.error is not None]
    if not errors:
        return {}
    every = torch.cat(errors)
    note = {"middle": float(every.median()), "largest": float(every.max())}
    if checks := [part.check for part in parts if part.check is not None]:
        note |= {"checked": sum(one.inputs for one in checks), "worst": max(one.worst for one in checks)}
    return note
