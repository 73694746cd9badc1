"""How many rows go to a model at a time, found by time: a batch should take seconds, so that work can be kept.

    row 0       alone: what is found out about the model takes its time too
    row 1       alone, timed
    2, 3        together, and so on to 4, 16, 64 and 256 rows, as long as the next step will take no more than `BATCH`

A row that takes half a minute is a batch of its own; quick ones come 256 at a time. What was scored on the way is not
lost: the stream goes on from there. A size that was found is written down with the results, and every run that goes on
with them takes it, because numbers are the same bit for bit in the same batch alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nescio import inputs, progress
from nescio.batch.columns import Gathered
from nescio.batch.jobs import FOUND, Ready
from nescio.data.parts import KEPT
from nescio.data.prefetch import read_ahead
from nescio.types import InputError

SIZES = (1, 4, 16, 64, 256)
BATCH = 4.0
"""Seconds that a batch should take, at most."""
GAIN = 8
"""On a GPU more rows at a time are that much cheaper than one by one, and a new shape takes time once."""


@dataclass(frozen=True)
class Beginning:
    """Hold the first rows, scored, and the size of a batch that was found from them.

    Attributes:
        ready: The job, with that size.
        gathered: The scored rows.
        stop: After how many rows it ended.
        seconds: What a row takes; None where nothing was measured.
        took: Seconds of work on all of them.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> begin(example_job().open()).stop
        8
    """

    ready: Ready
    gathered: Gathered
    stop: int
    seconds: float | None
    took: float


def begin(ready: Ready) -> Beginning:
    """Score the first rows in batches that grow, and find how large one should be.

    Args:
        ready: The job, opened.

    Returns:
        The first rows, scored, and the job with the size that was found.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> begin(example_job().open()).seconds < BATCH
        True
    """
    gpu = ready.device is not None and ready.device.type != "cpu"
    limit = BATCH * (GAIN if gpu else 1)
    largest = replace(ready.job, batch=SIZES[-1], ramp=True)
    total = min(len(ready.rows), SIZES[-1])
    gathered, began = Gathered(ready), progress.clock()
    least: float | None = None
    stop, first = 0, True
    with progress.bar(None, description="the first rows") as shown:
        for places in largest.batches(range(total)):
            if least is not None and least * len(places) > limit:
                break
            try:
                (read,) = read_ahead(ready.rows, [places], workers=ready.job.workers, device=ready.device)
            except InputError:  # the stream meets it again, after what comes before it
                break
            since = progress.clock()
            gathered.take(read)
            took, stop = progress.clock() - since, places.stop
            shown.update(len(places))
            if read.batch is None:
                continue
            if not first:
                own = took / inputs.size(read.batch.inputs)
                least = own if least is None else min(least, own)
            elif took > KEPT / 2 and not gpu:
                least = took
            first = False
    if stop == total:
        size = next(size for size in SIZES if size >= min(stop, SIZES[-1]))
    else:
        size = max((size for size in SIZES if size <= stop), default=SIZES[0])
    return Beginning(with_batch_size(ready, size), gathered, stop, least, progress.clock() - began)


def with_batch_size(ready: Ready, size: int) -> Ready:
    """Return the job with batches of this size, as if that was found now.

    Args:
        ready: The job, opened.
        size: How many rows a batch has.

    Returns:
        The job with that size.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> with_batch_size(example_job().open(), 64).job.batch
        64
    """
    return replace(ready, job=replace(ready.job, batch=size, ramp=True))


def noted_size(words: object) -> int | None:
    """Return the size of a batch that an identity says was found; None where it was given.

    Args:
        words: What the identity says of the size.

    Returns:
        The size or None.

    Examples:
        >>> noted_size("64, found by time"), noted_size(64)
        (64, None)
    """
    return int(words.removesuffix(FOUND)) if isinstance(words, str) and words.endswith(FOUND) else None
