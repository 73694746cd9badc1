"""A progress bar that shows itself only when there is something to wait for.

Left to itself (show=None) a bar appears on standard error after two seconds, and only in a terminal. True shows it
at once and everywhere and lets it stand, False never. Without tqdm there is no bar, and the work goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """What moves on."""

    def update(self, n: int, /) -> object:
        """Move on by n steps."""


class _Silent:
    def update(self, n: int, /) -> None:
        pass


@contextmanager
def bar(total: int | None, *, show: bool | None = None, description: str = "", unit: str = "input") -> Iterator[Bar]:
    """A bar over `total` steps (None: not known) that is closed when the block is left."""
    wanted = sys.stderr is not None and sys.stderr.isatty() if show is None else show
    if wanted:
        try:
            from tqdm import tqdm
        except ImportError:
            wanted = False
    if not wanted:
        yield _Silent()
        return
    delay = 2.0 if show is None else 0.0
    with tqdm(total=total, desc=description, unit=f" {unit}", delay=delay, leave=bool(show), file=sys.stderr) as shown:
        yield shown
