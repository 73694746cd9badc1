"""Something fitted, in a folder: its tensors in a safetensors file, and a record in JSON with all the rest.

    NAME.json                       the record, with the name, size and sha256 of the file of tensors
    state-<sha256>.safetensors      the tensors

The file of tensors is named after its content, and the record is replaced last, in one step: a save that is cut off
leaves what was there before. No code is read or run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nescio._common.json_files import json_object
from nescio._common.lazy_imports import need
from nescio.data.atomic import replacing
from nescio.types import InputError

_TENSORS = re.compile(r"state-([0-9a-f]{64})\.safetensors")


@dataclass(frozen=True)
class Bundle:
    """A kind of folder: the file of the record, the format that is written in it with its version, and its name."""

    record: str
    format: str
    version: int
    what: str

    def write(self, folder: str | os.PathLike[str], record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Write record and tensors to the folder, which is made where it is missing; what it held is replaced."""
        content = need("safetensors.torch", "files").save(
            {name: t.detach().to("cpu").contiguous().clone() for name, t in tensors.items()}  # tied ones apart
        )
        digest = hashlib.sha256(content).hexdigest()
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {place}: {error.strerror or error}") from error
        file = place / f"state-{digest}.safetensors"
        with replacing(file) as part:
            part.write_bytes(content)
        held = {"file": file.name, "bytes": len(content), "sha256": digest}
        text = json.dumps({"format": self.format, "version": self.version, **record, "tensors": held}, indent=2)
        with replacing(place / self.record) as part:
            part.write_text(text + "\n", encoding="utf-8")
        for old in place.iterdir():
            if _TENSORS.fullmatch(old.name) and old.name != file.name:
                old.unlink(missing_ok=True)

    def read(self, folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The record and the tensors of a folder, checked to be whole."""
        place = Path(folder)
        record = self._record(place)
        return record, self._tensors(place, record.get("tensors"))

    def _record(self, place: Path) -> dict[str, Any]:
        file = place / self.record
        if not file.is_file():
            raise InputError(
                f"expected a folder that a {self.what} was saved to, but there is no {file}; check the path"
            )
        expected = f"a saved {self.what} of nescio"
        record = json_object(file, expected, f"it is damaged: save the {self.what} again")
        if record.get("format") != self.format:
            raise InputError(f"expected {expected} in {file}, got another file")
        if record.get("version") != self.version:
            older = isinstance(record.get("version"), int) and record["version"] < self.version
            remedy = f"fit and save the {self.what} again" if older else "update nescio"
            raise InputError(f"expected version {self.version} in {file}, got {record.get('version')!r}; {remedy}")
        return record

    def _tensors(self, place: Path, held: Any) -> dict[str, Tensor]:
        name = str(held.get("file")) if isinstance(held, dict) else ""
        if not _TENSORS.fullmatch(name):
            raise InputError(f"expected {place / self.record} to name its file of tensors, got {held!r}; save it again")
        file = place / name
        if not file.is_file():
            raise InputError(f"expected the tensors in {file}, but it is missing; copy the whole folder")
        content = file.read_bytes()
        if len(content) != held.get("bytes") or hashlib.sha256(content).hexdigest() != held.get("sha256"):
            raise InputError(
                f"expected {held.get('bytes')} bytes in {file} as they were saved, got {len(content)} that are not the "
                f"same: it was cut short or changed; copy the folder again, or save the {self.what} again"
            )
        result: dict[str, Tensor] = need("safetensors.torch", "files").load(content)
        return result
