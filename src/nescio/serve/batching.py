"""Requests joined into batches: one thread does all work, and hands each request its own part of the results.

The thread takes what waits, up to `size` rows, and waits at most `wait` seconds for more after the first. Jobs of one
key are done together. Where that fails each is done again alone, so that one bad input spoils nothing for others. A
job whose future was cancelled before its turn is left out.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

Work = Callable[[Any, list[Any]], Sequence[Any]]
"""From a key and rows to one result for each row."""


class Full(Exception):
    """More rows are waiting than may."""


class Closed(Exception):
    """The thread has ended."""


@dataclass(frozen=True)
class _Job:
    key: Hashable
    rows: list[Any]
    future: Future[list[Any]] = field(default_factory=Future)


class Batcher:
    """A queue of jobs, and the thread that does them."""

    def __init__(
        self,
        work: Work,
        size: int,
        wait: float,
        most: int,
        done: Callable[[int, int, float], object] = lambda jobs, rows, seconds: None,
    ) -> None:
        """most: rows that may wait. done: called after each batch with its jobs, its rows and the seconds it took."""
        self._work, self._size, self._wait, self._most, self._done = work, size, wait, most, done
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closed = False
        self.waiting = 0
        """Rows that wait or are worked on."""
        self._thread = threading.Thread(target=self._run, name="nescio-model", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it takes jobs."""
        return self._thread.is_alive() and not self._closed

    def submit(self, key: Hashable, rows: Sequence[Any]) -> Future[list[Any]]:
        """The results of the rows, when they are there."""
        job = _Job(key, list(rows))
        with self._lock:
            if self._closed:
                raise Closed
            if self.waiting + len(job.rows) > self._most:
                raise Full
            self.waiting += len(job.rows)
            self._queue.put(job)
        return job.future

    def close(self, timeout: float | None = None) -> None:
        """Take no more jobs, finish those that wait, end the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        going = True
        while going:
            jobs, going = self._gathered()
            groups: dict[Hashable, list[_Job]] = {}
            for job in jobs:
                groups.setdefault(job.key, []).append(job)
            for key, group in groups.items():
                self._together(key, group)

    def _gathered(self) -> tuple[list[_Job], bool]:
        """The jobs of the next batch, and whether more may come."""
        first = self._queue.get()
        if first is None:
            return [], False
        jobs, count, until = [first], len(first.rows), time.monotonic() + self._wait
        while count < self._size:
            left = until - time.monotonic()
            try:
                job = self._queue.get(timeout=left) if left > 0 else self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            jobs.append(job)
            count += len(job.rows)
        return jobs, True

    def _together(self, key: Hashable, group: list[_Job]) -> None:
        live = [job for job in group if job.future.set_running_or_notify_cancel()]
        rows = [row for job in live for row in job.rows]
        start = time.perf_counter()
        try:
            if live:
                self._answer(key, live, rows)
        finally:
            with self._lock:
                self.waiting -= sum(len(job.rows) for job in group)
        if live:
            self._done(len(live), len(rows), time.perf_counter() - start)

    def _answer(self, key: Hashable, live: list[_Job], rows: list[Any]) -> None:
        try:
            results = list(self._work(key, rows))
        except Exception as error:
            if len(live) == 1:
                live[0].future.set_exception(error)
                return
            for job in live:
                self._answer(key, [job], job.rows)
            return
        for job in live:
            own, results = results[: len(job.rows)], results[len(job.rows) :]
            job.future.set_result(own)
