"""How long a job over many rows will take, on how many workers, and what holds it up: a pure function of measurements.

    a worker of Ray    read the first batch ─► max(decode ÷ readers, transfer, compute) for each row ─► store the part
    the local engine   max(decode ÷ readers, transfer, compute + store) for each row
    all together       no less than the cores allow (seconds of a processor ÷ cores), nor the driver (seconds a part)
    parts              the last round of parts leaves workers idle: ⌈parts ÷ workers⌉ rounds

`nescio.batch.stage_costs` has the measurements. `benchmarks/plan.py` compares plans with runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

RAY_IMPORTS, RAY_CPU_IMPORTS, WORKER_IMPORTS, WORKER_CPU_IMPORTS = 3.5, 8.2, 1.95, 0.9
"""Multiples of what a process takes to import nescio: the time in which Ray starts and ends where cores are free, the
processor time of that, and the time and the processor time of a worker, which imports Ray too but whose process Ray has
started before. They are of runs of 10,000 rows on two cores, by one, two and four workers (`benchmarks/plan.py`)."""
BUSY = 0.9
"""The share of the time in which all cores are at work while more processes start than there are cores."""
RAY_PART_CPU = 0.006
"""Seconds of a processor that Ray takes for a part, in the driver and a worker together (`benchmarks/growth.py`)."""
DRIVER_PART = 0.002
"""Seconds that the driver of Ray takes for a part (`benchmarks/growth.py`)."""
PART_BYTES = {"local": 700, "ray": 1_000}
"""Bytes of the driver's memory for a part (`benchmarks/growth.py`)."""
GOOD_PART = 30.0
"""Seconds that a part should take: what a lost worker, or a kill, can take away."""


@dataclass(frozen=True)
class Cost:
    """Hold the seconds that a stage takes for a row, in one worker and on its own.

    Args:
        seconds: The middle of what was measured.
        low: The lower quartile.
        high: The upper quartile.
        cpu: Seconds of a processor.

    Examples:
        >>> Cost(seconds=0.002, low=0.001, high=0.003).cpu
        0.0
    """

    seconds: float
    low: float
    high: float
    cpu: float = 0.0


@dataclass(frozen=True)
class Costs:
    """Hold what was measured of a job on this machine.

    Args:
        decode: Reading a row and making it ready, in one thread.
        transfer: Copying it to a GPU.
        compute: The scores, or the verdict, in batches.
        store: Writing it.
        friction: Seconds a row that the stages lose to each other when they go on side by side.
        cpu: Seconds of a processor for a row, all stages together.
        part: Seconds for each part beyond its rows.
        start: Seconds from the command on that are there beside the rows: until the first one, and what it takes more.
        start_cpu: Seconds of a processor in these.
        ray_start: Further seconds on Ray until it is there, with the rows that tell the size of a batch, and to end it.
        ray_cpu: Seconds of a processor in these.
        worker_start: Seconds until a worker of Ray begins with its first part.
        worker_cpu: Seconds of a processor in these.
        batch: How many rows go to the model at a time.
        threads: How many threads torch had.
        numbers: Whether a row is numbers, which one thread reads.
        row_bytes: Bytes of a row in the result.
        driver_bytes: Memory of a process that has opened the job.
        driver_row_bytes: What of it grows with the rows, as the names of files do.

    Examples:
        >>> quick = Cost(0.001, 0.001, 0.002)
        >>> known = (0, 0.002, 0, 5, 5, 8, 8, 5, 5, 256, 1, True, 40, 1e9, 0)
        >>> costs = Costs(quick, quick, Cost(0.01, 0.01, 0.01), quick, *known)
        >>> costs.batch
        256
    """

    decode: Cost
    transfer: Cost
    compute: Cost
    store: Cost
    friction: float
    cpu: float
    part: float
    start: float
    start_cpu: float
    ray_start: float
    ray_cpu: float
    worker_start: float
    worker_cpu: float
    batch: int
    threads: int
    numbers: bool
    row_bytes: float
    driver_bytes: float
    driver_row_bytes: float


@dataclass(frozen=True)
class Crew:
    """Say who does the work.

    Args:
        engine: "local" for one process, "ray" for many.
        workers: Processes with a model each.
        cores: Cores in all.
        readers: Threads that read in each of them; None chooses as the engine does.

    Examples:
        >>> Crew("ray", workers=4, cores=16).workers
        4
    """

    engine: Literal["local", "ray"]
    workers: int
    cores: int
    readers: int | None = None

    def reading(self, costs: Costs) -> int:
        """Return how many threads read in a worker.

        Args:
            costs: What a row costs.

        Returns:
            The number of threads.
        """
        if self.readers is not None:
            return self.readers
        return 1 if costs.numbers else self.threads(costs) if self.engine == "ray" else min(8, self.cores)

    def threads(self, costs: Costs) -> int:
        """Return how many threads torch has in a worker.

        Args:
            costs: What a row costs.

        Returns:
            The number of threads.
        """
        return max(1, min(costs.threads, self.cores // self.workers))


@dataclass(frozen=True)
class Plan:
    """Say how long a job takes, and why.

    Args:
        rows: How many rows.
        crew: Who does the work.
        part_rows: How many rows a part has.
        parts: How many parts.
        seconds: How long it takes, the start included.
        start: Seconds of the start.
        stages: Seconds that each stage would take if it were alone, with all that the crew has.
        bottleneck: The stage that holds it up.
        part_seconds: How long a worker takes for a part.
        idle: The share of the workers' time in which the last parts leave some of them without work.
        cpu_seconds: Seconds of a processor.
        driver_bytes: Memory of the process that was started.
        result_bytes: Size of the results.

    Examples:
        >>> quick = Cost(0.001, 0.001, 0.002)
        >>> known = (0, 0.002, 0, 5, 5, 8, 8, 5, 5, 256, 1, True, 40, 1e9, 0)
        >>> costs = Costs(quick, quick, Cost(0.01, 0.01, 0.01), quick, *known)
        >>> round(make_plan(costs, Crew("ray", workers=4, cores=8), 1_000_000, 1024).worker_hours, 2)
        3.16
    """

    rows: int
    crew: Crew
    part_rows: int
    parts: int
    seconds: float
    start: float
    stages: dict[str, float]
    bottleneck: str
    part_seconds: float
    idle: float
    cpu_seconds: float
    driver_bytes: float
    result_bytes: float

    @property
    def worker_hours(self) -> float:
        """Return the hours that all workers are held; of a GPU each, these are GPU-hours."""
        return self.seconds * self.crew.workers / 3600


def make_plan(costs: Costs, crew: Crew, rows: int, part_rows: int) -> Plan:
    """Plan a job.

    Args:
        costs: What was measured.
        crew: Who does the work.
        rows: How many rows there are.
        part_rows: How many rows a part has.

    Returns:
        The plan.

    Examples:
        >>> quick = Cost(0.001, 0.001, 0.001)
        >>> known = (0, 0.002, 0, 5, 5, 8, 8, 5, 5, 256, 1, True, 40, 1e9, 0)
        >>> costs = Costs(quick, quick, Cost(0.01, 0.01, 0.01), quick, *known)
        >>> plan = make_plan(costs, Crew("ray", workers=4, cores=8), 1_000_000, 1024)
        >>> plan.bottleneck, round(plan.seconds)
        ('compute', 2840)
    """
    on_ray = crew.engine == "ray"
    parts = max(1, -(-rows // part_rows))
    stages = _stages(costs, crew, rows, parts)
    one = _part_seconds(costs, crew, min(part_rows, max(rows, 1)))
    work = one * rows / min(part_rows, max(rows, 1)) / crew.workers
    rounds = -(-parts // crew.workers)
    whole = one * rounds if on_ray else work
    at_work = max(whole, stages["cores"], stages["driver"])
    start = _start(costs, crew)
    return Plan(
        rows, crew, part_rows, parts, start + at_work, start, stages, max(stages, key=lambda one: stages[one]), one,
        max(0.0, 1 - work / whole) if whole else 0.0, _cpu(costs, crew, rows, parts),
        costs.driver_bytes + costs.driver_row_bytes * rows + PART_BYTES[crew.engine] * parts,
        costs.row_bytes * rows,
    )  # fmt: skip


def span(costs: Costs, crew: Crew, rows: int, part_rows: int) -> tuple[float, float]:
    """Return the seconds with all stages at the lower, and all at the upper quartile of what was measured.

    Args:
        costs: What was measured.
        crew: Who does the work.
        rows: As in `make_plan`.
        part_rows: As in `make_plan`.

    Returns:
        The shorter and the longer time, in seconds.

    Examples:
        >>> quick = Cost(0.001, 0.001, 0.002)
        >>> known = (0, 0.002, 0, 5, 5, 8, 8, 5, 5, 256, 1, True, 40, 1e9, 0)
        >>> costs = Costs(quick, quick, Cost(0.01, 0.01, 0.01), quick, *known)
        >>> low, high = span(costs, Crew("local", workers=1, cores=8), 1_000_000, 1024)
        >>> low < high
        True
    """

    def at(end: Literal["low", "high"]) -> float:
        names = ("decode", "transfer", "compute", "store")
        ends = {name: getattr(getattr(costs, name), end) for name in names}
        middle = sum(getattr(costs, name).seconds for name in names)
        changed = {name: replace(getattr(costs, name), seconds=value) for name, value in ends.items()}
        factor = sum(ends.values()) / middle if middle else 1.0
        known = replace(costs, **changed, cpu=costs.cpu * factor, friction=costs.friction * factor)
        return make_plan(known, crew, rows, part_rows).seconds

    return at("low"), at("high")


def good_part_rows(costs: Costs, crew: Crew, rows: int) -> int:
    """Return how many rows a part should have.

    It takes half a minute; but there are twenty parts for each worker, where there are rows enough, and the driver is
    at work a tenth of the time at most.

    Args:
        costs: What was measured.
        crew: Who does the work.
        rows: As in `make_plan`.

    Returns:
        The number, a multiple of the size of a batch.

    Examples:
        >>> quick = Cost(0.001, 0.001, 0.002)
        >>> known = (0, 0.002, 0, 5, 5, 8, 8, 5, 5, 256, 1, True, 40, 1e9, 0)
        >>> costs = Costs(quick, quick, Cost(0.01, 0.01, 0.01), quick, *known)
        >>> good_part_rows(costs, Crew("local", workers=1, cores=8), 1_000_000)
        2816
    """
    row = _row_seconds(costs, crew)
    wanted = GOOD_PART / row if row else float(rows)
    batches = max(1, round(min(wanted, rows / (20 * crew.workers)) / costs.batch))
    if crew.engine == "ray" and row:
        batches = max(batches, ceil(10 * DRIVER_PART * crew.workers / row / costs.batch))
    return batches * costs.batch


def _row_seconds(costs: Costs, crew: Crew) -> float:
    """Seconds of a worker for a row, as the rows of a part go by."""
    decode = costs.decode.seconds / crew.reading(costs)
    compute = _compute(costs, crew)
    if crew.engine == "ray":
        return max(decode, costs.transfer.seconds, compute) + costs.friction + costs.store.seconds
    return max(decode, costs.transfer.seconds, compute + costs.store.seconds) + costs.friction


def _compute(costs: Costs, crew: Crew) -> float:
    """Seconds of a worker to compute a row; with fewer threads than were measured it takes longer."""
    return max(costs.compute.seconds, costs.compute.cpu / crew.threads(costs))


def _part_seconds(costs: Costs, crew: Crew, part_rows: int) -> float:
    """Seconds of a worker for a part; on Ray nothing is computed while its first batch is read."""
    first = min(costs.batch, part_rows) * costs.decode.seconds / crew.reading(costs) if crew.engine == "ray" else 0.0
    return part_rows * _row_seconds(costs, crew) + first + costs.part


def _stages(costs: Costs, crew: Crew, rows: int, parts: int) -> dict[str, float]:
    each = rows / crew.workers
    return {
        "decode": each * costs.decode.seconds / crew.reading(costs),
        "transfer": each * costs.transfer.seconds,
        "compute": each * _compute(costs, crew),
        "store": each * costs.store.seconds + parts * costs.part / crew.workers,
        "cores": rows * costs.cpu / crew.cores,
        "driver": parts * DRIVER_PART if crew.engine == "ray" else 0.0,
    }


def _start(costs: Costs, crew: Crew) -> float:
    """Seconds until workers begin; they start side by side, as far as there are cores."""
    if crew.engine == "local":
        return costs.start
    crowded = (costs.ray_cpu + costs.worker_cpu * crew.workers) / crew.cores / BUSY
    return costs.start + max(costs.ray_start + costs.worker_start, crowded)


def _cpu(costs: Costs, crew: Crew, rows: int, parts: int) -> float:
    """Seconds of a processor, in all processes."""
    one = costs.cpu * rows + costs.start_cpu
    if crew.engine == "local":
        return one
    return one + costs.ray_cpu + costs.worker_cpu * crew.workers + RAY_PART_CPU * parts
