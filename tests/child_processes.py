"""The children of a process that tests have started."""

from __future__ import annotations

import time


def children(process: int) -> list[int]:
    """Both processes, once they are there: the first may have read much before the second began."""
    found: list[int] = []
    end = time.monotonic() + 10
    while len(found) < 2 and time.monotonic() < end:
        with open(f"/proc/{process}/task/{process}/children") as file:
            found = [int(one) for one in file.read().split()]
    return found
