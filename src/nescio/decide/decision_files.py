"""Decisions as JSON files: written whole or not at all, and read with a clear word about what is wrong.

A file is one object with ``format`` ("nescio policy", …), ``version`` and what the writer puts beside them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nescio.data import replacing
from nescio.types import InputError

VERSION = 1


def write(path: str | Path, form: str, record: Mapping[str, Any]) -> None:
    """Write the record; an older file of that name stays until the new one is on disk."""
    text = json.dumps({"format": form, "version": VERSION, **record}, indent=1, allow_nan=False, ensure_ascii=False)
    with replacing(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read(path: str | Path, form: str) -> dict[str, Any]:
    """The record of a file that `write` wrote."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"expected a file of the format '{form}' at {path}, but there is none") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected a file of the format '{form}', but {path} is no JSON, or was cut short") from error
    if not isinstance(record, dict) or record.get("format") != form:
        held = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise InputError(f"expected a file of the format '{form}', but {path} holds {held!r}")
    version = record.get("version")
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise InputError(f"{path} has version {version!r}, but up to {VERSION} can be read here; update nescio")
    return record


def damaged(path: str | Path, why: object) -> InputError:
    """The error for a file whose fields do not fit together."""
    return InputError(f"{path} is damaged: {why}; write it again, or take it from a copy")
