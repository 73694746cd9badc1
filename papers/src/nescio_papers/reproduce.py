"""The papers' tables as short declarations, run on real data, and shown beside the numbers they are compared with.

    results = reproduce.run("table1", "smoke", work="work")
    path = reproduce.save(results)
    html = reproduce.render(results)

Each paper has a package (`PAPERS`), whose modules declare a `STUDY` each; a new study is one file there.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from nescio.types import InputError
from nescio_papers.runner.compare import summary
from nescio_papers.runner.markdown import markdown
from nescio_papers.runner.page import render
from nescio_papers.runner.results import FOLDER, Results, joined, load, save
from nescio_papers.runner.run import run as run_study
from nescio_papers.runner.scale import SCALES, Scale
from nescio_papers.runner.study import Column, Part, Row, Study

__all__ = [
    "run",
    "save",
    "load",
    "joined",
    "render",
    "markdown",
    "summary",
    "studies",
    "SCALES",
    "FOLDER",
    "Study",
    "Part",
    "Row",
    "Column",
    "Scale",
    "Results",
]

PAPERS = ("regrad", "ua_backprop", "know_your_limits", "guard", "dense")


@cache
def studies() -> Mapping[str, Study]:
    """Return every declared study by name: the tables of the REGrad paper in order, then the others by name."""
    declared: list[Study] = []
    for paper in PAPERS:
        package = importlib.import_module(f"nescio_papers.{paper}")
        for module in pkgutil.iter_modules(package.__path__):
            study = getattr(importlib.import_module(f"{package.__name__}.{module.name}"), "STUDY", None)
            declared += [] if study is None else [study]
    table = re.compile(r"table(\d+)")
    number = {study.name: int(match[1]) if (match := table.fullmatch(study.name)) else 99 for study in declared}
    return {study.name: study for study in sorted(declared, key=lambda study: (number[study.name], study.name))}


def get(name: str) -> Study:
    """Return the study of that name."""
    if name not in studies():
        raise InputError(f"expected one of the studies {', '.join(studies())}, got '{name}'")
    return studies()[name]


def run(study: str | Study, scale: str = "quick", **settings: Any) -> Results:
    """Run a study and return its results, to be kept with `save` and shown with `render`.

    Args:
        study: A study, or its name.
        scale: How large the run is: smoke, quick or paper.
        settings: Those of `nescio_papers.runner.run.run`: folders, device, seeds, minutes.
    """
    return run_study(get(study) if isinstance(study, str) else study, scale, **settings)
