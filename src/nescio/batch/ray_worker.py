"""A worker of Ray: an actor with a model of its own, which scores one part after another."""

from __future__ import annotations

import os
import pickle
import time
import traceback
from dataclasses import dataclass, replace

import torch

from nescio.batch import jobs, ray_parquet, streaming
from nescio.batch.columns import Scores
from nescio.batch.jobs import Job
from nescio.data import prefetch
from nescio.data.sources import Problem
from nescio.data.worker_parts import WorkerFolder, WrittenPart
from nescio.types import InputError, ModelError

ATTEMPTS = 5
"""A part is given up when so many workers were lost at it: it is the part then that ends them."""


@dataclass(frozen=True)
class Work:
    """Say what a worker has to know.

    Args:
        job: What is to be done.
        threads: How many threads torch has in a worker.
        folder: Where relative paths begin.
        results: Where a worker that sees it writes its parts.
        weights: The hash of the model's weights, where it is known.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> Work(example_job(), threads=1, folder=".", results=WorkerFolder("/no folder", ".csv", "")).threads
        1
    """

    job: Job
    threads: int
    folder: str
    results: WorkerFolder
    weights: str | None = None


@dataclass(frozen=True)
class PartResult:
    """Hold what a worker gives back for a part.

    Args:
        start: The first row of the part.
        outcome: The scores; an error is a value too, so that it comes to the driver as it is.
        seconds: How long it took, with what came before.
        attempts: How many workers have begun with the part.
        written: Where the columns are, if not in `outcome`.
        machine: What computed.
        unfit: Rows that methods could not be fitted to.
        opening: Seconds until the job was open, of the first part of a worker; of the others 0.

    Examples:
        >>> PartResult(0, Scores({}, [], {}), seconds=1.5, attempts=1).machine
        ''
    """

    start: int
    outcome: Scores | Exception
    seconds: float
    attempts: int
    written: WrittenPart | None = None
    machine: str = ""
    unfit: tuple[Problem, ...] = ()
    opening: float = 0.0


class Worker:
    """Score parts as an actor of Ray, which opens the job with its first part and keeps it.

    Args:
        work: What it has to know.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> results = WorkerFolder("/no folder", ".csv", "")
        >>> work = Work(example_job(), torch.get_num_threads(), ".", results)
        >>> part = Worker(work).result(0, 8, attempts=1)
        >>> part.start, len(part.outcome.columns["entropy"])
        (0, 8)
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.same = work.weights is None
        self.opened = False

    def ready(self) -> None:
        """Do nothing: who has an answer knows that the worker is there."""

    def score(self, start: int, stop: int, attempts: int, table: bytes = b"") -> bytes:
        """Return that of `result`, pickled, so that nothing of it lies in Ray's store once it was read.

        Args:
            start: The first row.
            stop: The row behind the last.
            attempts: How many workers have begun with the part, this one included.
            table: Its rows, where they were read already.

        Returns:
            The result.
        """
        prefetch.PROCESSES = False  # the threads of Ray do not stand a fork
        return pickle.dumps(self.result(start, stop, attempts, table))

    def result(self, start: int, stop: int, attempts: int, table: bytes = b"") -> PartResult:
        """Return the scores of a part, or why there are none.

        Args:
            start: The first row.
            stop: The row behind the last.
            attempts: How many workers have begun with the part, this one included.
            table: Its rows, where they were read already.

        Returns:
            The scores, or the error.
        """
        began = time.perf_counter()
        if attempts > ATTEMPTS:
            lost = ModelError(f"{ATTEMPTS} workers were lost at the rows {start} to {stop - 1}; was memory short?")
            return PartResult(start, lost, 0.0, attempts)
        try:
            work = self.work
            _enter(work.folder)
            torch.set_num_threads(work.threads)
            ready = streaming.standing(work.job)
            self.same = self.same or jobs.weights(ready.source.model) == work.weights
            if not self.same:
                raise ModelError(
                    f"expected the same weights of {work.job.model.name} in every process, but they are others in this "
                    "one; give a file of --weights, or fix the seed in the function that makes the model"
                )
            opening, self.opened = 0.0 if self.opened else time.perf_counter() - began, True
            with ray_parquet.lent(ready.rows, start, table):
                scores = streaming.score_part(work.job, start, stop)
            if (written := work.results.write(scores.columns)) is not None:
                scores = replace(scores, columns={})
            unfit = () if ready.training is None else tuple(ready.training.problems)
            seconds = time.perf_counter() - began
            return PartResult(start, scores, seconds, attempts, written, jobs.machine(ready), unfit, opening)
        except Exception as error:
            return PartResult(start, portable(error), time.perf_counter() - began, attempts)


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise InputError(
            f"expected the folder {folder}, where the command was given, on every machine of the cluster, but one has "
            f"none ({error.strerror})"
        ) from error


def portable(error: Exception) -> Exception:
    """Return an error with the place it comes from as a note, in a form that can travel.

    Args:
        error: The error, which is being handled.

    Returns:
        The same error where it can be pickled, else one with its words.

    Examples:
        >>> portable(ValueError("too long"))
        ValueError('too long')
    """
    place = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(f"in a worker of Ray:\n{place}")
    return error
