"""Results as JSON: one file a run, under a new name each time, so that none is ever overwritten.

A study need not be run at once: runs of it with other data, other seeds or more time can be joined for one page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nescio.types import InputError
from nescio_papers.runner.cells import write_json
from nescio_papers.runner.scoring import OVER

FOLDER = Path("papers/results")
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
    """Read results that `save` wrote."""
    try:
        results = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"expected results at {path}, but they cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected results as JSON, but {path} is none: {error}") from error
    if not isinstance(results, dict) or results.get("format") != FORMAT or "parts" not in results:
        raise InputError(f"expected results of `nescio reproduce` (format {FORMAT}) in {path}, but it holds other JSON")
    return results


RUN = ("started", "seconds", "git", "came_with", "machine")
"""What is kept of a run that was joined with a later one; `came_with`: the commit that brought it, if it knew none."""


def joined(runs: Sequence[Results]) -> list[Results]:
    """Join runs of the same study and scale, in the order in which they were started; others stay by themselves.

    A cell is that of the latest run that has numbers for it, a figure the latest of its title. What is told of the
    machine is that of the latest run; "earlier" has the rest.
    """
    groups: dict[tuple[str, str], Results] = {}
    for run in sorted(runs, key=lambda run: run["started"]):
        key = run["study"], run["scale"]
        groups[key] = _join(groups[key], run) if key in groups else run
    first = {(run["study"], run["scale"]): None for run in runs}
    return [groups[key] for key in first]


def _join(old: Results, new: Results) -> Results:
    parts = []
    before = {part["title"]: part for part in old["parts"]}
    for part in new["parts"]:
        cells = {_place(cell): cell for cell in before.get(part["title"], {}).get("cells", [])}
        labels = {row["label"] for row in part["rows"]}
        for cell in part["cells"]:
            if "metrics" in cell or "metrics" not in cells.get(_place(cell), {}):
                cells[_place(cell)] = cell
        kept = [cell for cell in cells.values() if cell["row"] in labels]
        parts.append({**part, "cells": [cell for cell in kept if "metrics" in cell or not _done(cell, kept)]})
    models = {(model["plan"], model["seed"]): model for run in (old, new) for model in run["models"]}
    sets = {one["name"]: one for run in (old, new) for one in run["sets"]}
    figures = {figure["title"]: figure for run in (old, new) for figure in run.get("figures", [])}
    seeds = {
        plan: sorted({*old["settings"]["seeds"].get(plan, ()), *new["settings"]["seeds"].get(plan, ())})
        for plan in {**old["settings"]["seeds"], **new["settings"]["seeds"]}
    }
    left = [cell for part in parts for cell in part["cells"] if cell.get("reason") == OVER]
    return {
        **new,
        "settings": {**new["settings"], "seeds": seeds},
        "models": list(models.values()),
        "sets": list(sets.values()),
        "figures": list(figures.values()),
        "complete": not left,
        "parts": parts,
        "earlier": [*old.get("earlier", []), {key: old[key] for key in RUN if key in old}],
    }


def _place(cell: Any) -> tuple[str, str, str]:
    return cell["row"], cell["column"], str(cell["seed"])


def _done(cell: Any, cells: list[Any]) -> bool:
    """Return whether another seed of the same row and column has numbers: the reason for this one then says little."""
    return any("metrics" in other and _place(other)[:2] == _place(cell)[:2] for other in cells)
