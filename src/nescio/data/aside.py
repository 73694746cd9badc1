"""A part of a table that another process writes, under a name that counts for nothing (`nescio.data.parts`)."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import NamedTuple

from nescio.data.tables import Columns, write_table


class Written(NamedTuple):
    """A part that was written aside."""

    file: str
    rows: int
    sha256: str


class Aside(NamedTuple):
    """Where another process may write parts; it can be sent there."""

    folder: str
    ending: str
    mark: str
    """A file by which that process knows the folder."""

    def write(self, columns: Columns) -> Written | None:
        """Write the rows of a part, for `Parts.adopt`; None where this process has not that folder."""
        if not Path(self.folder, self.mark).exists():
            return None
        file = Path(self.folder, token() + self.ending)
        write_table(file, columns)
        return Written(file.name, len(next(iter(columns.values()))), sha256_of(file))


def token() -> str:
    """A name that no reader takes for a part, and nobody else has."""
    return f".aside.{secrets.token_hex(4)}"


def sha256_of(file: Path) -> str:
    """The hash of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
