"""Ctrl-C and SIGTERM: what is kept is said, and the command that goes on from there."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt):
    """Work was cut off; the words say what is kept. goes_on: whether the same command goes on from there."""

    def __init__(self, words: str, goes_on: bool = False) -> None:
        super().__init__(words)
        self.words, self.goes_on = words, goes_on


class Terminated(KeyboardInterrupt):
    """By SIGTERM."""


@contextmanager
def terminable() -> Iterator[None]:
    """Within the block SIGTERM is an interrupt too, so that what is kept is put in order and said."""
    try:
        before = signal.signal(signal.SIGTERM, _terminate)
    except ValueError:  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def message(error: KeyboardInterrupt, arguments: Sequence[str]) -> str:
    """What is said of an interrupt, and how to go on."""
    if not isinstance(error, Interrupted):
        return "nescio: interrupted; nothing was written"
    words = f"nescio: interrupted; {error.words}"
    return f"{words}\nnescio: to go on: {again(arguments)}" if error.goes_on else words


def status(error: BaseException | None) -> int:
    """130 after an interrupt, 143 after SIGTERM, as shells have it."""
    while error is not None:
        if isinstance(error, Terminated):
            return 143
        error = error.__cause__ or error.__context__
    return 130


def again(arguments: Sequence[str]) -> str:
    """The command with these arguments, less what would drop the work that is kept."""
    return shlex.join(["nescio", *(one for one in arguments if not (len(one) > 3 and "--fresh".startswith(one)))])


def _terminate(number: int, frame: object) -> None:
    raise Terminated
