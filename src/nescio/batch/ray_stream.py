"""The stream of `nescio.batch.streaming` on Ray: many processes, GPUs or machines, each with a model of its own.

    missing parts ──► read ──► score, by actors with one model each ──► parts.adopt, in this process, as they come
                      Parquet  score_part(job, start, stop), written to the folder

An actor opens the job for itself, so the model and the data have to lie at the same place on every machine; this
process opens them too, to know what they are, but fits nothing and takes no GPU. Rows of Parquet files are read by
tasks of their own (`nescio.batch.ray_parquet`), others by the actor. An actor writes its part too, where it sees the
folder of the results, else this process does. Who has which part is in `nescio.batch.ray_pool`. Ray's own writer is not
used: it gives its files names as they come and tells of them at the end alone, so that a run that was killed could not
tell which rows are there. Here a part counts when this process has given it its name, once: rows are neither lost nor
doubled, though a part whose worker was lost is done again by another.

The joined file is the local engine's, byte for byte on the same kind of machine, where a worker has as many threads as
the local engine: sums are added in another order by another number of threads. So a worker takes as many threads as
torch has here; it has fewer, and the last digits may differ, only where so many workers are asked for that they would
fight for the cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from nescio._common.formatting import count, number
from nescio._common.lazy_imports import need
from nescio.batch import ray_cluster, ray_parquet, ray_pool, streaming
from nescio.batch.jobs import Job, Ready
from nescio.batch.ray_worker import PartResult, Work, Worker
from nescio.data.parts import Parts
from nescio.data.sources import Rows
from nescio.models.sources import Source
from nescio.progress import SLOW, bar, foretell
from nescio.specs import only_network, open_guard, open_rows, open_source, open_training
from nescio.types import InputError, ModelError

AND = " and "
"""Between machines, where there were several."""


@dataclass
class Usage(streaming.Usage):
    """Measure how the time of a run was spent; `working` is the mean over the workers, opening the model included.

    Args:
        rows: Rows that were scored.
        seconds: The whole run.
        working: Seconds in which a worker had work.
        waiting: The other seconds.
        workers: How many workers there were.

    Examples:
        >>> print(Usage(rows=1000, seconds=10.0, working=8.0, workers=4))
        100 rows/s in 10 s by 4 workers, at work 80% of that time
    """

    workers: int = 1

    def record(self) -> dict[str, float]:
        """Return the numbers for a log."""
        return {**super().record(), "workers": self.workers}

    def __str__(self) -> str:
        workers = count(self.workers, "worker")
        return f"{number(self.rate)} rows/s in {self.seconds:.0f} s by {workers}, at work {self.busy:.0%} of that time"


def opened(job: Job, tell: Callable[[Source, Rows], object] = lambda source, rows: None) -> Ready:
    """Open a job as the process that keeps the results needs it: no GPU is taken, and no method fitted.

    Args:
        job: What is to be done.
        tell: Called with the model and the rows.

    Returns:
        The job, opened.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> len(opened(example_job()).rows)
        8
    """
    source = open_source(replace(job.model, device=None))
    rows = open_rows(job.data, source)
    tell(source, rows)
    training = None if job.fit is None else open_training(job.fit, source, job.batch)[1]
    guard = None if job.guard is None else open_guard(job.guard, only_network(source))
    return Ready(job, source, rows, job.methods, training, guard)


def can_begin(ready: Ready) -> bool:
    """Return whether this process can score the first rows as a worker would, to time them.

    Args:
        ready: The job, opened by `opened`.

    Returns:
        False where methods have to be fitted, or a GPU is needed.

    Examples:
        >>> from dataclasses import replace
        >>> from nescio.batch.example_job import example_job
        >>> job = example_job()
        >>> can_begin(opened(replace(job, model=replace(job.model, device="cpu"))))
        True
    """
    return ready.job.fit is None and not _gpu(ready)


def stream(
    ready: Ready,
    parts: Parts,
    *,
    workers: int | None = None,
    address: str | None = None,
    usage: Usage | None = None,
    progress: bool | None = None,
    tell: Callable[[str], object] = lambda words: None,
) -> Usage:
    """Score all rows of the parts that are missing on Ray, and keep each part as soon as it is there.

    Args:
        ready: The job, opened by `opened`.
        parts: Where the results are kept.
        workers: Processes with a model each. None: one for each GPU where the model needs one, else as many as have the
            threads that torch has here.
        address: A cluster to join, as `ray.init` takes it. None: a Ray that lives as long as this call, or the one that
            this process is with already.
        usage: An object for the use of time; it is filled also where the work is cut off.
        progress: Whether a bar is shown; None shows one in a terminal.
        tell: Called with sentences for people, as of lost workers.

    Returns:
        The use of time.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> from nescio.batch.run_job import EngineSpec, OutputSpec, run_job
        >>> done = run_job(example_job(), OutputSpec("scores.csv"), EngineSpec("ray", workers=2))  # doctest: +SKIP
        >>> print(done.usage)  # doctest: +SKIP
        0.9 rows/s in 9 s by 1 worker, at work 20% of that time
    """
    todo = {part.start: part for part in parts.missing}
    if ready.rows.on_error == "stop" and parts.problems:
        raise InputError(f"cannot use {parts.problems[0]}; mend or remove it, or leave such rows out (--on-error skip)")
    usage, began = usage or Usage(), time.perf_counter()
    left, total = sum(map(len, todo.values())), len(ready.rows)
    about = "scoring" if left == total else f"scoring after {count(total - left, 'row')}"
    known, pace = _WorkerNews(parts, tell), _Pace()
    try:
        if todo:
            gpu = _gpu(ready)
            with (
                ray_cluster.quiet(),
                parts.worker_folder() as results_folder,
                ray_cluster.connected(address),
                bar(left, show=progress, description=about, foretells=False, left=pace.left) as shown,
            ):
                many, threads = ray_cluster.share(ray_cluster.nodes(), workers, torch.get_num_threads(), gpu)
                if threads < (alone := torch.get_num_threads()) and not gpu:
                    few = count(threads, "thread")
                    tell(f"a worker has {few}, one process alone has {alone}: last digits may differ")
                usage.workers = pace.workers = min(many, len(todo))
                work = Work(_lean(ready, threads), threads, os.getcwd(), results_folder, parts.identity.get("weights"))
                with closing(_results(work, ready.rows, list(todo.values()), usage.workers, gpu)) as results:
                    for result in results:
                        if (part := todo.pop(result.start, None)) is None:
                            continue  # it is there already
                        usage.working += result.seconds / usage.workers
                        known.add(result, part)
                        _keep(parts, part, result)
                        usage.rows += len(part)
                        shown.update(len(part))
                        pace.add(result, len(part))
                        rest = left - usage.rows
                        if rest and progress is not False and (seconds := pace.left(rest)) is not None:
                            foretell(seconds, rest, about)
        if todo:
            raise ModelError(f"expected scores of {left} rows, but Ray has given {usage.rows}; run the command again")
    finally:
        usage.seconds = time.perf_counter() - began
        usage.waiting = max(0.0, usage.seconds - usage.working)
    if total and not parts.rows:
        raise InputError(f"none of the {total} rows can be used; the first: {parts.problems[0]}")
    return usage


def _keep(parts: Parts, part: range, result: PartResult) -> None:
    """Take the scores of a part to the results, or raise the error that the worker met."""
    scores = result.outcome
    if isinstance(scores, Exception):
        raise scores
    if result.written is None:
        parts.add(part, scores.columns, scores.problems, scores.notes)
    else:
        parts.adopt(part, result.written, scores.problems, scores.notes)


def _results(work: Work, rows: Rows, parts: list[range], workers: int, gpu: bool) -> Generator[PartResult, None, None]:
    """Parts to actors, results in the order in which they are done."""
    ray = need("ray", "ray")
    given = ray.put(work)
    actor = ray.remote(Worker).options(
        num_cpus=work.threads,
        num_gpus=1 if gpu else None,
        max_restarts=0,  # `ray_pool` starts another
        max_task_retries=0,
        scheduling_strategy="SPREAD",
        enable_task_events=False,
    )
    groups = ray_parquet.groups(rows)
    feed = ray_parquet.Tables(rows, parts, groups, workers) if groups else ray_pool.Ranges(parts)
    return ray_pool.results(feed, lambda: actor.remote(given), workers)


class _Pace:
    """How long the rest will take, by the work of the workers: Ray takes time to start, and so does a worker, which
    opens the job before its first part. In that part the work sets itself up: it tells of the others only where it is
    slow.
    """

    def __init__(self) -> None:
        self.workers, self.first, self.later = 1, (0.0, 0), (0.0, 0)

    def add(self, result: PartResult, rows: int) -> None:
        """Note a part that was done."""
        seconds = result.seconds - result.opening
        if not result.opening:
            self.later = self.later[0] + seconds, self.later[1] + rows
        elif seconds >= SLOW:
            self.first = self.first[0] + seconds, self.first[1] + rows

    def left(self, rows: int) -> float | None:
        """Seconds that so many rows will take; None: not known yet."""
        seconds, done = self.later if self.later[1] else self.first
        return seconds / done * rows / self.workers if done else None


class _WorkerNews:
    """What people are told of workers: on what machines they are, which were lost, and which rows they did not fit."""

    def __init__(self, parts: Parts, tell: Callable[[str], object]) -> None:
        self.parts, self.tell, self.trained = parts, tell, False
        before = parts.earlier.get("machine")
        self.machines = set(before.split(AND)) if parts.before and before else set()
        parts.about["machine"] = before

    def add(self, result: PartResult, part: range) -> None:
        """A part was done."""
        if result.attempts > 1 and not isinstance(result.outcome, Exception):
            times = "a worker was" if result.attempts == 2 else f"{result.attempts - 1} workers were"
            self.tell(f"{times} lost at the rows {part.start} to {part.stop - 1}, which were scored again")
        if result.machine and result.machine not in self.machines:
            if self.machines:
                self.tell(
                    f"warning: some rows are of {result.machine}, others of {AND.join(sorted(self.machines))}: last "
                    "digits may differ"
                )
            self.machines.add(result.machine)
            self.parts.about["machine"] = AND.join(sorted(self.machines))
        if result.unfit and not self.trained:
            self.trained = True
            self.tell(f"{len(result.unfit)} rows to fit with could not be used; the first: {result.unfit[0]}")


def _gpu(ready: Ready) -> bool:
    """Whether a worker needs a GPU; which one it gets is Ray's to say."""
    device = ready.job.model.device
    if device is not None and device.startswith("cuda:"):
        raise InputError(f"--device: expected cuda, since Ray gives each worker a GPU of its own, got {device}")
    return device == "cuda" or (device is None and ready.device is not None and ready.device.type == "cuda")


def _lean(ready: Ready, threads: int) -> Job:
    """The job with as many threads that read as a worker has; for numbers one, as always."""
    return replace(ready.job, workers=None if ready.rows.store.kind == "numbers" else threads)
