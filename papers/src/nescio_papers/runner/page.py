"""The page of one or several runs: ours beside the paper's, number by number, in one file that opens offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from nescio.report.content import Column, ascending, descending
from nescio.report.render import render as render_template
from nescio_papers.runner.chart import Chart, Points, chart_content
from nescio_papers.runner.compare import Line, Table, Value, table
from nescio_papers.runner.results import Results
from nescio_papers.runner.study import METRICS

CURVES = ("REGrad*, k = 2", "ExGrad, L2", "Entropy", "Random")


@dataclass(frozen=True)
class Number:
    """One number of a table in words; `missing` and `reason` say why there is none."""

    key: float
    mean: str = ""
    spread: str = ""
    paper: str = ""
    difference: str = ""
    inside: bool = False
    missing: str = ""
    reason: str = ""


@dataclass(frozen=True)
class NumberRow:
    """A row of a table: `stands` says that it stands for a row of the paper."""

    label: str
    note: str
    stands: bool
    values: Sequence[Number]
    rank: int | None
    rank_among: int | None
    paper_rank: int | None


@dataclass(frozen=True)
class PartContent:
    """One table with its charts; `averaged` names the columns that averages are over."""

    title: str
    summary: str
    charts: Sequence[Chart]
    columns: Sequence[Column]
    rows: Sequence[NumberRow]
    averaged: str
    printed: str
    reasons: Sequence[str]


@dataclass(frozen=True)
class RunContent:
    """One run of a study: its tables, its figures, and how it was run."""

    title: str
    scale: str
    about: str
    complete: bool
    parts: Sequence[PartContent]
    figures: Sequence[Mapping[str, str]]
    notes: Sequence[str]
    facts: Mapping[str, str]
    models: Mapping[str, str]
    sets: Mapping[str, str]


@dataclass(frozen=True)
class ResultsPage:
    """The whole page."""

    names: str
    runs: Sequence[RunContent]


def render(results: Results | Sequence[Results]) -> str:
    """Return results as one self-contained HTML page.

    Args:
        results: Those of one study, or of several.

    Returns:
        The HTML, which opens offline.
    """
    several = [results] if isinstance(results, dict) else list(results)
    names = ", ".join(f"{one['study']} ({one['scale']})" for one in several)
    content = ResultsPage(names, [_run(one) for one in several])
    return render_template("results.html.j2", __package__ or "", page=content)


def _run(results: Results) -> RunContent:
    models = {
        f"{one['plan']}, seed {one['seed']}": f"{100 * one['accuracy']:.2f} % right on the test set; trained in "
        f"{one['seconds']:.0f} s; {one['about']}"
        for one in results["models"]
    }
    return RunContent(
        title=f"{results['study']}: {results['title']}",
        scale=results["scale"],
        about=results["about"],
        complete=results["complete"],
        parts=[_part(part, table(part, results["scale"])) for part in results["parts"]],
        figures=results.get("figures", []),
        notes=results["notes"],
        facts=_facts(results),
        models=models,
        sets={one["name"]: f"{one['pictures']} pictures; {one['about']}" for one in results["sets"]},
    )


def _part(part: Mapping[str, Any], compared: Table) -> PartContent:
    higher = [METRICS[name].higher for name in compared.metrics] * len(compared.columns)
    higher += [True] * len(compared.averages)
    columns = ascending("method")
    for head, up in zip(compared.heads, higher, strict=True):
        columns += descending(head) if up else ascending(head)
    columns += ascending("rank")
    return PartContent(
        title=compared.title,
        summary=compared.summary,
        charts=[one for one in charts(part, compared) if one is not None],
        columns=columns,
        rows=[_row(line, compared) for line in compared.lines],
        averaged=", ".join(column["label"] for column in compared.columns if column["key"] in compared.common),
        printed=compared.printed,
        reasons=compared.reasons,
    )


def _row(line: Line, compared: Table) -> NumberRow:
    numbers = [_number_of(value) for value in compared.numbers(line)]
    return NumberRow(line.label, line.note, line.stands, numbers, line.rank, line.rank_among, line.paper_rank)


def _number_of(value: Value) -> Number:
    digits = value.metric.digits
    if value.mean is None:
        paper = "" if value.paper is None else _digits(value.paper, digits)
        return Number(-1e9, paper=paper, missing=value.missing, reason=value.reason)
    mean, spread = _digits(value.mean, digits), "" if value.sd is None else f"±{value.sd:.{digits}f}"
    if value.difference is None:
        return Number(value.mean, mean, spread)
    paper = _digits(value.paper or 0.0, digits)
    paper += "" if value.paper_sd is None else f" ±{value.paper_sd:.{digits}f}"
    return Number(value.mean, mean, spread, paper, _digits(value.difference, digits, signed=True), bool(value.inside))


def charts(part: Mapping[str, Any], compared: Table) -> list[Chart | None]:
    """Return the curves of a part that asks for them.

    Args:
        part: The part of the results.
        compared: The table that was made from it.

    Returns:
        A chart for each metric, or for each data set of active learning; None where there is nothing to draw.
    """
    if part["task"] == "active":
        return _curves(part)
    if not part["line"]:
        return []
    settings: dict[str, Mapping[str, Any]] = {cell["row"]: cell.get("settings", {}) for cell in part["cells"]}
    drawn = []
    for name in (name for name in compared.metrics if name != "seconds"):
        series: dict[str, list[tuple[float, float, str]]] = {}
        for line in compared.lines:
            if name == "rho" and line.label == part["reference"]:
                continue  # it is compared with itself
            y = _mean(line, compared, name)
            own = settings.get(line.label, {})
            if part["line"] == "seconds":
                x, kind = _mean(line, compared, "seconds"), "REGrad*"
            else:
                paired = own.get("method") == "paired_regrad"
                x, kind = own.get("copies" if paired else "samples"), "pairs" if paired else "independent"
            if y is not None and isinstance(x, int | float) and x > 0:
                series.setdefault(kind, []).append((float(x), y, line.label))
        words = "seconds for 1,000 pictures" if part["line"] == "seconds" else "noisy copies"
        drawn.append(chart_content(series, words, f"{METRICS[name].label}, mean over columns", log=True))
    return drawn


def _mean(line: Line, compared: Table, name: str) -> float | None:
    values = [line.values[key, name].mean for key in compared.common if (key, name) in line.values]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _curves(part: Mapping[str, Any]) -> list[Chart | None]:
    """Accuracy by number of labels, for a few rows of each data set."""
    drawn = []
    for column in part["columns"]:
        cells = [cell for cell in part["cells"] if cell["column"] == column["key"] and "curve" in cell]
        series: dict[str, Points] = {}
        for label in CURVES:
            runs = [cell["curve"] for cell in cells if cell["row"] == label]
            if runs:
                means = [100 * fmean(step) for step in zip(*(run["acc"] for run in runs), strict=True)]
                series[label] = [(n, y, f"{n} labels") for n, y in zip(runs[0]["labels"], means, strict=True)]
        drawn.append(chart_content(series, f"labels, {column['label']}", "ACC"))
    return drawn


def _facts(results: Results) -> dict[str, str]:
    """How the results were made."""
    git, machine = results["git"], results["machine"]
    earlier = [f"{run['started']} ({run['seconds']:.0f} s)" for run in results.get("earlier", [])]
    seeds = results["settings"]["seeds"].items()
    return {
        "command": f"nescio reproduce {results['study']} --scale {results['scale']}",
        "started": f"{results['started']}, {results['seconds']:.0f} s in this run",
        **({"joined with runs of": ", ".join(earlier)} if earlier else {}),
        "sources": "in no repository"
        if git is None
        else f"commit {git['commit']}{', changed since' if git['dirty'] else ''}",
        "machine": f"{machine['name']} ({machine['device']}), {machine['platform']}",
        "versions": ", ".join(f"{name} {number}" for name, number in results["versions"].items()),
        "seeds": "; ".join(f"{plan}: {', '.join(map(str, own))}" for plan, own in seeds),
    }


def _digits(value: float, digits: int, signed: bool = False) -> str:
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")
