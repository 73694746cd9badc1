"""Studies that are no table of scores: a program makes their numbers and pictures; run, file and page are the same.

A file in `reproduce/programs` declares `STUDY = Study(name, title, parts, notes, program)`. Its parts say which tables
there are (task "program"), with the paper's numbers where it has them; `program(job)` gives the cells of each part, in
the form of every other study: {"row", "column", "seed"} with {"metrics": {name: value}}, or with {"reason": text} where
it was not run. Whatever took time is kept under `job.work`, so that a run that was cut off goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nescio.reproduce.parts import Parts
from nescio.reproduce.scoring import OVER, TimeOver
from nescio.reproduce.study import Part


@dataclass(frozen=True)
class Job:
    """What a program is given: data and models, the seeds asked for (None: its own), and where to keep what it made."""

    parts: Parts
    seeds: tuple[int, ...] | None
    work: Path
    check: Callable[[], None]
    """Raises `TimeOver` when the time is over; to be called between steps."""
    say: Callable[[str], object]


@dataclass(frozen=True)
class Figure:
    """A picture with its words: image is a data address (`nescio.report.embed`) or the text of an <svg>."""

    title: str
    text: str
    alt: str
    image: str


@dataclass(frozen=True)
class Made:
    """What a program made: the cells of each part, figures, and what is told of settings, models and data."""

    cells: Sequence[Sequence[Mapping[str, Any]]]
    figures: Sequence[Figure] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    models: Sequence[Mapping[str, Any]] = ()
    """Each with plan, seed, accuracy, seconds and about."""
    sets: Sequence[Mapping[str, Any]] = ()
    """Each with name, about and pictures, their number."""


def not_run(part: Part, reason: str = OVER) -> list[dict[str, Any]]:
    """Cells for a part of which nothing was run."""
    return [
        {"row": row.label, "column": column.key, "seed": "all", "reason": reason}
        for column in part.columns
        for row in part.rows
    ]


def attempted(entry: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """The cell with what `measure` gives, or with the reason why there is nothing."""
    try:
        return {**entry, **measure()}
    except TimeOver:
        return {**entry, "reason": OVER}
    except Exception as error:
        return {**entry, "reason": f"failed: {type(error).__name__}: {' '.join(str(error).split())}"}
