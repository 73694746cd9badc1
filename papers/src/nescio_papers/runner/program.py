"""Studies that are no table of scores: a program makes their numbers and pictures; run, file and page are the same.

Such a study is declared as `STUDY = Study(name, title, parts, notes, program)`. Its parts say which tables
there are (task "program"), with the paper's numbers where it has them; `program(job)` gives the cells of each part, in
the form of every other study: {"row", "column", "seed"} with {"metrics": {name: value}}, or with {"reason": text} where
it was not run. Whatever took time is kept under `job.work`, so that a run that was cut off goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nescio.types import NescioError
from nescio_papers.runner.parts import Parts
from nescio_papers.runner.scoring import failure
from nescio_papers.runner.study import Part


@dataclass(frozen=True)
class Job:
    """What a program is given: data and models, the seeds asked for (None: its own), and where to keep what it made."""

    parts: Parts
    seeds: tuple[int, ...] | None
    work: Path
    check: Callable[[], None]
    """Raises `TimeOver` when the time is over; to be called between steps."""
    say: Callable[[str], object]
    sets: tuple[str, ...] = ()
    """The known data sets asked for; empty: all."""


@dataclass(frozen=True)
class Figure:
    """A picture with its words: image is a data address (`nescio.report.figure_svg`) or the text of an <svg>."""

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
    notes: Sequence[str] = ()
    """What this run has to say beside the study's own notes."""


def why_not(error: Exception) -> str:
    """Return why a part, or a column of it, was not run."""
    return f"not run: {' '.join(str(error).split())}" if isinstance(error, NescioError) else failure(error)


NOT_ASKED = "not run: this data set was not asked for"


def not_run(part: Part, reason: str) -> list[dict[str, Any]]:
    """Return cells for a part of which nothing was run."""
    return [
        {"row": row.label, "column": column.key, "seed": "all", "reason": reason}
        for column in part.columns
        for row in part.rows
    ]
