"""How large a terminal is taken to be that does not say so."""

import io
import os
import sys

import pytest

from nescio._common.terminals import assumed_size, in_terminal


def test_a_terminal_that_tells_no_size_is_taken_to_be_a_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pty, fcntl, termios = (pytest.importorskip(name) for name in ("pty", "fcntl", "termios"))
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        assert in_terminal() and assumed_size() == (80, 24)
        fcntl.ioctl(stream.fileno(), termios.TIOCSWINSZ, b"\x28\0\x96\0\0\0\0\0")
        assert assumed_size() is None
    os.close(ours)


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_what_is_no_terminal_has_no_size(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    assert assumed_size() is None and not in_terminal()
