"""Work that is given up in the middle, at a place where everything can be put back.

    with stopping(lambda: nobody_waits):
        nescio.explain(model, x)                # Stopped is raised before the next forward pass once nobody waits

The exception comes where a model's own would come, before a forward pass, so that whoever preserves the model puts it
back. It is no `Exception`: nothing that tries another way after an error takes it for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_asked: ContextVar[Callable[[], bool] | None] = ContextVar("asked", default=None)


class Stopped(BaseException):
    """The work is no longer wanted."""


@contextmanager
def stopping(wanted: Callable[[], bool]) -> Iterator[None]:
    """Within the block forward passes ask `wanted` first, and raise `Stopped` where it says True."""
    token = _asked.set(wanted)
    try:
        yield
    finally:
        _asked.reset(token)


def stop_where_wanted() -> None:
    """Called before every forward pass."""
    wanted = _asked.get()
    if wanted is not None and wanted():
        raise Stopped
