"""What the UA-Backprop paper leaves open: τ₁ and τ₂, the path, the members and α, swept on validation pictures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

from torch import Tensor

from nescio import evaluate, mitigate
from nescio.attribution.defaults import TAU1, TAU2
from nescio_papers import zoo
from nescio_papers.runner.cells import digest
from nescio_papers.runner.parts import Pictures
from nescio_papers.runner.program import Figure, Job, Made
from nescio_papers.runner.scoring import attempted
from nescio_papers.runner.study import Column, Part, Row, Study, pairs
from nescio_papers.ua_backprop import sizes as declared
from nescio_papers.ua_backprop.case import Case, picked
from nescio_papers.ua_backprop.columns import Cells, Told, by_column
from nescio_papers.ua_backprop.drawing import heat_map
from nescio_papers.ua_backprop.ensemble import doubtful, trained_on
from nescio_papers.ua_backprop.judging import blurred
from nescio_papers.ua_backprop.retraining import Few
from nescio_papers.ua_backprop.rows import OURS, PATHS
from nescio_papers.ua_backprop.sizes import sizes_of, words

SHARE = 0.1
"""Of the training pictures, which no network of the sweep is trained on."""
MARGIN = 0.01
"""Mean AUC-URR that is given away for sharper maps."""
COST = 0.01
"""Accuracy that attention may cost on average: its strength trades that for likelihood."""
MEMBERS = 5
SIZES = (2, 3, 5, 10)
COLUMNS = pairs("mnist cifar10 svhn", split="validation")
GRID = tuple(
    Row(f"τ₁ = {tau1:g}, τ₂ = {tau2:g}", OURS.method, {**OURS.settings, "tau1": tau1, "tau2": tau2})
    for tau1 in declared.TAU1
    for tau2 in declared.TAU2
)
GROWN = tuple(Row(f"{size} members", OURS.method, {**OURS.settings, "members": size}) for size in SIZES)
STRENGTHS = tuple(Row(f"α = {alpha:g}", OURS.method, {**OURS.settings, "alpha": alpha}) for alpha in declared.ALPHAS)
NOT_HERE = "not run at this scale"
BLURRING = ("urr5", "murr5")
NOTES = (
    "No test picture is used. A tenth of the training pictures is held out from all networks here, which are trained "
    "for the sweep alone; the blurring test takes those of the held-out pictures that five of them doubt most.",
    "The blurring test sees the order of the pixels alone, and a large τ₂ makes a map flat: chosen are the smallest τ₂ "
    "that comes within 0.01 of the lowest AUC-URR at 5 % of the pixels, on average over the sets, and the τ₁ that does "
    "best with it; the tables below the first are made with them. The rank correlation of members is that of their "
    "maps with those of the largest ensemble, pixel by pixel.",
    "α is swept on the recipe of ua-table2, on other pictures: those trained on come after the held-out ones, on which "
    "the networks are tested, without maps of theirs. α = 0 is no attention. The best α has the lowest negative "
    "log-likelihood among those that cost no more than a point of accuracy on average.",
)
PARTS = (
    Part("τ₁ and τ₂", "program", COLUMNS, GRID, BLURRING, averages="each"),
    Part("The path from logits to pixels", "program", COLUMNS, (OURS, *PATHS), BLURRING, averages="each"),
    Part("Members of the ensemble", "program", COLUMNS, GROWN, (*BLURRING, "rho"), averages="each"),
    Part("α, the strength of attention", "program", COLUMNS, STRENGTHS, ("nll", "acc"), averages="each"),
)


@dataclass(frozen=True)
class Prepared:
    """A data set: all networks that were trained for it, the first five, and pictures that those doubt."""

    all: Case
    five: Case
    x: Tensor
    held: Pictures
    rest: Pictures
    """The training pictures: those that are held out, and the rest."""


def program(job: Job) -> Made:
    """The grid on all sets, then the rest with the best of the grid."""
    told = Told()
    prepared = cache(lambda column: _prepared(job, column, told))

    def part(at: int, measure: Callable[[Row, Prepared], dict[str, Any]]) -> Cells:
        def run(column: Column) -> list[Cells]:
            data = prepared(column)
            return [_measured(PARTS[at].rows, column, lambda row: measure(row, data))]

        return by_column(job, PARTS[at : at + 1], COLUMNS, run)[0]

    grid = part(0, _grid)
    tau1, tau2 = best(grid)
    taus = {"tau1": tau1, "tau2": tau2}
    job.say(f"best of the grid: τ₁ = {tau1:g}, τ₂ = {tau2:g}")
    paths = part(1, lambda row, data: blurred(data.five, row, data.x, **taus))
    members = part(2, lambda row, data: _members(row, data, taus))
    attention = by_column(
        job, PARTS[3:], COLUMNS, lambda column: [_attention(job, column, prepared(column), taus, told)]
    )[0]
    path, alpha = _lowest(paths, (OURS, *PATHS), "urr5"), strength(attention)
    chosen = {
        **taus,
        "path": None if path is None else path.settings["path"],
        "alpha": None if alpha is None else alpha.settings["alpha"],
    }
    job.say(f"chosen: {', '.join(f'{name} = {value}' for name, value in chosen.items())}")
    settings = {"seeds": told.seeds, "chosen": chosen, "before": {"tau1": TAU1, "tau2": TAU2, "alpha": mitigate.ALPHA}}
    sizes = sizes_of(job.parts.scale)
    sized = (
        f"The {sizes.held} most doubtful of the held-out pictures are blurred; {sizes.alpha_runs} runs of "
        f"{sizes.epochs} epochs for each α."
    )
    notes = [sized, words(job.parts.scale)]
    return Made([grid, paths, members, attention], _figures(grid), settings, told.models, told.sets, notes)


def best(cells: Cells) -> tuple[float, float]:
    """Return τ₁ and τ₂: the smallest τ₂ within `MARGIN` of the lowest mean AUC-URR, with the τ₁ that does best.

    The blurring test sees the order of the pixels alone, but people see a map that a large τ₂ makes flat. The defaults
    of today where nothing was run.
    """
    means = _means(cells, GRID, "urr5")
    least = min(means.values(), default=0.0) + MARGIN
    near = [row for row in GRID if means.get(row.label, math.inf) <= least]
    row = min(near, key=lambda row: (row.settings["tau2"], means[row.label]), default=None)
    return (TAU1, TAU2) if row is None else (row.settings["tau1"], row.settings["tau2"])


def strength(cells: Cells) -> Row | None:
    """Return the α with the lowest mean negative log-likelihood of those that cost no more than `COST` of accuracy."""
    right = _means(cells, STRENGTHS, "acc")
    least = right.get(STRENGTHS[0].label, 0.0) - COST
    return _lowest(cells, [row for row in STRENGTHS if right.get(row.label, -1.0) >= least], "nll")


def part_of(pictures: Pictures, start: int, stop: int, what: str) -> Pictures:
    """Return pictures from `start` to `stop`, as a set of its own."""
    name, about = f"{pictures.name}, {what}", f"{pictures.about}; {stop - start} of the training pictures, {what}"
    return Pictures(pictures.x[start:stop], pictures.y[start:stop], name, about, f"{pictures.id}-{start}-{stop}")


def _prepared(job: Job, column: Column, told: Told) -> Prepared:
    sizes = sizes_of(job.parts.scale)
    members, epochs = sizes.trained.get(column.known) or sizes.trained[""]
    plan = zoo.RECIPES[job.parts.plan(column.known)]
    recipe = plan.recipe
    if epochs is not None:
        recipe = replace(recipe, epochs=epochs, warmup=recipe.warmup * epochs / recipe.epochs)
    train = job.parts.known(column.known, "train")
    count = round(SHARE * len(train.x))
    held, rest = part_of(train, 0, count, "held out"), part_of(train, count, len(train.x), "trained on")
    began = time.perf_counter()
    folder = f"held-{plan.name}-{digest(train.id, repr((count, recipe.epochs)))}"
    ensemble, models = trained_on(job, plan, (rest.x, rest.y), recipe, members, folder, held)
    job.say(f"{column.label}: {members} networks for the sweep ({time.perf_counter() - began:.0f} s)")
    case = Case(job, column.known, ensemble, models)
    told.add(case, held, rest)
    five = replace(case, ensemble=ensemble.first(min(MEMBERS, members)))
    x = picked(held, doubtful(five.ensemble, held, sizes.pool, sizes.held))
    return Prepared(case, five, x, held, rest)


def _measured(rows: Sequence[Row], column: Column, measure: Callable[[Row], dict[str, Any]]) -> Cells:
    entries = [{"row": row.label, "column": column.key, "seed": "all"} for row in rows]
    return [attempted(entry, lambda row=row: measure(row)) for row, entry in zip(rows, entries, strict=True)]  # type: ignore[misc]


def _grid(row: Row, data: Prepared) -> dict[str, Any]:
    tau1, tau2 = data.five.sizes.taus
    if row.settings["tau1"] not in tau1 or row.settings["tau2"] not in tau2:
        return {"reason": NOT_HERE}
    return blurred(data.five, row, data.x)


def _members(row: Row, data: Prepared, taus: Mapping[str, float]) -> dict[str, Any]:
    size, most = row.settings["members"], len(data.all.ensemble.networks)
    if size > most:
        return {"reason": f"not run: {most} networks were trained for this set"}
    fewer = replace(data.all, ensemble=data.all.ensemble.first(size))
    values = blurred(fewer, OURS, data.x, **taus)
    maps = [case.maps(OURS, data.x, **taus).values for case in (fewer, data.all)]  # type: ignore[arg-type]
    return values | {"metrics": values["metrics"] | {"rho": evaluate.randomised(*maps)}}


def _attention(job: Job, column: Column, data: Prepared, taus: Mapping[str, float], told: Told) -> Cells:
    few = Few.of(job, column.known, data.rest, data.held)
    told.add(few.case)
    sizes = few.case.sizes
    tested = min(len(data.held.x), sizes.tested or len(data.held.x))

    def cell(row: Row, seed: int) -> dict[str, Any]:
        entry, alpha = {"row": row.label, "column": column.key, "seed": seed}, row.settings["alpha"]
        if alpha not in sizes.alphas:
            return entry | {"reason": NOT_HERE}
        tuned = replace(OURS, label=row.label, settings={**OURS.settings, **taus})
        made = attempted(entry, lambda: few.retrained(tuned, seed, data.held, tested, 0, alpha))
        return made if "reason" in made else entry | {"metrics": made["plain"]}

    return [cell(row, seed) for seed in range(sizes.alpha_runs) for row in STRENGTHS]


def _means(cells: Cells, rows: Sequence[Row], metric: str) -> dict[str, float]:
    """Return the mean of a metric by row, over those sets and seeds for which every row has a number that has any."""
    values: dict[str, dict[tuple[str, object], float]] = {}
    for cell in cells:
        if "metrics" in cell:
            values.setdefault(cell["row"], {})[cell["column"], cell["seed"]] = cell["metrics"][metric]
    run = {row.label: values[row.label] for row in rows if row.label in values}
    shared = set.intersection(*map(set, run.values())) if run else set()
    return (
        {label: fmean(values_by_place[place] for place in shared) for label, values_by_place in run.items()}
        if shared
        else {}
    )


def _lowest(cells: Cells, rows: Sequence[Row], metric: str) -> Row | None:
    means = _means(cells, rows, metric)
    return min((row for row in rows if row.label in means), key=lambda row: means[row.label], default=None)


def _figures(cells: Cells) -> list[Figure]:
    means = _means(cells, GRID, "urr5")
    by_taus = {(r.settings["tau1"], r.settings["tau2"]): means[r.label] for r in GRID if r.label in means}
    return [heat_map(by_taus)] if by_taus else []


STUDY = Study(
    "ua-sweep", "UA-Backprop's temperatures, path, members and attention on validation pictures", PARTS, NOTES, program
)
