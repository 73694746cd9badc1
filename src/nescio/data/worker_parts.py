"""Parts that another process writes for `nescio.data.parts`, under names that no reader takes for parts."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import NamedTuple

from nescio.data.tables import Columns, write_table


class WrittenPart(NamedTuple):
    """Say where a worker has written a part."""

    file: str
    rows: int
    sha256: str


class WorkerFolder(NamedTuple):
    """Name the folder where a worker may write parts; it can be sent to another process."""

    folder: str
    ending: str
    mark: str
    """A file by which that process knows the folder."""

    def write(self, columns: Columns) -> WrittenPart | None:
        """Write the rows of a part, for `Parts.adopt`; return None where this process does not see the folder."""
        if not Path(self.folder, self.mark).exists():
            return None
        file = Path(self.folder, token() + self.ending)
        write_table(file, columns)
        return WrittenPart(file.name, len(next(iter(columns.values()))), sha256_of(file))


def token() -> str:
    """Return a name that no reader takes for a part, and nobody else has."""
    return f".aside.{secrets.token_hex(4)}"


def sha256_of(file: Path) -> str:
    """Return the hash of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
