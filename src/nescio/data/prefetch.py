"""Rows read ahead of the model that takes them: decoding, copying to a GPU and computing go on at the same time.

    read ──► join ──► send ──► the model
    many     one      side stream
    threads  thread   of the GPU

A batch is read in slices by a pool of threads, put together by one more, and handed over in order. So many batches are
on their way at a time, and no more: memory does not grow with the data. For a GPU a batch that is ready is put into
pinned memory and copied on a stream of its own while the model works on the one before. That is done in the thread that
takes the batches, since no other may ask for pinned memory while a pass is recorded (`nescio.trace.replay`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

import torch

from nescio import inputs
from nescio.data.sources.rows import Batch, Problem, Rows
from nescio.inputs import Inputs

SLICE = 64
"""Rows that a thread reads at a time, at most: threads stay near each other, as tables that are read in blocks need."""
THREADS = 8
"""Threads that read pictures and texts, at most, unless a person says otherwise."""


class Read(NamedTuple):
    """The rows of one batch: those that can be used, or None where there is none, and the problems of the others."""

    places: range
    batch: Batch | None
    problems: list[Problem]


def read_ahead(
    rows: Rows, ranges: Iterable[range], *, workers: int | None = None, device: torch.device | None = None
) -> Generator[Read, None, None]:
    """The rows of each range as one batch, in order; a problem is raised in its turn where `rows` stops at one.

    workers: threads that read; None: one for numbers, else one for each core, up to 8. device: a GPU that batches are
    sent to; None leaves them where they are. Close the generator to end the threads before its end.
    """
    todo = iter(ranges)
    first = next(todo, None)
    if first is None:
        return
    todo = chain([first], todo)
    count = workers or _usual(rows)
    depth = max(2, -(-4 * count // max(1, len(first))))
    lane = _Lane(device) if device is not None and device.type == "cuda" else None
    readers, joiner = ThreadPoolExecutor(count, "nescio-read"), ThreadPoolExecutor(1, "nescio-join")
    coming: deque[Future[Read]] = deque()

    def fill() -> None:
        while len(coming) < depth and (places := next(todo, None)) is not None:
            step = max(1, min(SLICE, -(-len(places) // count)))
            slices = [places[start : start + step] for start in range(0, len(places), step)]
            attempts = [readers.submit(_attempts, rows, part) for part in slices]
            coming.append(joiner.submit(_joined, rows, places, attempts))

    sent: Read | None = None
    try:
        fill()
        while coming or sent is not None:
            if sent is not None:
                read, sent = sent, None
            else:
                read = coming.popleft().result()
                read = read if lane is None else lane.send(read)
            fill()
            if lane is not None:
                lane.receive(read)
                if coming and coming[0].done() and coming[0].exception() is None:  # else it is raised in its turn
                    sent = lane.send(coming.popleft().result())
            yield read
    finally:
        readers.shutdown(cancel_futures=True)
        joiner.shutdown(cancel_futures=True)


def _usual(rows: Rows) -> int:
    """Numbers are read faster by one thread than handed from one to another."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if rows.store.kind == "numbers" else min(THREADS, cores)


def _attempts(rows: Rows, places: range) -> list[Inputs | Problem]:
    return [rows.attempt(place) for place in places]


def _joined(rows: Rows, places: range, attempts: list[Future[list[Inputs | Problem]]]) -> Read:
    found = [one for part in attempts for one in part.result()]
    return Read(places, rows.assemble(places, found), [one for one in found if isinstance(one, Problem)])


class _Lane:
    """A stream of a GPU on which batches are copied beside the work on others."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)

    def send(self, read: Read) -> Read:
        """Begin to copy; the tensors may be used after `receive`."""
        if read.batch is None:
            return read
        with torch.cuda.stream(self.stream):
            moved = inputs.apply(read.batch.inputs, lambda x: x.pin_memory().to(self.device, non_blocking=True))
        return read._replace(batch=read.batch._replace(inputs=moved))

    def receive(self, read: Read) -> None:
        """What the GPU does from now on waits for the copy."""
        if read.batch is None:
            return
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)
        for value in inputs.tensors(read.batch.inputs):
            value.record_stream(current)  # its memory is not given away before the work on it is done
