"""The scores of batches, one after another, as columns of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio.batch import verdict_columns
from nescio.batch.jobs import Ready
from nescio.batch.position_files import PositionFiles
from nescio.batch.verdict_columns import Flagged
from nescio.data.prefetch import Read
from nescio.data.sources import Problem
from nescio.data.sources.array_rows import ArrayRows
from nescio.data.sources.rows import Batch
from nescio.dense.summaries import counted
from nescio.guard import Verdict
from nescio.models import Classifier
from nescio.quantities import Logits, Request
from nescio.scoring import score
from nescio.types import InputError, Scored

Column = NDArray[Any]
NO_MAPS = (
    "--maps: expected a model that answers at every position, such as one of segmentation, but this one has one answer "
    "for each input; leave --maps out, or see which parts cause the doubt: nescio explain"
)
MOST = "_max"
"""After a method's name: its largest value over positions."""


@dataclass(frozen=True)
class Scores:
    """Hold scored rows as columns of a table.

    Args:
        columns: index, name (where rows have one), the methods, predicted, probability, and where they are known
            predicted_class, label and label_class; a guard has columns of its own (`verdict_columns`). Of a model that
            answers at every position: the mean over positions, METHOD_max, the commonest class, its mean probability.
        problems: The rows that could not be used.
        notes: For a method that estimates: the middle and the largest standard error, and on how many inputs that were
            computed exactly too it was off by how much at most. For a guard: what people are told.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> from nescio.batch.streaming import score_part
        >>> list(score_part(example_job(), 0, 8).columns)
        ['index', 'entropy', 'predicted', 'probability', 'label']
    """

    columns: dict[str, Column]
    problems: list[Problem]
    notes: dict[str, Any]


class Gathered:
    """Collect batches that were scored, or judged, to one table.

    Args:
        ready: The job, opened.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> from nescio.data.prefetch import read_ahead
        >>> ready = example_job().open()
        >>> gathered = Gathered(ready)
        >>> for read in read_ahead(ready.rows, [range(0, 4), range(4, 8)]):
        ...     gathered.take(read)
        >>> len(gathered.joined().columns["entropy"])
        8
    """

    def __init__(self, ready: Ready) -> None:
        self.ready, self.keys = ready, ready.columns
        self.problems: list[Problem] = []
        self.names: list[str] = []
        self.index: list[Tensor] = []
        self.labels: list[Tensor] = []
        self.scored: dict[str, list[Scored]] = {key: [] for key in (*self.keys, _Predicted.name, _Probability.name)}
        self.verdicts: list[Verdict] = []
        self.files = None if ready.job.maps is None else PositionFiles(ready.job.maps)
        self.named = len(ready.source.classes or ()) if ready.job.model.class_names is not None else None
        if ready.guard is not None:
            _check_names(self.named, ready.guard.fitted.classes)

    def take(self, read: Read) -> None:
        """Score a batch that was read.

        Args:
            read: The batch, and what was wrong with its rows.
        """
        self.problems += read.problems
        if read.batch is None:
            return
        batch = read.batch
        if self.ready.guard is None:
            self._score(batch)
        else:
            self._judge(batch)
        self.index.append(batch.indices)
        self.names += batch.names
        self.labels += [] if batch.labels is None else [batch.labels]

    def _judge(self, batch: Batch) -> None:
        """Ask the guard; where it judges regions too, their maps are kept where they are wanted."""
        ready = self.ready
        assert ready.guard is not None and ready.job.guard is not None
        verdict = ready.guard.check(batch.inputs, progress=False)
        if isinstance(verdict, Verdict):
            if self.files is not None:
                raise InputError(NO_MAPS)
            self.verdicts.append(verdict)
            return
        if self.files is not None:
            self.files.write_foreign(batch, verdict, ready.job.guard.level)
        self.verdicts.append(verdict.overall(ready.job.guard.level))

    def _score(self, batch: Batch) -> None:
        model = self.ready.source.model
        methods: list[Any] = [*self.ready.methods, _Predicted(self.named), _Probability()]
        output: Any = model.output if isinstance(model, Classifier) else None
        scored = score(model, batch.inputs, methods, output=output, progress=False, report=True)
        if next(iter(scored.values())).scores.ndim > 1:
            scored = self._summed_up(batch, {key: one.scores for key, one in scored.items()})
        elif self.files is not None:
            raise InputError(NO_MAPS)
        for key, one in scored.items():
            self.scored.setdefault(key, []).append(one)

    def _summed_up(self, batch: Batch, maps: dict[str, Tensor]) -> dict[str, Scored]:
        """One number for each input from its maps, which are kept where they are wanted."""
        if self.files is not None:
            self.files.write(batch, maps, tuple(self.keys))
        result: dict[str, Scored] = {}
        for key in self.keys:
            scores = counted(maps[key], batch.inputs)
            result |= {key: Scored(scores.summary("mean")), f"{key}{MOST}": Scored(scores.summary("max"))}
        predicted = counted(maps[_Predicted.name], batch.inputs)
        commonest = torch.stack([_commonest(row[~row.isnan()]) for row in predicted.maps.flatten(1)])
        probability = counted(maps[_Probability.name], batch.inputs).summary("mean")
        return result | {_Predicted.name: Scored(commonest), _Probability.name: Scored(probability)}

    def joined(self) -> Scores:
        """Return all of them as one table."""
        rows = self.ready.rows
        columns: dict[str, Column] = {"index": _joined(self.index)}
        if not isinstance(rows.store, ArrayRows):  # the rows of an array have no names
            columns["name"] = np.array(self.names, dtype=np.str_)
        judged = self.ready.guard is not None
        columns |= self._verdicts() if judged else self._scores()
        if rows.labels is not None:
            columns["label"] = _joined(self.labels)
            columns |= _class_name_columns("label_class", columns["label"], rows.classes)
        notes = {key: note for key in self.keys if (note := _note(self.scored[key]))}
        return Scores(columns, self.problems, {"guard": Flagged.of_columns(columns).as_note()} if judged else notes)

    def _scores(self) -> dict[str, Column]:
        columns = {key: _numbers(self.scored[key]) for key in self.keys}
        largest = [f"{key}{MOST}" for key in self.keys if f"{key}{MOST}" in self.scored]
        columns |= {key: _numbers(self.scored[key]) for key in largest}
        predicted = _numbers(self.scored[_Predicted.name]).astype(np.int64)
        columns |= {"predicted": predicted, "probability": _numbers(self.scored[_Probability.name])}
        return columns | _class_name_columns("predicted_class", predicted, self.ready.source.classes)

    def _verdicts(self) -> dict[str, Column]:
        assert self.ready.guard is not None
        assert self.ready.job.guard is not None
        own = verdict_columns.columns(self.verdicts, self.ready.guard, self.ready.job.guard.level)
        named = _class_name_columns("predicted_class", own["predicted"], self.ready.source.classes)
        return {"predicted": own.pop("predicted"), **named, **own}


@dataclass(frozen=True)
class _Predicted:
    """The most probable class. names: how many names of classes were given; there is one for each."""

    names: int | None = None
    name: ClassVar[str] = "predicted"
    needs: tuple[Request, ...] = field(default=(Logits(),), init=False)

    def __call__(self, logits: Tensor) -> Tensor:
        _check_names(self.names, logits.shape[1])
        return logits.softmax(1).max(1).indices.double()


@dataclass(frozen=True)
class _Probability:
    """The probability of that class."""

    name: ClassVar[str] = "probability"
    needs: tuple[Request, ...] = field(default=(Logits(),), init=False)

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.softmax(1).max(1).values


def _commonest(classes: Tensor) -> Tensor:
    """The commonest of some classes, the first of those that are equally common; 0 of none."""
    values, counts = classes.unique(return_counts=True)
    return values[counts.argmax()] if len(values) else classes.new_zeros(())


def _check_names(names: int | None, classes: int) -> None:
    """Raise an InputError where names of classes were given, but not one for each class."""
    if names not in (None, classes):
        raise InputError(f"--class-names: expected {classes} names, one for each class, but got {names}")


def _joined(parts: list[Tensor]) -> Column:
    return torch.cat([torch.empty(0, dtype=torch.long), *parts]).numpy()


def _numbers(parts: list[Scored]) -> Column:
    return torch.cat([torch.empty(0, dtype=torch.float64), *(part.scores for part in parts)]).numpy()


def _class_name_columns(column: str, indices: Column, classes: tuple[str, ...] | None) -> dict[str, Column]:
    """The names of classes; an index that has none stands for itself."""
    if classes is None:
        return {}
    names = [classes[i] if 0 <= i < len(classes) else str(i) for i in indices.tolist()]
    return {column: np.array(names, dtype=np.str_)}


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
