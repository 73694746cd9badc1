"""Rows read ahead of the model that takes them: decoding, copying to a GPU and computing go on at the same time.

    read ──► join ──► send ──► the model
    many     two      side stream
    threads  threads  of the GPU

A batch is read in slices by a pool of threads, or for a GPU by processes: those that decode alone, where the GPU can do
the rest (`nescio.data.decoders`), or those that read a row as a whole (`nescio.data.processes`). It is put together by
one of two more threads, and handed over in order. So many batches are on their way at a time, and no more: memory does
not grow with the data. For a GPU a batch waits in pinned memory, and is copied on a stream of its own while the model
works on the one before. Pinned memory is asked for, and copies begin, in the thread that takes the batches alone, since
no other may call CUDA while a pass is recorded (`nescio.trace.runtime.replay`); so it is kept from batch to batch, and
for processes that decode it is asked for while they do: what they decoded is copied there once, by a thread that joins.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from itertools import chain, islice
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.decoding_process import LEFT
from nescio.data.decoders import Decoders, can_decode, in_slot
from nescio.data.pixel_steps import finished, floats, unfinished
from nescio.data.processes import Problems, Processes, can_fork
from nescio.data.sources.rows import Batch, Problem, Rows
from nescio.inputs import Inputs
from nescio.types import InputError

SLICE = 64
"""Rows that a thread reads at a time, at most: threads stay near each other, as tables that are read in blocks need."""
THREADS = 8
"""Threads that read pictures and texts, at most, unless a person says otherwise."""
DEPTH = 3
"""Batches on their way, at least: one that is read, one that is joined, and one that is ready."""
JOINERS = 2
"""Threads that join."""
PROCESSES = True
"""Whether processes may read picture files for a GPU."""


class Read(NamedTuple):
    """The rows of one batch: those that can be used, or None where there is none, and the problems of the others."""

    places: range
    batch: Batch | None
    problems: list[Problem]


def read_ahead(
    rows: Rows, ranges: Iterable[range], *, workers: int | None = None, device: torch.device | None = None
) -> Generator[Read, None, None]:
    """The rows of each range as one batch, in order; a problem is raised in its turn where `rows` stops at one.

    workers: threads or processes that read; None: one for numbers, else one for each core, up to 8 threads. device: a
    GPU that batches are sent to; None leaves them where they are. Close the generator to end them before its end. While
    processes read, operations of PyTorch on the CPU take one thread.
    """
    todo = iter(ranges)
    first = next(todo, None)
    if first is None:
        return
    todo = chain([first], todo)
    gpu = device if device is not None and device.type == "cuda" else None
    forks = gpu is not None and PROCESSES and can_fork(rows)
    count = workers or _usual(rows, forks)
    depth = max(DEPTH, -(-4 * count // max(1, len(first))))
    lane = None if gpu is None else _Lane(gpu, depth)
    processes = None
    if lane is not None and forks:
        soon = list(islice(todo, depth + 1))
        todo = chain(soon, todo)
        if len(soon) > depth:  # for fewer batches, starting processes takes longer than reading
            processes = _processes(rows, count, len(first), len(lane.stages))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads)  # this call changes how MKL divides work, so it comes first
    readers = ThreadPoolExecutor(count, "nescio-read", initializer=torch.set_num_threads, initargs=(1,))
    alone = () if lane is None else (torch.set_num_threads, (1,))  # processes take all cores
    joiners = ThreadPoolExecutor(JOINERS, "nescio-join", *alone)
    finish = _Finish(lane.device) if lane is not None and isinstance(processes, Decoders) else None
    coming: deque[tuple[Future[Read], _Stage | None]] = deque()

    def fill() -> None:
        while len(coming) < depth and (places := next(todo, None)) is not None:
            step = max(1, min(SLICE, -(-len(places) // count)))
            slices = [places[start : start + step] for start in range(0, len(places), step)]
            stage = None if lane is None else lane.stage()
            if processes is None or stage is None or len(places) > processes.size:
                attempts = [readers.submit(_attempts, rows, part) for part in slices]
                coming.append((joiners.submit(_joined, rows, places, attempts, stage), stage))
            elif isinstance(processes, Decoders):
                processes.read(stage.number, places)
                stage.reserve(processes.likely * len(places))  # while they decode
                coming.append((joiners.submit(_decoded, rows, places, processes, readers, stage), stage))
            else:
                room = processes.rooms[stage.number][: len(places)]
                problems = [processes.read(stage.number, part.start - places.start, part) for part in slices]
                coming.append((joiners.submit(_settled, rows, places, room, problems, stage), stage))

    def taken() -> Read:
        future, stage = coming.popleft()
        read = future.result()
        return read if lane is None or stage is None else lane.send(read, stage, finish)

    sent: Read | None = None
    try:
        if processes is not None:  # all cores are taken: threads that share an operation wait until each has one
            torch.set_num_threads(1)
        fill()
        while coming or sent is not None:
            read, sent = (taken(), None) if sent is None else (sent, None)
            fill()
            if lane is not None:
                lane.receive(read)
                if coming and coming[0][0].done() and coming[0][0].exception() is None:  # errors wait for their turn
                    sent = taken()
                    fill()  # so the next ones are read while the model works
            yield read
    finally:
        if processes is not None:
            processes.close()
        readers.shutdown(cancel_futures=True)
        joiners.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # for new threads, which have what was said last, by whatever thread


def batches_ahead(rows: Rows, size: int, device: torch.device | None = None) -> Generator[Batch, None, None]:
    """The rows in batches of at most `size`, as `Rows.batches` gives them, with the next ones read meanwhile.

    device: a GPU that they are sent to; None leaves them where they are.
    """
    ranges = (range(first, min(first + size, len(rows))) for first in range(0, len(rows), size))
    any_good = False
    with closing(read_ahead(rows, ranges, device=device)) as reads:
        for read in reads:
            if read.batch is not None:
                any_good = True
                yield read.batch
    if len(rows) and not any_good:
        raise rows.unusable()


def _usual(rows: Rows, forks: bool) -> int:
    """How many workers read: for numbers one, since handing rows between threads takes longer than reading them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if rows.store.kind == "numbers" else cores if forks else min(THREADS, cores)


def _attempts(rows: Rows, places: range) -> list[Inputs | Problem]:
    return [rows.attempt(place) for place in places]


def _joined(
    rows: Rows, places: range, attempts: list[Future[list[Inputs | Problem]]], stage: _Stage | None = None
) -> Read:
    attempted = [one for part in attempts for one in part.result()]
    return _waiting(places, rows.assemble(places, attempted), attempted, stage)


def _settled(rows: Rows, places: range, room: Tensor, problems: list[Future[Problems]], stage: _Stage) -> Read:
    """A batch that processes have read into a room. The room is free again once the batch is in the stage."""
    attempted: list[Inputs | Problem] = list(room)
    try:
        for place, problem in (one for part in problems for one in part.result()):
            attempted[place] = problem
    except BrokenProcessPool as error:
        raise _killed(places) from error

    def together(good: list[Inputs]) -> Inputs:
        return room if len(good) == len(room) else torch.stack([row for row in good if isinstance(row, Tensor)])

    return _waiting(places, rows.assemble(places, attempted, together), attempted, stage)


def _decoded(rows: Rows, places: range, decoders: Decoders, readers: ThreadPoolExecutor, stage: _Stage) -> Read:
    """A batch that processes have decoded into a room; what they left is read by threads."""
    slots = decoders.slots(stage.number, len(places))
    if slots is None:
        raise _killed(places)
    attempted: list[Any] = list(range(len(places)))
    left = [place for place, slot in enumerate(slots) if slot.what == LEFT]
    for place, row in zip(left, readers.map(rows.attempt, [places[place] for place in left]), strict=True):
        if isinstance(row, Problem):
            attempted[place] = row
        else:
            assert isinstance(row, Tensor)
            slots[place] = in_slot(decoders.slot(stage.number, place), row)

    def together(good: list[Any]) -> Inputs:
        mine = [slots[place] for place in good]
        return unfinished(decoders.pixels(stage.number, good, mine, stage.empty), mine, decoders.steps, rows._form[0])

    return _waiting(places, rows.assemble(places, attempted, together), attempted, stage)


def _killed(places: range) -> InputError:
    return InputError(
        f"expected the rows {places.start} to {places.stop - 1}, but the process that read them was "
        "killed, perhaps because memory was short; give fewer --workers"
    )


def _processes(rows: Rows, count: int, size: int, rooms: int) -> Processes | Decoders:
    if can_decode(rows):
        with suppress(OSError):  # no such memory, or no new process
            return Decoders(rows, count, size, rooms)
    return Processes(rows, count, size, rooms)


def _waiting(places: range, batch: Batch | None, attempted: list[Inputs | Problem], stage: _Stage | None) -> Read:
    if batch is not None and stage is not None and stage.fits(batch.inputs):
        batch = batch._replace(inputs=stage.hold(batch.inputs))
    return Read(places, batch, [one for one in attempted if isinstance(one, Problem)])


class _Stage:
    """Pinned memory that a batch waits in."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.memory = torch.empty(0, dtype=torch.uint8)
        self.copied: torch.cuda.Event | None = None

    def fits(self, x: Inputs) -> bool:
        """Whether the batch fits into this memory."""
        return _bytes(x) <= len(self.memory)

    def reserve(self, size: int) -> None:
        """Make room for so many bytes: a power of two, as PyTorch asks for in any case."""
        if size > len(self.memory):
            self.memory = self.pinned(1 << (size - 1).bit_length())

    @staticmethod
    def pinned(size: int) -> Tensor:
        """Ask for memory."""
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """Memory for bytes of that shape, the first here where they fit."""
        size = prod(shape)
        return (self.memory[:size] if size <= len(self.memory) else torch.empty(size, dtype=torch.uint8)).view(shape)

    def hold(self, x: Inputs) -> Inputs:
        """The batch in this memory. What lies there already is not copied."""
        start = 0

        def held(value: Tensor) -> Tensor:
            nonlocal start
            room = self.memory[start : start + value.nbytes].view(value.dtype).view(value.shape)
            start += _aligned(value.nbytes)
            return value if value.data_ptr() == room.data_ptr() else room.copy_(value)

        return inputs.apply(x, held)


class _Finish:
    """The last steps of decoded pictures, on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.table = floats().to(device)

    def __call__(self, x: Inputs) -> Inputs:
        return x if isinstance(x, Tensor) else finished(x, self.table)


class _Lane:
    """A stream of a GPU on which batches are copied beside the work on others."""

    def __init__(self, device: torch.device, depth: int) -> None:
        self.device, self.stream = device, torch.cuda.Stream(device)
        self.stages = deque(map(_Stage, range(depth + 1)))

    def stage(self) -> _Stage:
        """Memory for the next batch; the batch that was in it has reached the GPU."""
        stage = self.stages.popleft()
        if stage.copied is not None:
            stage.copied.synchronize()
        return stage

    def send(self, read: Read, stage: _Stage, finish: Callable[[Inputs], Inputs] | None = None) -> Read:
        """Begin to copy, and to do what is left; the tensors may be used after `receive`."""
        self.stages.append(stage)
        if read.batch is None:
            return read
        x = read.batch.inputs
        if not stage.fits(x):  # it was not when the batch was joined
            stage.reserve(_bytes(x))
            x = stage.hold(x)
        with torch.cuda.stream(self.stream):
            moved = inputs.apply(x, lambda value: value.to(self.device, non_blocking=True))
            stage.copied = self.stream.record_event()
            moved = moved if finish is None else finish(moved)
        return read._replace(batch=read.batch._replace(inputs=moved))

    def receive(self, read: Read) -> None:
        """Let all later work of the GPU wait for the copy."""
        if read.batch is None:
            return
        current = torch.cuda.current_stream(self.device)
        current.wait_stream(self.stream)
        for value in inputs.tensors(read.batch.inputs):
            value.record_stream(current)  # its memory is not given away before the work on it is done


def _bytes(x: Inputs) -> int:
    return sum(_aligned(value.nbytes) for value in inputs.tensors(x))


def _aligned(size: int) -> int:
    return -(-size // 64) * 64
