"""Ours beside the paper's: means over seeds, differences, ranks, and one sentence that says how it came out.

    mean, sd     over the seeds (sd with n − 1; none for one seed)
    inside       |mean − paper| ≤ the paper's ±, both as printed
    average      over the columns that the paper has and that were run here, and only for rows that have all of them
    rank         1 + how many rows have a better average

Of rows with the same choice (L1 and L2 of a baseline) the one with the better average *stands* for the paper's row.
Everything is computed from the results alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from nescio._common.formatting import count
from nescio_papers.runner.study import METRICS, Metric

PARTIAL = "not all were run"
"""Why an average is missing."""
OURS = ("REGrad*", "Ours", "REGrad + layer-selective + perturb")


@dataclass(frozen=True)
class Value:
    """One number of a table, in the units that are shown; mean=None where it was not run, with the reason."""

    metric: Metric
    mean: float | None = None
    sd: float | None = None
    seeds: int = 0
    paper: float | None = None
    paper_sd: float | None = None
    reason: str = ""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.mean is None or self.paper is None else self.mean - self.paper

    @property
    def missing(self) -> str:
        """The word that stands in the place of a number that is missing."""
        return "–" if self.reason == PARTIAL else "failed" if self.reason.startswith("failed") else "not run"

    @property
    def inside(self) -> bool | None:
        """Whether our mean lies within the paper's ±, None where there is nothing to compare."""
        if self.difference is None or self.mean is None or self.paper is None or self.paper_sd is None:
            return None
        return abs(round(self.mean, self.metric.digits) - self.paper) <= self.paper_sd + 1e-9


@dataclass(frozen=True)
class Line:
    """A row: its numbers by (column, metric), its averages by metric ("" for all together), and its ranks."""

    label: str
    values: Mapping[tuple[str, str], Value]
    averages: Mapping[str, Value]
    paper_row: str | None
    ranked: bool
    choice: str
    note: str
    merit: float | None = None
    stands: bool = False
    rank: int | None = None
    rank_among: int | None = None
    paper_rank: int | None = None

    @property
    def inside(self) -> tuple[int, int]:
        """How many numbers lie within the paper's ±, of how many."""
        known = [value.inside for value in self.values.values() if value.inside is not None]
        return sum(known), len(known)


@dataclass(frozen=True)
class Table:
    """A part of the results, ready to be shown."""

    title: str
    columns: Sequence[Mapping[str, str]]
    metrics: Sequence[str]
    lines: Sequence[Line]
    common: Sequence[str]
    """The columns that averages are over."""
    compared: bool
    summary: str
    reasons: Sequence[str]
    printed: str = ""
    """The averages that the paper prints, where they are over other columns than ours."""

    @property
    def averages(self) -> list[str]:
        """The metrics that have an average; "" stands for all together."""
        return list(self.lines[0].averages) if self.lines else []

    @property
    def heads(self) -> list[str]:
        """The heads of the columns of numbers."""
        heads = [f"{column['label']} {METRICS[name].label}" for column in self.columns for name in self.metrics]
        return heads + [f"average {METRICS[name].label if name else ''}".strip() for name in self.averages]

    def numbers(self, line: Line) -> list[Value]:
        """Return the numbers of a row, in the order of `heads`."""
        values = [line.values[column["key"], name] for column in self.columns for name in self.metrics]
        return values + [line.averages[name] for name in self.averages]


def table(part: Mapping[str, Any], scale: str) -> Table:
    """Return the table of a part of the results. At the smoke scale nothing is compared with the paper."""
    compared = bool(part["paper"]) and scale != "smoke"
    paper = part["paper"] if compared else {}
    keys = [column["key"] for column in part["columns"]]
    cells: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for cell in part["cells"]:
        cells.setdefault((cell["row"], cell["column"]), []).append(cell)
    run = {column for (_, column), some in cells.items() if any("metrics" in cell for cell in some)}
    printed = {column for line in paper.values() for column in line}
    common = [key for key in keys if key in run and (not paper or key in printed)]
    lines = [_line(row, part, cells, paper, keys, common) for row in part["rows"]]
    lines = _ranked(lines, part, paper, common)
    # the first sentence says why; what follows is advice to whoever ran it
    short = [f"{cell['column']}: {cell['reason'].split('. ')[0]}" for cell in part["cells"] if "reason" in cell]
    reasons = list(dict.fromkeys(short))
    shown = Table(part["title"], part["columns"], part["metrics"], lines, common, compared, "", reasons)
    return replace(shown, summary=_summary(shown, scale), printed=_printed(paper, common))


def _printed(paper: Mapping[str, Any], common: Sequence[str]) -> str:
    ours = next((row for row in OURS if "avg" in paper.get(row, {})), None)
    if ours is None or len(common) == len(paper[ours]) - 1:
        return ""
    numbers = " and ".join(f"{mean:g}" for mean, _ in paper[ours]["avg"])
    return f"Over all of its columns the paper prints an average of {numbers} for {ours}."


def summary(part: Mapping[str, Any], scale: str) -> str:
    """Return what a part of the results says, in a sentence or two."""
    return table(part, scale).summary


def _line(
    row: Mapping[str, Any],
    part: Mapping[str, Any],
    cells: Mapping[tuple[str, str], list[Mapping[str, Any]]],
    paper: Mapping[str, Any],
    keys: Sequence[str],
    common: Sequence[str],
) -> Line:
    names = part["metrics"]
    printed = paper.get(row["paper"] or "", {})
    values = {}
    for key in keys:
        for at, name in enumerate(names):
            value = _value(name, cells.get((row["label"], key), []))
            if key in printed and at < len(printed[key]):  # metrics of our own come last
                value = replace(value, paper=printed[key][at][0], paper_sd=printed[key][at][1])
            values[key, name] = value
    groups: dict[str, list[str]] = {"": names} if part["averages"] != "each" else {name: [name] for name in names}
    averages = {}
    if part["averages"]:
        for group, members in groups.items():
            chosen = [values[key, name] for key in common for name in members]
            averages[group] = replace(_average(chosen), paper=_paper_average(chosen))
    main = names if part["averages"] == "joint" else names[:1]
    merit = _average([values[key, name] for key in common for name in main]).mean
    if merit is not None and not METRICS[main[0]].higher:
        merit = -merit
    stands_for = row["paper"] if part["paper"] else None
    return Line(row["label"], values, averages, stands_for, row["ranked"], row["choice"], row["note"], merit)


def _value(name: str, cells: list[Mapping[str, Any]]) -> Value:
    metric = METRICS[name]
    numbers = [metric.scale * cell["metrics"][name] for cell in cells if name in cell.get("metrics", {})]
    reason = next((cell["reason"] for cell in cells if "reason" in cell), "" if numbers else "not run")
    if not numbers:
        return Value(metric, reason=reason)
    return Value(metric, fmean(numbers), stdev(numbers) if len(numbers) > 1 else None, len(numbers), reason=reason)


def _average(values: list[Value]) -> Value:
    metric = values[0].metric if values else METRICS["auroc"]
    means = [value.mean for value in values if value.mean is not None]
    return Value(metric, fmean(means) if values and len(means) == len(values) else None, reason=PARTIAL)


def _paper_average(values: list[Value]) -> float | None:
    numbers = [value.paper for value in values if value.paper is not None]
    return fmean(numbers) if numbers and len(numbers) == len(values) else None


def _ranked(lines: list[Line], part: Mapping[str, Any], paper: Mapping[str, Any], common: Sequence[str]) -> list[Line]:
    """Return the lines with ranks, and with those marked that stand for a row of the paper."""
    merits = [line.merit for line in lines if line.merit is not None]
    best: dict[str, float] = {}
    for line in lines:
        if line.choice and line.merit is not None:
            best[line.choice] = max(best.get(line.choice, -math.inf), line.merit)
    taken: set[str] = set()
    ranked = []
    for line in lines:
        stands = line.paper_row is not None and line.ranked and line.merit is not None
        if stands and line.choice:
            stands = line.merit == best[line.choice] and line.choice not in taken
            taken |= {line.choice} if stands else set()
        rank = None if line.merit is None else 1 + sum(other > line.merit for other in merits)
        ranked.append(replace(line, stands=stands, rank=rank))
    names = part["metrics"] if part["averages"] == "joint" else part["metrics"][:1]
    sign = 1 if METRICS[names[0]].higher else -1
    theirs = {}
    for line in ranked:
        if line.stands and line.paper_row in paper:
            values = [line.values[key, name].paper for key in common for name in names]
            theirs[line.paper_row] = sign * fmean(value for value in values if value is not None)
    ours = [line.merit for line in ranked if line.stands and line.merit is not None]
    return [
        replace(
            line,
            rank_among=1 + sum(other > (line.merit or 0.0) for other in ours),
            paper_rank=1 + sum(other > theirs[line.paper_row] for other in theirs.values())
            if line.paper_row in theirs
            else None,
        )
        if line.stands
        else line
        for line in ranked
    ]


def _summary(shown: Table, scale: str) -> str:
    """Return what the numbers say, in a sentence or two."""
    ranked = [line for line in shown.lines if line.merit is not None]
    if not ranked or not shown.common:
        return "Nothing of this table could be run, or no row has all of its columns."
    first = min(ranked, key=lambda line: line.rank or 0)
    digits = METRICS[shown.metrics[0]].digits
    words = []
    if scale == "smoke":
        words.append("A test of the machinery on stand-in data: the numbers say nothing about the methods.")
    standing = [line for line in ranked if line.stands]
    star = next((line for line in standing if line.paper_row in OURS), None)
    if star is not None and shown.compared:
        text = f"{star.label} is {_place(star.rank_among)} of the {len(standing)} methods of the paper that were run"
        if star.paper_rank is not None:
            text += f" ({_place(star.paper_rank)} in the paper)"
        average = next(iter(star.averages.values()), None)
        if average is not None and average.mean is not None and average.paper is not None:
            text += (
                f", with an average of {average.mean:.{digits}f} against the paper's {average.paper:.{digits}f} "
                f"for the same {count(len(shown.common), 'column')}"
            )
        words.append(f"{text}.")
    if standing and shown.compared:
        inside = sum(line.inside[0] for line in standing)
        total = sum(line.inside[1] for line in standing)
        if total:
            words.append(f"{inside} of {total} compared numbers lie within the paper's ±.")
        gaps = [abs(v.difference) for line in standing for v in line.values.values() if v.difference is not None]
        if gaps:
            words.append(f"The mean distance from the paper's numbers is {fmean(gaps):.{digits}f}.")
    value = abs(first.merit or 0.0)
    sign = "" if (first.merit or 0.0) >= 0 or not METRICS[shown.metrics[0]].higher else "−"
    words.append(f"Of all {len(ranked)} rows {first.label} comes out first, with {sign}{value:.{digits}f} on average.")
    if len(shown.common) > 1:
        wins = sum(_leads(shown, first, key) for key in shown.common)
        words.append(f"It is first in {wins} of the {len(shown.common)} columns.")
    return " ".join(words)


def _leads(shown: Table, line: Line, key: str) -> bool:
    """Return whether no row is better in a column, by the first metric."""
    name = shown.metrics[0]
    sign = 1 if METRICS[name].higher else -1
    known = [value for other in shown.lines if (value := other.values[key, name].mean) is not None]
    own = line.values[key, name].mean
    return own is not None and sign * own >= max(sign * value for value in known)


def _place(rank: int | None) -> str:
    number = rank or 0
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"
