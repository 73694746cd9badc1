"""Requests joined into batches: one thread does all work, and hands each request its own part of the results.

The thread takes what waits, up to `size` rows, and waits at most `wait` seconds for more after the first. Rows of one
key are done together. Where that fails each job is done again alone, so that one bad input spoils nothing for others.

**Nobody holds the thread.** A job with more rows than a batch goes to the end of the queue after each batch. A slow job
(a map) is done one row at a time, and only when nothing else waits. A job whose future was cancelled, since nobody
waits for it any more, is left out from its next row on, and given up at the next forward pass where it is alone.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from nescio.modes.stopping import Stopped, stopping

Work = Callable[[Any, list[Any]], Sequence[Any]]
"""From a key and rows to one result for each row."""


class Full(Exception):
    """Say that more rows are waiting than may."""


class Closed(Exception):
    """Say that the thread has ended."""


@dataclass(eq=False)
class _Job:
    key: Hashable
    rows: list[Any]
    slow: bool
    results: list[Any] = field(default_factory=list)
    future: Future[list[Any]] = field(default_factory=Future)

    @property
    def left(self) -> int:
        return len(self.rows) - len(self.results)

    def end(self, error: BaseException | None = None) -> None:
        """Hand over the results or the error, unless nobody waits any more."""
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        if error is None:
            self.future.set_result(self.results)
        else:
            self.future.set_exception(error)


@dataclass(frozen=True)
class _Part:
    """Some rows of a job."""

    job: _Job
    rows: list[Any]


class Batcher:
    """Join jobs to batches, and do them in one thread.

    Args:
        work: From a key and rows to one result for each row.
        size: How many rows a batch has at most.
        wait: How many seconds the first row of a batch waits for others.
        most: How many rows may wait.
        done: Called after each batch with its jobs, its rows and the seconds it took.
    """

    def __init__(
        self,
        work: Work,
        size: int,
        wait: float,
        most: int,
        done: Callable[[int, int, float], object] = lambda jobs, rows, seconds: None,
    ) -> None:
        self._work, self._size, self._wait, self._most, self._done = work, size, wait, most, done
        self._quick: deque[_Job] = deque()
        self._slow: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._now: list[_Part] = []
        self._closed = self._given_up = False
        self._thread = threading.Thread(target=self._run, name="nescio-model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Return whether it takes jobs."""
        return self._thread.is_alive() and not self._closed

    @property
    def busy(self) -> bool:
        """Return whether the thread is still there."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Return how many rows somebody waits for."""
        with self._changed:
            return self._count()

    def submit(self, key: Hashable, rows: Sequence[Any], slow: bool = False) -> Future[list[Any]]:
        """Take a job.

        Args:
            key: Rows of equal keys are done together.
            rows: The inputs.
            slow: Whether other jobs go before each of its rows.

        Returns:
            The results, when they are there; whoever cancels the future has its rows left out.
        """
        job = _Job(key, list(rows), slow)
        with self._changed:
            if self._closed:
                raise Closed
            if self._count() + job.left > self._most:
                raise Full
            (self._slow if slow else self._quick).append(job)
            self._changed.notify()
        return job.future

    def close(self, timeout: float | None = None) -> None:
        """Take no more jobs, finish those that wait, and end the thread.

        Args:
            timeout: Seconds after which what is left is given up; None waits for all.
        """
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout)
        with self._changed:
            self._given_up = True
            left = [*self._quick, *self._slow, *(part.job for part in self._now)]
            self._quick.clear()
            self._slow.clear()
        for job in left:
            job.end(Closed())
        self._thread.join(timeout)

    def _count(self) -> int:
        jobs = {*self._quick, *self._slow, *(part.job for part in self._now)}
        return sum(job.left for job in jobs if not job.future.done())

    def _run(self) -> None:
        while self._gathered():
            groups: dict[Hashable, list[_Part]] = {}
            for part in self._now:
                groups.setdefault(part.job.key, []).append(part)
            for key, group in groups.items():
                self._together(key, group)

    def _gathered(self) -> bool:
        """Take the rows of the next batch; False where no more will come."""
        with self._changed:
            self._now = []
            while not self._quick and not self._slow:
                if self._closed:
                    return False
                self._changed.wait()
            if not self._quick:
                self._take(self._slow, 1)
                return True
            left, until = self._size, time.monotonic() + self._wait
            while left > 0:
                if self._quick:
                    left -= self._take(self._quick, left)
                elif self._closed or not self._changed.wait(until - time.monotonic()):
                    break
            return True

    def _take(self, jobs: deque[_Job], most: int) -> int:
        """Take rows of the first job, unless nobody waits for it; how many."""
        job = jobs.popleft()
        if job.future.done():
            return 0
        part = _Part(job, job.rows[len(job.results) :][:most])
        self._now.append(part)
        return len(part.rows)

    def _together(self, key: Hashable, group: list[_Part]) -> None:
        live = [part for part in group if not part.job.future.done()]
        if not live:
            return
        start = time.perf_counter()
        self._answer(key, live)
        self._done(len(live), sum(len(part.rows) for part in live), time.perf_counter() - start)
        for job in (part.job for part in live):
            if not job.left:
                job.end()
            with self._changed:
                if not job.future.done() and not self._given_up:
                    (self._slow if job.slow else self._quick).append(job)

    def _answer(self, key: Hashable, live: list[_Part]) -> None:
        try:
            with stopping(lambda: all(part.job.future.done() for part in live)):
                results = list(self._work(key, [row for part in live for row in part.rows]))
        except Stopped:
            return
        except Exception as error:
            if len(live) == 1:
                live[0].job.end(error)
                return
            for part in live:
                self._answer(key, [part])
            return
        for part in live:
            own, results = results[: len(part.rows)], results[len(part.rows) :]
            part.job.results.extend(own)
