"""Numbers of the committed results, by study, row and column: what the page of evidence is made of."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from nescio_papers import reproduce
from nescio_papers.runner.compare import table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "papers" / "results"
SCALES = ("paper", "quick", "small")


def files(name: str) -> list[Path]:
    """The result files of a study, of the largest scale at which it was run; of "NAME@SCALE" those of that scale."""
    name, _, scale = name.partition("@")
    for one in (scale,) if scale else SCALES:
        if found := sorted(RESULTS.glob(f"{name}-{one}-*.json"), key=_number):
            return found
    return []


def _number(path: Path) -> int:
    """The number at the end of a file's name: 10 comes after 9."""
    return int(path.stem.rpartition("-")[2])


_read: dict[str, tuple[tuple[dict[str, Any], Any], ...]] = {}


def parts(name: str) -> tuple[tuple[dict[str, Any], Any], ...]:
    """The parts of a study, with the tables made of them; runs of one study are joined."""
    if name not in _read:
        (result,) = reproduce.joined([reproduce.load(path) for path in files(name)])
        _read[name] = tuple((part, table(part, result["scale"])) for part in result["parts"])
    return _read[name]


def read() -> list[Path]:
    """The files that the numbers come from which were asked for so far, in the order of the asking."""
    return list(dict.fromkeys(path for name in _read for path in _shown(files(name))))


def _shown(paths: list[Path]) -> list[Path]:
    """Without those whose numbers were all measured again later."""
    runs = sorted(
        ((path, json.loads(path.read_text())) for path in paths), key=lambda one: one[1]["started"]
    )
    latest = {
        (part["title"], cell["row"], cell["column"], str(cell["seed"])): path
        for path, run in runs
        for part in run["parts"]
        for cell in part["cells"]
        if "metrics" in cell
    }
    return [path for path in paths if path in latest.values()]


def look_into(folder: Path) -> None:
    """Take results from another folder from now on, and forget those that were read."""
    global RESULTS
    RESULTS = folder
    _read.clear()


def lines(name: str, row: str, part: int | None = None) -> list[Any]:
    """The lines of a row in all parts, or in one."""
    found = parts(name) if part is None else parts(name)[part : part + 1]
    return [line for _, made in found for line in made.lines if line.label == row]


def cell(name: str, row: str, column: str, metric: str = "auroc", part: int | None = None) -> Any:
    """One value: its mean over seeds, and the paper's."""
    (value,) = (
        line.values[column, metric]
        for line in lines(name, row, part)
        if (column, metric) in line.values
    )
    return value


def pair(
    name: str,
    row: str,
    columns: tuple[str, ...],
    digits: int = 1,
    paper: bool = False,
    **where: Any,
) -> str:
    """Values of some columns, between slashes."""
    values = [cell(name, row, column, **where) for column in columns]
    return " / ".join(f"{(value.paper if paper else value.mean):.{digits}f}" for value in values)


def average(
    name: str, row: str, metric: str = "auroc", paper: bool = False, both: bool = True
) -> float:
    """The mean over the columns that were run and, where both is asked for, that the paper has too."""
    values = [
        v
        for line in lines(name, row)
        for (_, m), v in line.values.items()
        if m == metric and v.mean is not None
    ]
    values = [value for value in values if value.paper is not None or not both]
    return sum(value.paper if paper else value.mean for value in values) / len(values)


def rank(name: str, row: str, part: int = 0) -> str:
    """The rank among the paper's methods that were run, as in "2 of 12"."""
    made = parts(name)[part][1]
    return f"{lines(name, row, part)[0].rank_among} of {sum(line.rank_among is not None for line in made.lines)}"


def ran(name: str, metric: str, part: int = 0) -> list[str]:
    """The columns of a part that have numbers, in some row at least."""
    found = {
        column
        for line in parts(name)[part][1].lines
        for (column, m), value in line.values.items()
        if m == metric and value.mean is not None
    }
    return [one["key"] for one in parts(name)[part][0]["columns"] if one["key"] in found]


def beside(name: str, part: int = 0) -> list[str]:
    """The columns of a part that were measured while a run of another file was at work on the same machine."""
    every = {path: json.loads(path.read_text()) for path in RESULTS.glob("*.json")}
    own = sorted(files(name), key=lambda path: str(every[path]["started"]))
    latest = {
        one["column"]: path
        for path in own
        for one in every[path]["parts"][part]["cells"]
        if "metrics" in one
    }
    shared = {
        path
        for path in own
        for other, run in every.items()
        if other != path
        and run["machine"]["name"] == every[path]["machine"]["name"]
        and _overlap(run, every[path])
    }
    return [column for column, path in latest.items() if path in shared]


def _overlap(one: Any, two: Any) -> bool:
    """Whether two runs were at work at the same time."""
    (begin, end), (start, stop) = map(span, (one, two))
    return begin < stop and start < end


def span(run: Any) -> tuple[float, float]:
    """When a run began and ended."""
    begin = datetime.fromisoformat(run["started"]).timestamp()
    return begin, begin + run["seconds"]


def measured(name: str) -> Any:
    """A file of the benchmarks."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
