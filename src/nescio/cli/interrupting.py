"""Ctrl-C and SIGTERM: what is kept is said, and the command that goes on from there."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nescio import progress
from nescio.batch.interrupted import Interrupted

__all__ = ["Interrupted", "Terminated", "again", "message", "status", "terminable", "until_ended"]


class Terminated(KeyboardInterrupt):
    """Report that SIGTERM came."""


@contextmanager
def terminable() -> Iterator[None]:
    """Turn SIGTERM into an interrupt within the block, so that what is kept is put in order and said."""
    try:
        before = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def until_ended(words: str = "Ended.") -> Iterator[None]:
    """Run a server within the block until Ctrl-C or SIGTERM, and then say these words."""
    progress.waiting()
    try:
        with terminable():  # uvicorn gives the signal back to us when all is done
            yield
    except KeyboardInterrupt:
        print(words, file=sys.stderr)


def message(error: KeyboardInterrupt, arguments: Sequence[str]) -> str:
    """Return what is said of an interrupt, and how to go on.

    Args:
        error: The interrupt.
        arguments: The words after `nescio`.
    """
    if not isinstance(error, Interrupted):
        return "nescio: interrupted; nothing was written"
    words = f"nescio: interrupted; {error.words}"
    return f"{words}\nnescio: to go on: {again(arguments)}" if error.goes_on else words


def status(error: BaseException | None) -> int:
    """Return the exit status after an interrupt, as shells have it: 130, or 143 after SIGTERM."""
    while error is not None:
        if isinstance(error, Terminated):
            return 143
        error = error.__cause__ or error.__context__
    return 130


def again(arguments: Sequence[str]) -> str:
    """Return the command with these arguments, less the option that would drop the work that is kept."""
    return shlex.join(["nescio", *(one for one in arguments if not (len(one) > 3 and "--fresh".startswith(one)))])


def _terminate(number: int, frame: object) -> None:
    raise Terminated
