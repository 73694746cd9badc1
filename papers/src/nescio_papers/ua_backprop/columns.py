"""The tables of a study of maps, column by column: one that cannot be run has its reason in every cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nescio_papers.runner.parts import Pictures
from nescio_papers.runner.program import NOT_ASKED, Job, not_run, why_not
from nescio_papers.runner.study import Column, Part
from nescio_papers.ua_backprop.case import Case

Cells = list[dict[str, Any]]


@dataclass
class Told:
    """What is told of the models and data of a run."""

    models: list[dict[str, Any]] = field(default_factory=list)
    sets: list[dict[str, Any]] = field(default_factory=list)

    def add(self, case: Case, *pictures: Pictures) -> None:
        """Tell of an ensemble's networks and of sets, each once."""
        self.models += [model.facts for model in case.models if model.facts not in self.models]
        self.sets += [one.facts for one in pictures if one.facts not in self.sets]

    @property
    def seeds(self) -> dict[str, list[int]]:
        """The seeds of each plan."""
        return {one["plan"]: [m["seed"] for m in self.models if m["plan"] == one["plan"]] for one in self.models}


def by_column(
    job: Job, parts: Sequence[Part], columns: Sequence[Column], run: Callable[[Column], Sequence[Cells]]
) -> list[Cells]:
    """Return the cells of every part, from a function that gives those of one column."""
    cells: list[Cells] = [[] for _ in parts]
    for column in columns:
        reason = NOT_ASKED if job.sets and column.known not in job.sets else None
        column_cells: Sequence[Cells] = []
        try:
            column_cells = [] if reason else run(column)
        except Exception as error:  # the other columns go on
            reason = why_not(error)
            job.say(f"{column.label}: {reason.split('. ')[0]}")
        if reason:
            column_cells = [not_run(replace(part, columns=(column,)), reason) for part in parts]
        for kept, new in zip(cells, column_cells, strict=True):
            kept += new
    return cells
