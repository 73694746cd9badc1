"""`FolderLock`: one run at a time in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from nescio.types import InputError


class FolderLock:
    """Hold a folder against other runs; the system lets go when the process ends, for whatever reason."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._held: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether it is held, or would be on a system, or a file system, that has such locks."""
        return self._held is not None

    def hold(self) -> None:
        """Lock it, or raise an InputError where another run does."""
        if not self.folder.is_dir():
            raise InputError(f"expected a folder to write to, but {self.folder} is a file; remove it or name another")
        try:
            import fcntl

            self._held = os.open(self.folder, os.O_RDONLY)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.release()
            raise InputError(
                f"expected no other run at work in {self.folder}, but there is one; wait for it, or name another --out"
            ) from error
        except (ImportError, OSError):
            self._held = -1 if self._held is None else self._held

    def release(self) -> None:
        """Let others in."""
        if self._held is not None and self._held >= 0:
            os.close(self._held)
        self._held = None
