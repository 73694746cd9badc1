"""Scores of any number of rows: memory does not grow with them, and a run that was cut off goes on where it was.

    for part in missing parts:
        columns = scores of its rows, batch by batch, while the next batches are read
        write the part, then the manifest

Everything that a number depends on is the same however the work was divided: batch k holds the rows from k·batch on,
and parts begin at multiples of the batch; random draws know their seed alone (`nescio.trace.noise`,
`nescio.quantities.draws`), not the place of an input; and what the engine finds out about a model from the first inputs
that it sees (`nescio.trace.plan`) it finds out from the first batch, which a run that begins elsewhere is shown first
(`warm`).

**For another engine.** `score_part(job, start, stop)` is the whole of the work on some rows: it is pure, its arguments
and its result can be pickled, and the job is opened once in a process. An engine asks `Parts` which ranges are
`missing`, has `score_part` done for each, anywhere, in any order and again where a worker was lost, and gives each
result to ``parts.add(part, found.columns, found.problems, found.notes)`` in the process that holds the folder. The
joined file is then the local engine's, byte for byte on the same kind of machine.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio.data.parts import Parts
from nescio.data.prefetch import Read, read_ahead
from nescio.data.sources import Problem
from nescio.data.sources.arrays import ArrayRows
from nescio.models import Classifier
from nescio.progress import bar
from nescio.study.jobs import Job, Ready, batches
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


@dataclass
class Usage:
    """How the time of a run was spent, in seconds."""

    rows: int = 0
    seconds: float = 0.0
    working: float = 0.0
    """The model had work."""
    waiting: float = 0.0
    """It waited for data."""

    @property
    def busy(self) -> float:
        """The share of the time in which the model had work."""
        return self.working / self.seconds if self.seconds else 0.0

    @property
    def rate(self) -> float:
        """Rows in a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    def record(self) -> dict[str, float]:
        """For a log."""
        return {
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rate, 1),
            "busy": round(self.busy, 4),
            "waiting_seconds": round(self.waiting, 3),
        }

    def __str__(self) -> str:
        rate = f"{self.rate:.0f}" if self.rate >= 100 else f"{self.rate:.2g}"
        return (
            f"{rate} rows/s in {self.seconds:.0f} s; the model worked {self.busy:.0%} of that time "
            f"and waited {self.waiting:.1f} s for data"
        )


def stream(ready: Ready, parts: Parts, *, usage: Usage | None = None, progress: bool | None = None) -> Usage:
    """Score all rows of the parts that are missing and keep each part as soon as it is done.

    Gives the use of time; an object that is given as `usage` has it also where the work is cut off.
    """
    todo, rows, size = parts.missing, ready.rows, ready.job.batch
    if parts.size % size:
        raise InputError(f"expected parts of a multiple of {size} rows, as a batch has, got {parts.size}")
    if rows.on_error == "stop" and parts.problems:
        raise InputError(f"cannot use {parts.problems[0]}; mend or remove it, or leave such rows out (--on-error skip)")
    usage, began = usage or Usage(), time.perf_counter()
    left = sum(map(len, todo))
    about = "scoring" if left == len(rows) else f"scoring after {len(rows) - left} rows"
    every = (places for part in todo for places in batches(part, size))
    reads = read_ahead(rows, every, workers=ready.job.workers, device=ready.device)
    try:
        if todo and todo[0].start > 0:
            warm(ready)
        with bar(left, show=progress, description=about) as shown, closing(reads):
            for part in todo:
                own = _timed(islice(reads, -(-len(part) // size)), usage, shown.update)
                since, waited = time.perf_counter(), usage.waiting
                found = scored(ready, own)
                usage.working += time.perf_counter() - since - (usage.waiting - waited)
                parts.add(part, found.columns, found.problems, found.notes)
                usage.rows += len(part)
    finally:
        usage.seconds = time.perf_counter() - began
    if rows and not parts.rows:
        raise InputError(f"none of the {len(rows)} rows can be used; the first: {parts.problems[0]}")
    return usage


def score_part(job: Job, start: int, stop: int) -> Scores:
    """The scores of the rows from `start` to before `stop`, of which `start` is a multiple of ``job.batch``.

    Pure: it depends on its arguments alone, which can be pickled, as the result can. The job is opened with the first
    call in a process and kept for the next.
    """
    if start % job.batch:
        raise InputError(f"expected to begin at a multiple of {job.batch} rows, as a batch has, got {start}")
    ready = standing(job)
    places = range(start, min(stop, len(ready.rows)))
    with closing(read_ahead(ready.rows, batches(places, job.batch), workers=job.workers, device=ready.device)) as reads:
        return scored(ready, reads)


def warm(ready: Ready) -> None:
    """Show the engine the first batch that has rows to use, as a run from the first row on would."""
    for places in batches(range(len(ready.rows)), ready.job.batch):
        (first,) = read_ahead(ready.rows, [places], workers=ready.job.workers, device=ready.device)
        if first.batch is not None:
            scored(ready, [first])
            return


def scored(ready: Ready, reads: Iterable[Read]) -> Scores:
    """The scores of batches that were read."""
    source, rows, keys = ready.source, ready.rows, ready.columns
    given = ready.job.model.classes
    methods: list[Any] = [*ready.methods, _Predicted(None if given is None else len(given)), _Probability()]
    output: Any = source.model.output if isinstance(source.model, Classifier) else None
    problems: list[Problem] = []
    names: list[str] = []
    index: list[Tensor] = []
    labels: list[Tensor] = []
    found: dict[str, list[Scored]] = {key: [] for key in (*keys, _Predicted.name, _Probability.name)}
    for read in reads:
        problems += read.problems
        if read.batch is None:
            continue
        batch = read.batch
        for key, one in score(source.model, batch.inputs, methods, output=output, progress=False, report=True).items():
            found[key].append(one)
        index.append(batch.indices)
        names += batch.names
        labels += [] if batch.labels is None else [batch.labels]
    columns: dict[str, Column] = {"index": _whole(index)}
    if not isinstance(rows.store, ArrayRows):  # the rows of an array have no names
        columns["name"] = np.array(names, dtype=np.str_)
    columns |= {key: _numbers(found[key]) for key in keys}
    predicted = _numbers(found[_Predicted.name]).astype(np.int64)
    columns |= {"predicted": predicted, "probability": _numbers(found[_Probability.name])}
    columns |= _named("predicted_class", predicted, source.classes)
    if rows.labels is not None:
        columns["label"] = _whole(labels)
        columns |= _named("label_class", columns["label"], rows.classes)
    return Scores(columns, problems, {key: note for key in keys if (note := _note(found[key]))})


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


def _timed(reads: Iterable[Read], usage: Usage, moved: Any) -> Iterator[Read]:
    """The batches; the time until each is there goes to `waiting`, and the bar moves when it was used."""
    source = iter(reads)
    while True:
        since = time.perf_counter()
        read = next(source, None)
        usage.waiting += time.perf_counter() - since
        if read is None:
            return
        yield read
        moved(len(read.places))


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


_last: tuple[bytes, Ready] | None = None


def standing(job: Job) -> Ready:
    """The job, opened once in a process, and the engine warm."""
    global _last
    key = pickle.dumps(job)
    if _last is None or _last[0] != key:
        _last = None  # two models at a time may not fit
        ready = job.open()
        warm(ready)
        _last = (key, ready)
    return _last[1]
