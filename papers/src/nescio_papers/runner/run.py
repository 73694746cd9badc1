"""A study from its declaration to its results: train or load, score, measure, model after model.

Everything that took time lies in the work folder when it is finished (`runner.cells`), and the models lie in theirs. So
a run that was cut off is started again with the same arguments, and ends with the same numbers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nescio import evaluate, quantities
from nescio.models import Classifier
from nescio.quantities import GradientNorms
from nescio.types import InputError, NescioError
from nescio_papers.runner import active, facts, metrics, runtime
from nescio_papers.runner import scale as scales
from nescio_papers.runner.cells import Cell, Cells
from nescio_papers.runner.methods import ENSEMBLE, described, made, needs_training_data
from nescio_papers.runner.parts import Model, Parts, Pictures
from nescio_papers.runner.program import NOT_ASKED, Job, Made, not_run, why_not
from nescio_papers.runner.results import FORMAT, Results
from nescio_papers.runner.scoring import OVER, Scorer, TimeOver, ensemble_method
from nescio_papers.runner.study import Column, Part, Row, Study

MOST = 10_000  # pictures of a set in detection, so that all pairs are of one size
PROGRAM = {True: "a test of the machinery: the numbers say nothing", False: "its sizes are in the notes"}
Say = Callable[[str], object]


def run(
    study: Study,
    scale: str = "quick",
    *,
    work: str | Path,
    models: str | Path | None = None,
    data: str | Path | None = None,
    device: str | None = None,
    seeds: Sequence[int] | None = None,
    minutes: float | None = None,
    sets: Sequence[str] | None = None,
    progress: bool | None = None,
    say: Say = lambda line: None,
) -> Results:
    """Run a study and give its results, to be kept with `save` and shown with `render`.

    work is the folder in which finished scores are kept, models that of the networks (None: a folder in it), data the
    folder of data sets (None: as `datasets.load_set` finds it). device=None takes a GPU where there is one, and
    seeds=None the seeds of the scale. After `minutes` what is left is marked as not run. sets: the known data sets that
    are wanted (None: all), so that several processes can share a study. `say` is told line by line how it goes.
    """
    size = scales.get(scale)
    given = None if seeds is None else tuple(dict.fromkeys(seeds))
    if given is not None and (not given or any(seed < 0 for seed in given)):
        raise InputError(f"expected seeds of at least 0, got {list(seeds or [])}")
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    folder = Path(work)
    parts = Parts(size, data, Path(models) if models is not None else folder / "models", place, progress)
    job = _Run(study, parts, Cells(folder / "scores"), given, minutes, say, _asked(study, sets))
    began, git = time.perf_counter(), facts.git_state()  # of the start: a checkout may move on during the run
    started = datetime.now(UTC).isoformat(timespec="seconds")
    job.go()
    extra = job.made
    return {
        "format": FORMAT,
        "study": study.name,
        "title": study.title,
        "scale": size.name,
        "about": size.about if study.program is None else PROGRAM[size.bundled],
        "notes": [*study.notes, *(() if extra is None else extra.notes)],
        "started": started,
        "seconds": time.perf_counter() - began,
        "settings": {
            "pictures": {"": size.pictures, **size.fewer},
            "classes": size.classes,
            "copies": size.copies,
            "draws": size.draws,
            "exact": size.exact,
            "training": size.training,
            "seeds": {plan: list(size.seeds_of(plan, given)) for plan in job.plans},
            "active": {"cycles": size.cycles, "epochs": size.epochs, "pool": size.pool},
            **({} if extra is None else extra.settings),
        },
        "git": git,
        "machine": facts.machine(place),
        "versions": facts.versions(),
        "models": list(job.models.values()) if extra is None else list(extra.models),
        "sets": list(job.sets.values()) if extra is None else list(extra.sets),
        "complete": not job.over,
        "figures": [] if extra is None else [asdict(figure) for figure in extra.figures],
        "parts": [_declaration(part, cells) for part, cells in zip(study.parts, job.results, strict=True)],
    }


def _asked(study: Study, sets: Sequence[str] | None) -> tuple[str, ...]:
    """Return the known data sets asked for, each of which the study must have."""
    known = list(dict.fromkeys(column.known for part in study.parts for column in part.columns))
    if sets is not None and (not sets or not set(sets) <= set(known)):
        raise InputError(f"expected data sets of {study.name} ({', '.join(known)}), got {', '.join(sets) or 'none'}")
    return tuple(sets or ())


class _Run:
    def __init__(
        self,
        study: Study,
        parts: Parts,
        cells: Cells,
        seeds: tuple[int, ...] | None,
        minutes: float | None,
        say: Say,
        asked: tuple[str, ...] = (),
    ) -> None:
        self.study, self.parts, self.cells, self.seeds, self.say = study, parts, cells, seeds, say
        self.asked = asked
        self.scale = parts.scale
        self.end = None if minutes is None else time.monotonic() + 60 * minutes
        self.over = False
        self.plans = list(dict.fromkeys(column.plan for part in study.parts for column in part.columns))
        self.results: list[list[dict[str, Any]]] = [[] for _ in study.parts]
        self.models: dict[str, dict[str, Any]] = {}
        self.sets: dict[str, dict[str, Any]] = {}
        self.made: Made | None = None
        self._layers: dict[str, tuple[str, ...]] = {}

    def check(self) -> None:
        """Raise when the time is over."""
        if self.end is not None and time.monotonic() > self.end:
            self.over = True
            raise TimeOver

    def go(self) -> None:
        if self.study.program is not None:
            self._program(self.study.program)
            return
        for plan in self.plans:
            columns = [
                (at, part, column)
                for at, part in enumerate(self.study.parts)
                for column in part.columns
                if column.plan == plan
            ]
            for at, part, column in columns:
                if self.asked and column.known not in self.asked:
                    self.results[at] += not_run(replace(part, columns=(column,)), NOT_ASKED)
            columns = [one for one in columns if not self.asked or one[2].known in self.asked]
            networks = [one for one in columns if one[1].task != "active"]
            if networks:
                self._plan(plan, networks)
            for at, part, column in columns:
                if part.task == "active":
                    self._active(at, part, column)

    def _program(self, program: Callable[[Job], Made]) -> None:
        try:
            folder = self.cells.folder.parent
            self.made = program(Job(self.parts, self.seeds, folder, self.check, self.say, self.asked))
            self.results = [[dict(cell) for cell in cells] for cells in self.made.cells]
        except (TimeOver, NescioError) as error:
            self.say(f"{self.study.name}: {why_not(error)}")
            self.results = [not_run(part, why_not(error)) for part in self.study.parts]

    def _plan(self, plan: str, columns: list[tuple[int, Part, Column]]) -> None:
        """Every column of one training plan: seed after seed, then all seeds as an ensemble."""
        trained: list[Model] = []
        for seed in self.scale.seeds_of(plan, self.seeds):
            model = self._model(plan, seed, columns)
            if model is None:
                continue
            trained.append(model)
            scorer = Scorer.of(model, self.cells, check=self.check, fit_count=self.scale.training)
            for at, part, column in columns:
                if part.task != "runtime":
                    rows = [row for row in part.rows if row.method != ENSEMBLE]
                    self._column(at, part, column, rows, scorer, seed)
                elif len(trained) == 1:  # the networks of other seeds take as long
                    self._runtime(at, part, column, model, seed)
        for at, part, column in columns:
            rows = [row for row in part.rows if row.method == ENSEMBLE]
            if rows and part.task == "runtime":
                self._not_run(
                    at, column, rows, "all", "not run: its time is that of as many networks as it has members"
                )
            elif rows and len(trained) < 2:
                self._not_run(at, column, rows, "all", "not run: an ensemble needs the models of at least two seeds")
            elif rows:
                self._column(at, part, column, rows, Scorer.ensemble(trained, self.cells, check=self.check), "all")

    def _model(self, plan: str, seed: int, columns: list[tuple[int, Part, Column]]) -> Model | None:
        began = time.perf_counter()
        try:
            self.check()
            model = self.parts.model(plan, seed)
        except TimeOver:
            reason = OVER
        except NescioError as error:
            reason = f"not run: {error}"
        else:
            if model.id not in self.models:  # at the smoke scale one network stands for several
                self.models[model.id] = model.facts
                self.say(
                    f"{model.plan}, seed {seed}: {100 * model.accuracy:.2f} % right on the test set "
                    f"({time.perf_counter() - began:.0f} s)"
                )
            return model
        self.say(f"{plan}, seed {seed}: {reason}")
        for at, part, column in columns:
            self._not_run(at, column, [row for row in part.rows if row.method != ENSEMBLE], seed, reason)
        return None

    def _column(self, at: int, part: Part, column: Column, rows: list[Row], scorer: Scorer, seed: int | str) -> None:
        """Score known and foreign pictures with every row, and measure."""
        try:
            sets = self._pictures(column, seed)
            if any(row.method != ENSEMBLE and needs_training_data(row) for row in rows):
                scorer.training = self.parts.known(column.known, "train")
        except NescioError as error:
            reason = f"not run (data not at hand): {error}"
            self.say(f"{column.label}: {reason.split('. ')[0]}")
            self._not_run(at, column, rows, seed, reason)
            return
        count = min([len(pictures.x) for pictures in sets] + [self.scale.pictures_of(column.plan) or len(sets[0].x)])
        count = min(count, MOST) if column.foreign is not None else count
        count = min(count, part.most) if part.most else count
        for pictures in sets:
            self.sets[pictures.id] = pictures.facts
        chosen: dict[str, tuple[Row, Any]] = {}
        for row in rows:
            if reason := self.scale.skipped.get((column.plan, row.settings.get("norm", 2)), ""):
                self._not_run(at, column, [row], seed, reason)
            else:
                chosen[row.label] = row, self._method(row, column, scorer, seed)
        keys = {json.dumps(described(method), sort_keys=True): method for _, method in chosen.values()}
        began = time.perf_counter()
        for pictures in sets:
            try:
                scorer.fill(pictures, count, keys, part.alone)
            except TimeOver:
                break
        self.say(f"{column.label}, seed {seed}: {len(keys)} methods ({time.perf_counter() - began:.0f} s)")
        right = scorer.right(sets[0], count) if part.task == "calibration" else None
        cells = {
            label: [scorer.read(pictures, method, part.alone) for pictures in sets]
            for label, (_, method) in chosen.items()
        }
        reference = cells.get(part.reference, [])
        for label, (row, method) in chosen.items():
            entry = {"row": row.label, "column": column.key, "seed": seed, "settings": described(method)}
            key = json.dumps(described(method), sort_keys=True)
            self.results[at].append(entry | _measured(cells[label], count, right, reference, scorer, sets, key))

    def _pictures(self, column: Column, seed: int | str) -> list[Pictures]:
        if column.split == "validation" and seed != "all":
            known = self.parts.validation(column.plan, int(seed))
        else:
            known = self.parts.known(column.known)
        return [known] if column.foreign is None else [known, self.parts.foreign(column.foreign, known)]

    def _method(self, row: Row, column: Column, scorer: Scorer, seed: int | str) -> Any:
        if row.method == ENSEMBLE:
            return ensemble_method()
        layers: tuple[str, ...] = ()
        if "last" in row.settings:
            if scorer.id not in self._layers:
                classifier = Classifier.of(scorer.network)
                x = classifier.prepare(self.parts.known(column.known).floats(0, 2))
                request = GradientNorms("uniform")
                table: Any = quantities.compute(classifier, x, [request])[request]
                self._layers[scorer.id] = table.layers
            layers = self._layers[scorer.id]
        return made(row, column.known, self.scale, int(seed), layers)

    def _runtime(self, at: int, part: Part, column: Column, model: Model, seed: int) -> None:
        rows = [row for row in part.rows if row.method != ENSEMBLE]
        self.results[at] += runtime.measure(rows, column, model, seed, self.parts, self.cells.folder.parent, self.check)

    def _active(self, at: int, part: Part, column: Column) -> None:
        if column.known not in self.scale.active:
            self._not_run(at, column, list(part.rows), "all", f"not run at the scale {self.scale.name}")
            return
        given = self.seeds or self.scale.seeds_of(column.known)[: self.scale.active_seeds]
        for seed in given:
            self.results[at] += active.cycles(
                list(part.rows), column, seed, self.parts, self.cells.folder.parent, self.check, self.say
            )

    def _not_run(self, at: int, column: Column, rows: list[Row], seed: int | str, reason: str) -> None:
        self.results[at] += [
            {"row": row.label, "column": column.key, "seed": seed, "reason": " ".join(reason.split())} for row in rows
        ]


def _measured(
    cells: list[Cell],
    count: int,
    right: Any,
    reference: list[Cell],
    scorer: Scorer,
    sets: list[Pictures],
    key: str,
) -> dict[str, Any]:
    """Return the numbers of a cell, or the reason why there are none."""
    for pictures in sets:
        if (pictures.id, key) in scorer.errors:
            return {"reason": f"failed: {scorer.errors[pictures.id, key]}"}
    if any(len(cell.scores) < count for cell in cells):
        return {"reason": OVER}
    scores = [cell.scores[:count] for cell in cells]
    try:
        numbers = metrics.detection(*scores) if right is None else metrics.calibration(scores[0], right)
    except NescioError as error:
        return {"reason": f"failed: {error}"}
    total = sum(len(cell.scores) for cell in cells)
    numbers["seconds"] = 1000 * sum(cell.seconds for cell in cells) / total
    if reference and all(len(cell.scores) >= count for cell in reference):
        rho = evaluate.rank_correlation(
            np.concatenate(scores), np.concatenate([cell.scores[:count] for cell in reference])
        )
        numbers |= {} if rho is None else {"rho": rho}
    return {"pictures": count, "shared": max(cell.shared for cell in cells), "metrics": numbers}


def _declaration(part: Part, cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a part as plain values, with its cells: all that the page needs."""
    return {
        "title": part.title,
        "task": part.task,
        "metrics": list(part.metrics),
        "averages": part.averages,
        "line": part.line,
        "reference": part.reference,
        "columns": [{"key": column.key, "label": column.label} for column in part.columns],
        "rows": [
            {name: getattr(row, name) for name in ("label", "method", "paper", "choice", "ranked", "note")}
            for row in part.rows
        ],
        "paper": {
            row: {column: [list(n) for n in cell] for column, cell in line.items()} for row, line in part.paper.items()
        },
        "cells": cells,
    }
