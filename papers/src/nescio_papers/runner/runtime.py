"""Seconds for the uncertainty of 1,000 pictures: each method alone, after a first call that does not count.

Of three calls the middle one; a method that takes long is called once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from nescio.scores.base import must_be_fitted
from nescio.scoring import fit, score
from nescio_papers.runner import facts
from nescio_papers.runner.cells import digest, kept_json
from nescio_papers.runner.methods import described, made
from nescio_papers.runner.parts import Model, Parts
from nescio_papers.runner.scoring import attempted
from nescio_papers.runner.study import Column, Row

PICTURES = 1000
REPEATS = 3
LONG = 10.0
"""Seconds that a call takes where no other follows."""


def measure(
    rows: list[Row],
    column: Column,
    model: Model,
    seed: int,
    parts: Parts,
    work: Path,
    check: Callable[[], None],
) -> list[dict[str, Any]]:
    """Return a cell for each row: the seconds for 1,000 pictures."""
    pictures = parts.known(column.known)
    count = min(PICTURES, len(pictures.x), parts.scale.pictures or PICTURES)
    machine = facts.machine(parts.device)["name"]

    def cell(row: Row) -> dict[str, Any]:
        method = made(row, column.known, parts.scale, seed)
        about = described(method)
        path = work / "runtime" / f"{digest(model.id, pictures.id, repr(sorted(about.items())), machine)}.json"

        def timed() -> dict[str, Any]:
            check()
            return {"seconds": _seconds(method, model, column, parts, count), "pictures": count, **about}

        kept = kept_json(path, timed)
        values = {"seconds": 1000 * kept["seconds"] / kept["pictures"]}
        return {"settings": about, "pictures": kept["pictures"], "shared": 1, "metrics": values}

    entries = [{"row": row.label, "column": column.key, "seed": seed} for row in rows]
    return [attempted(entry, partial(cell, row)) for row, entry in zip(rows, entries, strict=True)]


def _seconds(method: Any, model: Model, column: Column, parts: Parts, count: int) -> float:
    x = parts.known(column.known).floats(0, count)
    if must_be_fitted(method):
        training = parts.known(column.known, "train")
        method = fit(model.network, method, training.batches(parts.scale.training or len(training.x)), progress=False)
    score(model.network, x, method, progress=False)
    times: list[float] = []
    while len(times) < (1 if parts.scale.bundled or sum(times) > LONG else REPEATS):
        began = time.perf_counter()
        score(model.network, x, method, progress=False)
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]
