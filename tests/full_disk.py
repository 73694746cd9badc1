"""A disk that runs full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable


def full_after(good: int) -> Callable[[int], None]:
    """An `os.fsync` that fails for want of space after so many calls."""
    calls, real = [0], os.fsync

    def fsync(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] > good:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    return fsync
