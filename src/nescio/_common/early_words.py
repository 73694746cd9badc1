"""A line that is said in time also while this process cannot: a module that is loaded holds all threads up meanwhile.

On a machine that is busy, or where libraries come from the disk for the first time, that takes many seconds. So before
anything large is loaded a process is forked, which waits and says the line, unless it is told that there is no need.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LARGE = ("numpy", "torch")
"""What has threads of its own once it is loaded: then no process is forked."""


@contextmanager
def said_in_time(line: str, seconds: float) -> Iterator[Callable[[], None] | None]:
    """Say a line on standard error after so many seconds, if the block goes on for so long.

    Args:
        line: The line.
        seconds: The seconds.

    Returns:
        The context manager. It gives a function after whose call the line is not said; None where no process could be
        forked, so that nothing will be said.

    Examples:
        >>> with said_in_time("getting ready", 60.0) as never_mind:
        ...     print(never_mind)  # large libraries are loaded already
        None
    """
    if not _can_fork():
        yield None
        return
    there, ours = os.pipe()
    child = os.fork()
    if child == 0:
        _wait_and_say(line, seconds, there, ours)
    os.close(there)

    def never_mind() -> None:
        with suppress(OSError):  # it has ended
            os.write(ours, b".")

    try:
        yield never_mind
    finally:
        never_mind()
        os.close(ours)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)


def _wait_and_say(line: str, seconds: float, there: int, ours: int) -> None:
    """What the forked process does; it also ends where the first one does."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        os.close(ours)
        if not select.select([there], [], [], seconds)[0]:
            os.write(sys.stderr.fileno(), f"{line}\n".encode())
    finally:
        os._exit(0)


def _can_fork() -> bool:
    """Whether this process is small, has one thread, and says errors to a file of the system."""
    if not hasattr(os, "fork") or threading.active_count() > 1 or any(name in sys.modules for name in LARGE):
        return False
    try:
        return sys.stderr.fileno() >= 0
    except (AttributeError, OSError, ValueError):
        return False
