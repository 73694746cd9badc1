"""Runs again of early files whose commit was not recorded: how far the numbers moved, and what was expected of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from claims_labels import joined
from results import files

from nescio_papers import reproduce
from nescio_papers.runner.compare import table
from nescio_papers.runner.study import FULL_NAMES as NAMES

STUDIES = ("table2", "table4", "table6", "ua-table1", "ua-table2")
"""The early files; the protocols name all but the last."""
SINCE = "2026-11-19T20:41"
"""When the expectations were written down: later runs are the ones that they speak of."""
BOUNDS = {"raulc": 0.005, "auroc": 1.0, "murr2": 0.05, "murr5": 0.05, "acc": 2.0, "nll": 0.1}
"""How far a mean over seeds was to move at most, where something was expected of it."""
WORDS = {
    "raulc": "rAULC",
    "auroc": "AUROC",
    "murr2": "MURR",
    "murr5": "MURR",
    "acc": "accuracy",
    "nll": "NLL",
}
"""What the page calls these numbers."""
FEW = 2
"""So many that moved further in a study are each named."""
APART = ("A patch that is known",)
"""A part of which nothing was expected."""


@dataclass(frozen=True)
class Move:
    """A number that was there before and is there again."""

    study: str
    row: str
    column: str
    metric: str
    before: float
    after: float

    @property
    def beyond(self) -> bool:
        """Whether it moved by more than was expected."""
        return self.far > BOUNDS[self.metric]

    @property
    def far(self) -> float:
        """By how much it moved."""
        return abs(self.after - self.before)

    def told(self, where: bool = True) -> str:
        """What moved, from where to where."""
        digits = 1 if self.metric in ("auroc", "acc") else 3
        of = NAMES[self.column.partition("→")[0]]
        study = f" in `{self.study}`" if where else f", {WORDS[self.metric]}"
        moved = f"{self.before:.{digits}f} → {self.after:.{digits}f}"
        return (
            f"{self.row} on {of}{study} ({moved})"
            if where
            else f"{self.row} on {of}{study} {moved}"
        )


def _values(runs: list[Any]) -> dict[tuple[str, str, str, str], float]:
    """Means over seeds of runs that are joined, by the title of the part, row, column and metric."""
    (result,) = reproduce.joined(runs)
    return {
        (part["title"], line.label, column, metric): value.mean
        for part in result["parts"]
        for line in table(part, result["scale"]).lines
        for (column, metric), value in line.values.items()
        if value.mean is not None
    }


def moves() -> tuple[list[Move], dict[str, list[str]]]:
    """What moved, and the data sets that were not run again, by study."""
    made: list[Move] = []
    left: dict[str, list[str]] = {}
    for study in STUDIES:
        every = [reproduce.load(path) for path in files(study)]
        old = [run for run in every if run["started"] < SINCE]
        new = [run for run in every if run["started"] >= SINCE]
        before, after = (_values(runs) if runs else {} for runs in (old, new))
        made += [
            Move(study, row, column, metric, before[place], value)
            for place, value in after.items()
            for title, row, column, metric in (place,)
            if place in before and metric in BOUNDS and title not in APART
        ]
        done, known = (
            {column.partition("→")[0]: None for _, _, column, _ in some} for some in (after, before)
        )
        left[study] = [one for one in known if one not in done]
    return made, left


def again() -> str:
    """What is said of it on the page; nothing where nothing was run again."""
    made, _ = moves()
    if not made:
        return ""
    every = list(dict.fromkeys(m.study for m in made))
    studies = joined([f"`{one}`" for one in every])
    sets = joined([NAMES[one] for one in {m.column.partition("→")[0]: None for m in made}])
    bounds = {WORDS[m.metric]: BOUNDS[m.metric] for m in made}
    words = _of(bounds) + (
        ", where MURR is the share of doubt that goes in the blurring test"
        if "MURR" in bounds
        else ""
    )
    return (
        f"Of some early files the commit was not recorded. So {studies} "
        f"{'was' if len(every) == 1 else 'were'} run again on {sets}, "
        "and the page has the new numbers. "
        f"Expected was that of {len(made)} means over seeds none moves by more than {words}: "
        f"{_came_out(made, bounds)}"
    )


def _came_out(made: list[Move], bounds: Mapping[str, float]) -> str:
    """Whether it did, and by how much the others moved."""
    beyond, rest = ([m for m in made if m.beyond == one] for one in (True, False))
    failed = [
        told(own, sum(m.study == study for m in made))
        for study in STUDIES
        if (own := [m for m in beyond if m.study == study])
    ]
    most = {WORDS[m.metric]: m.far for m in sorted(rest, key=lambda m: m.far)}
    moved = _of({name: most[name] for name in bounds if name in most})
    return (
        f"that fails for {joined(failed)}. The others" if failed else "so it is. They"
    ) + f" moved by at most {moved}."


def told(beyond: list[Move], count: int) -> str:
    """What moved further than expected in a study: each where there are few, else how many, and the furthest."""
    if len(beyond) <= FEW:
        return joined([m.told() for m in beyond])
    furthest = max(beyond, key=lambda m: m.far / BOUNDS[m.metric])
    return (
        f"{len(beyond)} of {count} in `{furthest.study}` (furthest: {furthest.told(where=False)})"
    )


def _of(some: dict[str, float]) -> str:
    """Numbers with what they are of, as words."""
    return joined([f"{value:.1g} ({name})" for name, value in some.items()])


def not_again() -> list[str]:
    """What could not be run again, studies with the same data sets together."""
    _, left = moves()
    by_sets: dict[tuple[str, ...], list[str]] = {}
    for study, sets in left.items():
        if sets:
            by_sets.setdefault(tuple(sets), []).append(f"`{study}`")
    return [
        f"{joined(studies)} on {joined([NAMES[one] for one in sets])}"
        for sets, studies in by_sets.items()
    ]
