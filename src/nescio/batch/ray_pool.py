"""Workers of Ray that live as long as a run: each has a part or two at a time, and gives results as they come.

    feed ──► todo ──► at most AHEAD parts at each worker ──► results, in the order in which they are done
              ▲                     │
              └── given back where a worker was lost with them; another is started in its place

What this process keeps are the parts that are at a worker, and no others, however many there are: Ray's own pipelines
(`ray.data`) keep a block, its task and its statistics for every part, and results for as long as nobody takes them.
Ray repeats nothing here. A worker that is lost is seen at the call, whatever has ended it, so its parts are counted in
this process, which no other machine takes away.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from nescio._common.lazy_imports import need
from nescio.batch.ray_worker import ATTEMPTS, PartResult
from nescio.types import ModelError

AHEAD = 2
"""Parts that a worker has at a time: one at which it is, and one that lies ready."""
LATE = 30.0
"""Seconds until what a lost worker may still have given back counts as lost."""


class Feed(Protocol):
    """Say where parts come from.

    Examples:
        >>> feed: Feed = Ranges([range(0, 4)])
    """

    def take(self) -> tuple[range, Any] | None:
        """Return a part that can be done, with its rows where they were read; None where there is none now."""

    def coming(self) -> list[Any]:
        """Return what has to be waited for until there are more; nothing where there will be none, or need not be."""

    def came(self, one: Any) -> None:
        """Take what was waited for.

        Args:
            one: One of those that `coming` gave.
        """


class Ranges:
    """Feed parts whose rows the workers read.

    Args:
        parts: The parts.

    Examples:
        >>> feed = Ranges([range(0, 4)])
        >>> feed.take(), feed.take()
        ((range(0, 4), b''), None)
    """

    def __init__(self, parts: Iterable[range]) -> None:
        self._parts = iter(parts)

    def take(self) -> tuple[range, Any] | None:
        """Return the next part; None behind the last."""
        part = next(self._parts, None)
        return None if part is None else (part, b"")

    def coming(self) -> list[Any]:
        """Return nothing: all are there."""
        return []

    def came(self, one: Any) -> None:
        """Do nothing, since nothing is waited for.

        Args:
            one: Nothing.
        """


class _Given(NamedTuple):
    """A part, how many workers have begun with it, and its rows or a reference to them."""

    part: range
    attempts: int
    table: Any


def results(feed: Feed, start: Callable[[], Any], workers: int) -> Generator[PartResult, None, None]:
    """Have parts done by workers, and give what they give back.

    Args:
        feed: Where parts come from.
        start: Starts a worker: an actor of Ray with the methods of `nescio.batch.ray_worker.Worker`, that Ray neither
            restarts nor asks again.
        workers: How many there are at a time.

    Returns:
        The results, in the order in which they are done; each part once.

    Raises:
        ModelError: If workers are lost before they have begun, again and again.

    Examples:
        >>> from nescio.batch.ray_pool import Ranges, results
        >>> given = results(Ranges([range(0, 4)]), Remote, workers=2)  # doctest: +SKIP
        >>> next(given).start  # doctest: +SKIP
        0
    """
    pool = _Pool(feed, start, workers)
    try:
        yield from pool.run()
    finally:
        pool.end()


class _Pool:
    """The workers, and the parts that they have."""

    def __init__(self, feed: Feed, start: Callable[[], Any], workers: int) -> None:
        self.ray, self.feed, self.start, self.workers = need("ray", "ray"), feed, start, workers
        self.starting: dict[Any, Any] = {}
        self.at: dict[Any, deque[Any]] = {}
        """Workers that are there, each with its calls in the order in which it does them."""
        self.calls: dict[Any, tuple[Any, _Given]] = {}
        self.back: deque[_Given] = deque()
        self.failed = 0

    def run(self) -> Iterator[PartResult]:
        for _ in range(self.workers):
            self.launch()
        while True:
            self.hand_out()
            if not self.back and (given := self.fed()) is not None:
                self.back.append(given)  # all workers have enough, or none is there yet
            coming = self.feed.coming()
            if not (self.calls or self.back or coming):
                return
            waited = [*self.calls, *self.starting, *coming]
            self.ray.wait(waited, num_returns=1, fetch_local=False)
            ready, _ = self.ray.wait(waited, num_returns=len(waited), timeout=0, fetch_local=False)
            found: list[PartResult] = []
            for one in ready:
                if one in self.calls:
                    found += self.done(one)
                elif one in self.starting:
                    self.begun(one)
                elif one in coming:
                    self.feed.came(one)
            self.hand_out()  # workers go on, whatever becomes of the results
            yield from found

    def launch(self) -> None:
        worker = self.start()
        self.starting[worker.ready.remote()] = worker

    def begun(self, call: Any) -> None:
        """A worker is there, or will not be."""
        worker = self.starting.pop(call)
        try:
            self.ray.get(call)
        except self.ray.exceptions.RayTaskError:  # not lost: it says what is wrong
            self.kill(worker)
            raise
        except self.ray.exceptions.RayError as error:
            self.kill(worker)
            self.failed += 1
            if self.failed >= ATTEMPTS:
                words = f"{self.failed} workers of Ray were lost before they had begun; was memory short?"
                raise ModelError(f"{words} ({(str(error).strip() or repr(error)).splitlines()[0]})") from error
            self.launch()
        else:
            self.failed = 0
            self.at[worker] = deque()

    def hand_out(self) -> None:
        """Give parts to workers, first to those that have nothing."""
        for many in range(AHEAD):
            for worker, calls in self.at.items():
                if len(calls) > many:
                    continue
                given = self.back.popleft() if self.back else self.fed()
                if given is None:
                    return
                part, attempts, table = given
                call = worker.score.remote(part.start, part.stop, attempts, table)
                calls.append(call)
                self.calls[call] = worker, given

    def fed(self) -> _Given | None:
        taken = self.feed.take()
        return None if taken is None else _Given(taken[0], 1, taken[1])

    def done(self, call: Any) -> list[PartResult]:
        """A call has ended: with a result, or with its worker."""
        worker, given = self.calls[call]
        try:
            found = pickle.loads(self.ray.get(call))
        except self.ray.exceptions.RayTaskError:
            if isinstance(given.table, bytes):
                raise
            self.back.append(given._replace(table=b""))  # its rows were lost: the worker reads them
        except self.ray.exceptions.RayError:
            return self.lost(worker)
        else:
            self.forget(call)
            return [found]
        self.forget(call)
        return []

    def forget(self, call: Any) -> None:
        worker, _ = self.calls.pop(call)
        self.at[worker].remove(call)

    def lost(self, worker: Any) -> list[PartResult]:
        """Take back what a lost worker had; it was at the first part of which it has given nothing back."""
        self.kill(worker)
        found: list[PartResult] = []
        again: list[_Given] = []
        for call in self.at.pop(worker):
            _, given = self.calls.pop(call)
            try:
                found.append(pickle.loads(self.ray.get(call, timeout=LATE)))
            except self.ray.exceptions.RayError:
                again.append(_Given(given.part, given.attempts + (not again), b""))
        self.back.extendleft(reversed(again))
        self.launch()
        return found

    def kill(self, worker: Any) -> None:
        self.ray.kill(worker, no_restart=True)

    def end(self) -> None:
        for worker in [*self.at, *self.starting.values()]:
            self.kill(worker)
        self.at, self.starting, self.calls = {}, {}, {}
