"""Something small that is done again and again in a thread of its own, while a block of work goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def ticking(waits: Iterable[float], work: Callable[[], object]) -> Iterator[None]:
    """Do something after so many seconds, and again after so many more, until the block is left.

    Args:
        waits: The seconds before each time; after the last of them it is not done again.
        work: What is done.

    Returns:
        The context manager.

    Examples:
        >>> import time
        >>> with ticking([0.01, 0.01], lambda: print("tick")):
        ...     time.sleep(0.5)
        tick
        tick
    """
    ended = threading.Event()

    def run() -> None:
        for wait in waits:
            if ended.wait(wait):
                return
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def ever_rarer(first: float, second: float, most: float) -> Iterator[float]:
    """Give waits that grow without end: each further one is twice as long as the one before.

    Args:
        first: The first wait.
        second: The second, which is the first of those that grow.
        most: How long one is at most.

    Returns:
        The waits.

    Examples:
        >>> from itertools import islice
        >>> list(islice(ever_rarer(2.0, 8.0, 20.0), 5))
        [2.0, 8.0, 16.0, 20.0, 20.0]
    """
    yield first
    wait = second
    while True:
        yield wait
        wait = min(2 * wait, most)
