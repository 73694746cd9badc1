"""What a job costs on this machine, stage by stage, from a few hundred rows: the numbers that a plan is made from.

    decode     rows read and made ready, one after another, in this thread
    transfer   a batch copied to the GPU
    compute    a batch that is there already, scored
    store      the columns of a batch, and of many, written to a file: what a row costs, and what a part
    together   decode and compute side by side, as a run does them: what they lose to each other

Each is timed several times; the middle counts, and the quartiles make the range. The first batches are left out of all
but the start: in them the engine finds out about the model. What they take beyond the rows in them belongs to the start
of every process; the rows themselves are rows like all others here, and on Ray, where they only tell how large a batch
should be, they belong to the start of the whole. Where other work shares the cores, the time that was spent
waiting for one is left out (on Linux, which counts it): a plan is for machines that have nothing else to do.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from nescio import inputs
from nescio.batch import pacing
from nescio.batch.columns import Column, Gathered
from nescio.batch.job_plan import RAY_CPU_IMPORTS, RAY_IMPORTS, WORKER_CPU_IMPORTS, WORKER_IMPORTS, Cost, Costs
from nescio.batch.jobs import Job, Ready
from nescio.data.parts import Parts
from nescio.data.prefetch import Read, read_ahead
from nescio.data.sources.picture_files import PictureFiles
from nescio.progress import Bar, bar, clock
from nescio.specs import open_rows
from nescio.types import InputError

SECONDS = 4.0
"""How long a stage is timed, about, beyond the least number of times."""
LEAST, MOST = 3, 30
"""How often a stage is timed."""
MANY = 8
"""Batches in the larger of the two parts that are written to tell what a row costs from what a part does."""

MANY_ROWS = 100_000
"""Rows beside which what a list takes of its own is nothing."""


class _Timed(NamedTuple):
    """How long something took, and how many seconds of a processor."""

    seconds: float
    cpu: float


def measure(job: Job, rows: int, folder: Path, *, find_batch: bool = True) -> tuple[Ready, Costs]:
    """Measure what a job costs here.

    Args:
        job: The job, over data of which a few hundred rows are read.
        rows: How many of them are timed, at most.
        folder: Where the results would go; something is written there for a moment.
        find_batch: Whether the size of a batch is found by time, as a run does.

    Returns:
        The job, opened, and what it costs.

    Raises:
        InputError: If there are no rows that can be used.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> ready, costs = measure(example_job(), rows=8, folder=Path(tempfile.mkdtemp()))
        >>> costs.compute.seconds > 0
        True
    """
    opened: list[Ready] = []
    opening = _timed(lambda: opened.append(job.open()))
    ready = opened[0]
    if not len(ready.rows):
        raise InputError(f"expected rows to measure in {job.data.path}, but there are none")
    began: list[Any] = []
    warming = _timed(lambda: began.append(pacing.begin(ready)), ready.device)
    if find_batch:
        ready = began[0].ready
    importing = _import()
    batches = _sample(ready, rows)
    reads, decode = _decode(ready, batches)
    usable = [read for read in reads if read.batch is not None]
    if not usable:
        raise InputError(f"none of the first {rows} rows of {job.data.path} can be used")
    again = [batches[number % len(batches)] for number in range(max(6, min(MOST, 2 * len(batches))))]
    steps = LEAST + max(LEAST, len(usable)) + len(again)
    with bar(steps, description="timing", unit="batch") as shown:
        _compute(ready, usable[:1], shown)
        compute, whole = _compute(ready, usable, shown)
        store, part, row_bytes = _store(whole, folder)
        together = _together(ready, again, shown)
    readers = 1 if ready.rows.store.kind == "numbers" else max(1, torch.get_num_threads())
    transfer = _transfer(ready, usable)
    alone = max(decode.seconds / readers, transfer.seconds, compute.seconds)
    friction = min(max(0.0, together.seconds - alone), decode.seconds / readers, compute.seconds)
    known, cpu = decode.seconds + compute.seconds, decode.cpu + compute.cpu  # of a row among the first ones
    first = _Timed(min(warming.seconds, began[0].stop * known), min(warming.cpu, began[0].stop * cpu))
    begun = _Timed(opening.seconds + warming.seconds - first.seconds, opening.cpu + warming.cpu - first.cpu)
    if not find_batch or job.fit is not None or (ready.device is not None and ready.device.type != "cpu"):
        first = _Timed(0.0, 0.0)  # such rows Ray does not time
    costs = Costs(
        decode, transfer, compute, store, friction, together.cpu + store.cpu, part,
        importing.seconds + begun.seconds, importing.cpu + begun.cpu, RAY_IMPORTS * importing.seconds + first.seconds,
        RAY_CPU_IMPORTS * importing.cpu + first.cpu, WORKER_IMPORTS * importing.seconds + begun.seconds,
        WORKER_CPU_IMPORTS * importing.cpu + begun.cpu, ready.job.batch, torch.get_num_threads(),
        ready.rows.store.kind == "numbers", row_bytes, _resident(), _row_bytes(ready),
    )  # fmt: skip
    return ready, costs


def _timed(work: Callable[[], object], device: torch.device | None = None) -> _Timed:
    began, spent, waited = clock(), time.process_time(), waiting("thread-self")
    work()
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    return _Timed(max(0.0, clock() - began - waiting("thread-self") + waited), time.process_time() - spent)


def waiting(*threads: str) -> float:
    """Return the seconds that threads have waited for a core since they began; 0 where the system does not count it.

    Args:
        threads: Each as a folder below /proc.

    Returns:
        The seconds, of all of them together.

    Examples:
        >>> waiting("no-such-thread")
        0.0
    """
    waits = 0.0
    for thread in threads:
        with suppress(OSError, IndexError):
            waits += int(Path("/proc", thread, "schedstat").read_text().split()[1]) / 1e9
    return waits


def _own_threads() -> list[str]:
    """All threads of this process, as folders below /proc."""
    tasks = Path("/proc/self/task")
    return [f"self/task/{task.name}" for task in tasks.iterdir()] if tasks.is_dir() else []


def _import(times: int = 3) -> _Timed:
    """What a process takes to start, to import all that a run needs, and to end; the least of some."""
    code = (
        "import sys, time, nescio.batch.run_job, nescio.scores\n"
        "from nescio.batch.stage_costs import waiting\n"
        "try:\n    import pyarrow.parquet\nexcept ImportError:\n    pass\n"
        "print(time.time() - float(sys.argv[1]) - waiting('self'), time.process_time())"
    )

    def timed() -> _Timed:
        before, given = _children(), [sys.executable, "-c", code, str(time.time())]
        done = subprocess.run(given, check=True, capture_output=True, text=True)
        seconds, spent = map(float, done.stdout.split())
        cpu = max(spent, _children() - before)  # the end is in the second alone; not every system counts it
        return _Timed(max(0.0, seconds - spent) + cpu, cpu)

    with bar(times, description="starting processes", unit="process") as shown:
        times_taken = []
        for _ in range(times):
            times_taken.append(timed())
            shown.update(1)
    return min(times_taken)


def _children() -> float:
    """Seconds of a processor of all processes that this one has started, and that have ended."""
    used = os.times()
    return used.children_user + used.children_system


def _sample(ready: Ready, rows: int) -> list[range]:
    """The places of batches: files from all over the data, else the first rows, since tables are read in blocks."""
    total, size = len(ready.rows), ready.job.batch
    starts = list(range(0, total, size))
    count = max(LEAST, -(-rows // size))
    if isinstance(ready.rows.store, PictureFiles) and len(starts) > count:
        starts = [starts[int(at)] for at in np.linspace(0, len(starts) - 1, count)]
    chosen = [range(start, min(start + size, total)) for start in starts[:count]]
    full = [one for one in chosen if len(one) == size]
    return full or chosen


def _cost(times: list[_Timed], rows: list[int]) -> Cost:
    """From times of some rows to those of one."""
    each = [one.seconds / count for one, count in zip(times, rows, strict=True)]
    low, middle, high = (float(value) for value in np.quantile(each, (0.25, 0.5, 0.75)))
    cpu = float(np.median([one.cpu / count for one, count in zip(times, rows, strict=True)]))
    return Cost(middle, low, high, cpu)


def _repeated(work: Callable[[int], _Timed], count: int) -> tuple[list[_Timed], list[int]]:
    """Time work on batch 0, 1, …, 0, 1, … until that was long enough; and which batch each was."""
    times: list[_Timed] = []
    while len(times) < max(LEAST, count) or (sum(one.seconds for one in times) < SECONDS and len(times) < MOST - 1):
        times.append(work(len(times) % count))
        if sum(one.seconds for one in times) > 5 * SECONDS and len(times) >= LEAST:
            break
    return times, [number % count for number in range(len(times))]


def _decode(ready: Ready, batches: list[range]) -> tuple[list[Read], Cost]:
    """Read each batch in this thread."""
    rows, reads = ready.rows, {}

    def read(number: int) -> _Timed:
        places = batches[number]

        def work() -> None:
            attempts = [rows.attempt(place) for place in places]
            reads[number] = Read(places, rows.assemble(places, attempts), [])

        return _timed(work)

    times, numbers = _repeated(read, len(batches))
    return [reads[number] for number in sorted(reads)], _cost(times, [len(batches[number]) for number in numbers])


def _transfer(ready: Ready, reads: list[Read]) -> Cost:
    """Copy batches to the GPU, from pinned memory as a run does; nothing on a CPU."""
    device = ready.device
    if device is None or device.type != "cuda":
        return Cost(0.0, 0.0, 0.0)
    held = [inputs.apply(read.batch.inputs, lambda value: value.pin_memory()) for read in reads if read.batch]

    def copy(number: int) -> _Timed:
        return _timed(lambda: inputs.apply(held[number], lambda value: value.to(device, non_blocking=True)), device)

    times, numbers = _repeated(copy, len(held))
    return _cost(times, [inputs.size(held[number]) for number in numbers])


def _compute(ready: Ready, reads: list[Read], shown: Bar) -> tuple[Cost, Gathered]:
    """Score batches that are there already; the bar moves on while they come for the first time."""
    gathered, left = Gathered(ready), iter(range(max(LEAST, len(reads))))

    def compute(number: int) -> _Timed:
        timed = _timed(lambda: gathered.take(reads[number]), ready.device)
        if next(left, None) is not None:
            shown.update(1)
        return timed

    times, numbers = _repeated(compute, len(reads))
    return _cost(times, [len(reads[number].places) for number in numbers]), gathered


def _store(scored: Gathered, folder: Path) -> tuple[Cost, float, float]:
    """Write few and many rows: what a row costs, seconds for each part beside, and bytes of a row."""
    columns = scored.joined().columns
    rows = len(columns["index"])
    many = {name: np.concatenate([_another(column, time) for time in range(MANY)]) for name, column in columns.items()}
    times, _ = _repeated(lambda _: _timed(scored.joined), 1)
    made = _cost(times, [rows] * len(times))
    with tempfile.TemporaryDirectory(dir=folder, prefix=".nescio-plan-") as name:
        few, lot = _written(Path(name, "few"), columns), _written(Path(name, "many"), many)
    more = (MANY - 1) * rows

    def row(least: float, most: float) -> float:
        return max(0.0, (most - least) / more)

    middle = row(few.seconds, lot.seconds)
    cost = Cost(
        made.seconds + middle, made.low + row(few.seconds, lot.low), made.high + row(few.seconds, lot.high),
        made.cpu + row(few.cpu, lot.cpu),
    )  # fmt: skip
    return cost, max(0.0, few.seconds - middle * rows), sum(map(_value_bytes, columns.values()))


def _another(column: Column, time: int) -> Column:
    """A column that differs, so that repetition does not make it smaller than others of its kind."""
    return column * (1 + time * 1e-9) if column.dtype.kind == "f" else column


def _value_bytes(column: Column) -> float:
    """Bytes of a value as a file holds it, about; numbers are hardly compressed, names are not counted as fewer."""
    return float(column.itemsize) if column.dtype.kind != "U" else float(np.char.str_len(column).mean())


def _written(folder: Path, columns: dict[str, Column]) -> Cost:
    """Write a part again and again: what it costs, as if it were a row."""
    rows = len(columns["index"])
    with Parts(folder, MOST * rows, rows, {}) as parts:
        parts.add(range(rows), columns)
        todo = iter(parts.missing)
        times, _ = _repeated(lambda _: _timed(lambda: parts.add(next(todo), columns)), 1)
        parts.remove()
    return _cost(times, [1] * len(times))


def _together(ready: Ready, batches: list[range], shown: Bar) -> _Timed:
    """Read and score side by side, as a run does: seconds a row once it is under way."""
    gathered, rows = Gathered(ready), 0
    workers = ready.job.workers or (1 if ready.rows.store.kind == "numbers" else torch.get_num_threads())
    reads = read_ahead(ready.rows, batches, workers=workers, device=ready.device)
    for read in islice(reads, 2):
        gathered.take(read)
        shown.update(1)
    began, spent = clock(), time.process_time()
    threads = _own_threads()
    waited = waiting(*threads)
    for read in reads:
        gathered.take(read)
        shown.update(1)
        rows += len(read.places)
        if rows >= sum(map(len, batches[2:])):  # before its threads end, and with them what they know
            waited = waiting(*threads) - waited
    if ready.device is not None and ready.device.type == "cuda":
        torch.cuda.synchronize(ready.device)
    return _Timed((clock() - began - waited) / rows, (time.process_time() - spent) / rows)


def _resident() -> float:
    """The most memory that this process has had, in bytes."""
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(most * (1 if sys.platform == "darwin" else 1024))


def _row_bytes(ready: Ready) -> float:
    """What the list of rows takes for each of them: names of files, labels; not what any list takes."""
    tracemalloc.start()
    try:
        rows = open_rows(ready.job.data, ready.source)
        _ = rows.labels, rows.names
        many = max(1, len(rows))
        if many > MANY_ROWS:
            return tracemalloc.get_traced_memory()[0] / many
        places = tracemalloc.take_snapshot().statistics("lineno")
        return sum(place.size for place in places if place.count >= many or place.size >= 4 * many * place.count) / many
    finally:
        tracemalloc.stop()
