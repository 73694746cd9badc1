"""Scores of any number of rows: memory does not grow with them, and a run that was cut off goes on where it was.

    for part in missing parts:
        columns = scores of its rows, batch by batch, while the next batches are read
        write the part, then the manifest; where the part takes longer than half a minute, what there is of it

The numbers do not depend on how the work was divided. Batch k holds the rows from k·batch on, parts begin at multiples
of the batch, and what is kept as time passes ends with a batch. Random draws depend on their seed alone
(`trace.runtime.noise`, `quantities.draws`), not on the place of an input. What the engine learns about a model from the
first inputs (`trace.probe.plan`) always comes from the first batches: a run that begins elsewhere is shown these first
(`warm`). The size of a batch may be found by time (`nescio.batch.pacing`). This happens once. The manifest records it,
and every later run takes the same size.

**For another engine.** `score_part(job, start, stop)` is the whole of the work on some rows: it is pure, its arguments
and its result can be pickled, and the job is opened once in a process. An engine asks `Parts` which ranges are
`missing`, has `score_part` done for each, anywhere, in any order and again where a worker was lost, and gives each
result to ``parts.add(part, scores.columns, scores.problems, scores.notes)`` in the process that holds the folder. The
joined file is then the local engine's, byte for byte on the same kind of machine.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from nescio import inputs
from nescio import progress as bars
from nescio._common.formatting import count, number
from nescio.batch.columns import Gathered, Scores
from nescio.batch.jobs import Job, Ready
from nescio.batch.pacing import Beginning
from nescio.data.parts import KEPT, Parts
from nescio.data.prefetch import Read, read_ahead
from nescio.types import InputError


@dataclass
class Usage:
    """Measure how the time of a run was spent, in seconds.

    Args:
        rows: Rows that were scored.
        seconds: The whole run.
        working: In which the model had work.
        waiting: In which it waited for data.

    Examples:
        >>> print(Usage(rows=1000, seconds=10.0, working=8.0, waiting=2.0))
        100 rows/s in 10 s; the model worked 80% of that time and waited 2.0 s for data
    """

    rows: int = 0
    seconds: float = 0.0
    working: float = 0.0
    waiting: float = 0.0

    @property
    def busy(self) -> float:
        """Return the share of the time in which the model had work."""
        return self.working / self.seconds if self.seconds else 0.0

    @property
    def rate(self) -> float:
        """Return the rows in a second."""
        return self.rows / self.seconds if self.seconds else 0.0

    def record(self) -> dict[str, float]:
        """Return the numbers for a log."""
        return {
            "rows": self.rows,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rate, 1),
            "busy": round(self.busy, 4),
            "waiting_seconds": round(self.waiting, 3),
        }

    def __str__(self) -> str:
        rate = number(float(f"{self.rate:.0f}" if self.rate >= 99.5 else f"{self.rate:.2g}"))
        return (
            f"{rate} rows/s in {self.seconds:.0f} s; the model worked {self.busy:.0%} of that time "
            f"and waited {self.waiting:.1f} s for data"
        )


def stream(
    ready: Ready,
    parts: Parts,
    *,
    begun: Beginning | None = None,
    usage: Usage | None = None,
    progress: bool | None = None,
) -> Usage:
    """Score all rows of the parts that are missing, and keep each part as soon as it is done, or as time passes.

    Args:
        ready: The job, opened.
        parts: Where the results are kept.
        begun: The first rows, where they were scored already to find the size of a batch.
        usage: An object for the use of time; it is filled also where the work is cut off.
        progress: Whether a bar is shown; None shows one in a terminal.

    Returns:
        The use of time.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nescio.batch.example_job import example_job
        >>> from nescio.batch.jobs import identity
        >>> job = example_job()
        >>> ready = job.open()
        >>> with Parts(Path(tempfile.mkdtemp(), "parts"), 8, 256, identity(job, ready)) as parts:
        ...     stream(ready, parts, progress=False).rows
        8
    """
    todo, rows, job = parts.missing, ready.rows, ready.job
    if parts.size % job.batch:
        raise InputError(f"expected parts of a multiple of {job.batch} rows, as a batch has, got {parts.size}")
    if rows.on_error == "stop" and parts.problems:
        raise InputError(f"cannot use {parts.problems[0]}; mend or remove it, or leave such rows out (--on-error skip)")
    usage, began = usage or Usage(), bars.clock()
    if begun is not None and not (todo and todo[0].start == 0 and begun.stop <= todo[0].stop):
        begun = None  # parts are smaller, or there
    done = 0 if begun is None else begun.stop
    left = sum(map(len, todo)) - done
    about = "scoring" if left == len(rows) else f"scoring after {count(len(rows) - left, 'row')}"
    batches = (places for part in todo for places in job.batches(range(max(part.start, done), part.stop)))
    reads = read_ahead(rows, batches, workers=job.workers, device=ready.device)
    try:
        if todo and todo[0].start > 0:
            warm(ready)
        if begun is not None and begun.seconds is not None and left:
            bars.foretell(begun.seconds * left, left, about)
        with bars.bar(left, show=progress, description=about) as shown, closing(reads):
            for part in todo:
                start, head = part.start, begun if part.start == 0 else None
                while start < part.stop or not part:
                    span = _Span(reads, start if head is None else head.stop, part.stop, usage, shown.update)
                    span.spent = 0.0 if head is None else head.took
                    since, waited = bars.clock(), usage.waiting
                    scores = scored(ready, span, None if head is None else head.gathered)
                    usage.working += bars.clock() - since - (usage.waiting - waited)
                    parts.add(range(start, span.at), scores.columns, scores.problems, scores.notes)
                    usage.rows += span.at - start
                    start, head = span.at, None
                    if not part:
                        break
    finally:
        usage.seconds = bars.clock() - began
    if rows and not parts.rows:
        raise InputError(f"none of the {len(rows)} rows can be used; the first: {parts.problems[0]}")
    return usage


def score_part(job: Job, start: int, stop: int) -> Scores:
    """Score some rows of a job. This is the whole of the work, for another engine to divide.

    It depends on its arguments alone. These and the result can be pickled. The job is opened with the first call in a
    process, and kept for the next.

    Args:
        job: What is to be done.
        start: The first row, a multiple of ``job.batch``.
        stop: The row after the last.

    Returns:
        The scores as columns of a table, and the rows that could not be used.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> score_part(example_job(), 0, 4).columns["index"]
        array([0, 1, 2, 3])
    """
    if start % job.batch:
        raise InputError(f"expected to begin at a multiple of {job.batch} rows, as a batch has, got {start}")
    ready = standing(job)
    places = range(start, min(stop, len(ready.rows)))
    with closing(read_ahead(ready.rows, job.batches(places), workers=job.workers, device=ready.device)) as reads:
        return scored(ready, reads)


def warm(ready: Ready) -> None:
    """Show the engine the first rows, as a run from the first row on would: up to those that come together.

    Args:
        ready: The job, opened.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> warm(example_job().open())
    """
    alone = False
    for places in ready.job.batches(range(len(ready.rows))):
        (first,) = read_ahead(ready.rows, [places], workers=ready.job.workers, device=ready.device)
        if first.batch is None:
            continue
        several = inputs.size(first.batch.inputs) > 1
        if several or not alone:
            scored(ready, [first])
        alone = True
        if several or ready.job.batch == 1:
            return


def scored(ready: Ready, reads: Iterable[Read], begun: Gathered | None = None) -> Scores:
    """Score batches that were read.

    Args:
        ready: The job, opened.
        reads: The batches.
        begun: Rows that were scored before them; the result begins with these.

    Returns:
        The scores of all of them.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> ready = example_job().open()
        >>> len(scored(ready, read_ahead(ready.rows, [range(0, 4)])).columns["entropy"])
        4
    """
    gathered = Gathered(ready) if begun is None else begun
    for read in reads:
        gathered.take(read)
    return gathered.joined()


class _Span:
    """Batches up to a row, or until it is time to keep what there is; `at`: after how many rows it ended.

    The time until each is there goes to `waiting`, and the bar moves when it was used.
    """

    def __init__(self, reads: Iterator[Read], at: int, stop: int, usage: Usage, moved: Callable[[int], object]) -> None:
        self.reads, self.at, self.stop, self.usage, self.moved = reads, at, stop, usage, moved
        self.spent = 0.0
        """Seconds of work on rows before, which are not kept yet."""

    def __iter__(self) -> Iterator[Read]:
        began, last, first = bars.clock() - self.spent, 0.0, self.spent == 0.0
        while self.at < self.stop and (first or bars.clock() - began + last <= KEPT):
            since = bars.clock()
            read = next(self.reads)
            self.usage.waiting += bars.clock() - since
            yield read
            last, first = bars.clock() - since, False
            self.at = read.places.stop
            self.moved(len(read.places))


_last: tuple[bytes, Ready] | None = None


def standing(job: Job) -> Ready:
    """Open a job once in a process, and warm the engine with it.

    Args:
        job: What is to be done.

    Returns:
        The job, opened; the same object as long as the same job is asked for.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> job = example_job()
        >>> standing(job) is standing(job)
        True
    """
    global _last
    key = pickle.dumps(job)
    if _last is None or _last[0] != key:
        _last = None  # two models at a time may not fit
        ready = job.open()
        warm(ready)
        _last = (key, ready)
    return _last[1]
