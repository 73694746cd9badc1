"""Results as JSON: one file a run, under a new name each time, so that none is ever overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nescio.reproduce.cells import write_json
from nescio.types import InputError

FOLDER = Path("benchmarks/results/reproduce")
FORMAT = 1
Results = dict[str, Any]


def save(results: Results, folder: str | Path = FOLDER) -> Path:
    """Write the results as `<study>-<scale>-<n>.json`, n the first number that is free, and give the path."""
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {place} for results: {error.strerror or error}") from error
    number = 1
    while True:
        path = place / f"{results['study']}-{results['scale']}-{number}.json"
        try:
            path.open("x").close()  # the name is ours from here on, also beside another run
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror or error}") from error
        write_json(path, results)
        return path


def load(path: str | Path) -> Results:
    """Results that `save` wrote."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"expected results at {path}, but they cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"expected results as JSON, but {path} is none: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or "parts" not in found:
        raise InputError(f"expected results of `nescio reproduce` (format {FORMAT}) in {path}, but it holds other JSON")
    return found
