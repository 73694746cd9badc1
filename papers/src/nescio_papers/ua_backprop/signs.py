"""Why Table 1 of the UA-Backprop paper came out otherwise here: signs, the choice of pictures, the width of the blur.

A blurring test blurs pixels in the order of a map. A map with signs leaves pixels that take doubt away to the end; a
magnitude cannot tell them from those that add it. So the two kinds are two groups here. The sign is that of

    ∂U/∂x · (x − blur_σ x)      above 0: blurring this pixel takes doubt away, to first order

and that product is a map itself, for one gradient: what this very test asks for, to first order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio import evaluate
from nescio_papers.runner.parts import Pictures
from nescio_papers.runner.program import Job, Made
from nescio_papers.runner.scoring import attempted
from nescio_papers.runner.study import Column, Part, Row, Study
from nescio_papers.ua_backprop import charts
from nescio_papers.ua_backprop.case import Case, picked
from nescio_papers.ua_backprop.columns import Cells, Told, by_column
from nescio_papers.ua_backprop.ensemble import BATCH, Ensemble, doubtful
from nescio_papers.ua_backprop.judging import SHARES
from nescio_papers.ua_backprop.rows import FLOOR, MAGNITUDES, OURS, RIVALS, SIGNED
from nescio_papers.ua_backprop.sizes import sizes_of, words

SETS = ("mnist", "svhn", "cifar10", "cifar100")
WIDTHS = (1.5, 3.0)
MOST, HALF = "most doubtful", "upper half"
HOW = {f"{chosen}, σ = {sigma:g}": (chosen, sigma) for chosen in (MOST, HALF) for sigma in WIDTHS}
"""How pictures are chosen, and the width of the blur, by the second half of a column's name."""
BRIEF = {"cifar10": "cifar10-brief", "cifar100": "cifar100-brief"}
"""Plans of ensembles of ResNet18 that are trained for this study at all scales but the papers' own."""
COLUMNS = tuple(Column(known, how) for known in SETS for how in HOW)
FEWER = {"cifar10": 100, "cifar100": 100}
"""The most pictures of sets with large networks."""
DRAWS = 2000
"""Of the bootstrap."""

BY_LABEL = {row.label: row for row in RIVALS}
GRAD, CLUE = BY_LABEL["Grad"], BY_LABEL["CLUE"]
PLAIN = (OURS, *(BY_LABEL[name] for name in ("Grad", "SmoothGrad", "FullGrad")), *MAGNITUDES, CLUE, FLOOR)
WITH_SIGNS = (
    *(replace(row, label=f"{row.label}, signed", method=SIGNED + row.method, paper=None) for row in (OURS, GRAD, CLUE)),
    BY_LABEL["IG"],
    BY_LABEL["Blur IG"],
    Row("Gradient × (x − blur x)", "blur_gradient", note="what blurring takes away, to first order"),
    replace(FLOOR, label="Random numbers, signed", method=SIGNED + FLOOR.method),
)
METRICS = ("murr5", "urr5", "lead", "lead_low", "lead_high")
PARTS = (
    Part("Magnitudes", "program", COLUMNS, PLAIN, METRICS),
    Part("Maps with signs", "program", COLUMNS, WITH_SIGNS, METRICS),
)
NOTES = (
    "Hypotheses and settings were written down before the run (`ua_backprop/protocol.md`).",
    "At most 5 % of the pixels are blurred. The lead is the AUC-URR of a row less that of UA-Backprop in its table: "
    "above 0 where UA-Backprop is better. Beside it a 95 % interval by a paired bootstrap over pictures.",
    "The width of the blur and the pictures are not in the paper: 1.5 and 3 pixels are those of the public code of the "
    "work that it takes the test from. “most doubtful”: as many as are blurred, from the top. “upper half”: as many, "
    "drawn at random from the pictures whose uncertainty is above the median. 100 of CIFAR-10 and CIFAR-100.",
)


def upper_half(ensemble: Ensemble, pictures: Pictures, pool: int | None, count: int) -> Tensor:
    """Return pictures drawn at random from those whose uncertainty is above the median, in random order, [count]."""
    end = min(len(pictures.x), pool or len(pictures.x))
    above = doubtful(ensemble, pictures, pool, end // 2)
    return above[torch.from_numpy(np.random.default_rng(0).permutation(len(above))[:count])]


def lead(ours: np.ndarray, other: np.ndarray, draws: int = DRAWS) -> dict[str, float]:
    """Return the AUC-URR of `other` less that of ours, with a 95 % interval.

    Args:
        ours: reduction(x, t) of our maps, ``[pictures, counts]``.
        other: The same of the other maps, for the same pictures.
        draws: Of pictures with replacement, the same for both.

    Returns:
        lead, lead_low and lead_high.
    """
    which = np.random.default_rng(0).integers(0, len(ours), (draws, len(ours)))
    counts = np.stack([np.bincount(row, minlength=len(ours)) for row in which])

    def areas(counts: np.ndarray) -> np.ndarray:
        found: np.ndarray = medians(ours, counts).mean(1) - medians(other, counts).mean(1)
        return found

    low, high = np.quantile(areas(counts), (0.025, 0.975))
    return {"lead": float(areas(np.ones_like(counts[:1]))[0]), "lead_low": float(low), "lead_high": float(high)}


def medians(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the medians of the columns of `values` [rows, columns] in each draw, ``[draws, columns]``.

    Row i is counts[d, i] times in draw d. Each column is sorted once: the median of a draw is where the counts in that
    order pass the middle.
    """
    total = int(counts[0].sum())
    by_row = np.ascontiguousarray(counts.T.astype(np.int32))
    middle = []
    for column in values.T:
        order = np.argsort(column, kind="stable")
        passed = np.cumsum(by_row[order], 0, dtype=np.int32)
        lower, upper = ((passed < rank).sum(0) for rank in ((total + 1) // 2, total // 2 + 1))
        middle.append((column[order][lower] + column[order][upper]) / 2)
    return np.stack(middle, 1)


def program(job: Job) -> Made:
    """The cells of both groups, data set by data set, choice by choice."""
    told = Told()
    case = cache(lambda known: Case.of(job, known, BRIEF.get(known) if job.parts.scale.fast else None))
    cells = by_column(job, PARTS, COLUMNS, lambda column: _column(job, case(column.known), column, told))
    settings = {"seeds": told.seeds, "maps": asdict(sizes_of(job.parts.scale)), "draws": DRAWS}
    return Made(cells, charts.signs(cells), settings, told.models, told.sets, [words(job.parts.scale)])


def _column(job: Job, case: Case, column: Column, told: Told) -> list[Cells]:
    chosen, sigma = HOW[str(column.foreign)]
    test = job.parts.known(column.known)
    choose = doubtful if chosen == MOST else upper_half
    count = min(case.sizes.pictures, FEWER.get(column.known, case.sizes.pictures))
    x = picked(test, choose(case.ensemble, test, case.sizes.pool, count))
    told.add(case, replace(test, about=f"{test.about}; {len(x)} are blurred"))
    return [_group(case, part.rows, column, x, sigma) for part in PARTS]


def _group(case: Case, rows: tuple[Row, ...], column: Column, x: Tensor, sigma: float) -> Cells:
    made = [
        attempted(
            {"row": row.label, "column": column.key, "seed": "all"},
            lambda row=row: _blurred(case, row, x, sigma),  # type: ignore[misc]
        )
        for row in rows
    ]
    ours = made[0]
    return [_beside(ours, cell) for cell in made]


def _beside(ours: Mapping[str, Any], cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cell with its distance from ours, without the reductions of every picture."""
    kept = {name: value for name, value in cell.items() if name != "reductions"}
    if "reductions" in cell and "reductions" in ours:
        led = lead(np.array(ours["reductions"]), np.array(cell["reductions"]))
        kept["metrics"] = {**cell["metrics"], **led}
    return kept


def _blurred(case: Case, row: Row, x: Tensor, sigma: float) -> dict[str, Any]:
    def made() -> dict[str, Any]:
        more: dict[str, Any] = (
            {"sigma": sigma} if row.method == "blur_gradient" or row.method.startswith(SIGNED) else {}
        )
        maps = case.maps(row, x, **more)
        there = x.to(case.ensemble.device)
        result = evaluate.blurring(
            case.ensemble.epistemic, there, maps.values, share=SHARES[1], sigma=sigma, batch=BATCH
        )
        return {
            "metrics": {"murr5": result.murr, "urr5": result.auc},
            "pictures": len(x),
            "reductions": np.round(result.reductions, 6).tolist(),
        }

    return case.numbers("signs", row, x, made, {"share": SHARES[1], "sigma": sigma})


STUDY = Study("ua-signs", "Maps of epistemic uncertainty: signs, pictures and blurs", PARTS, NOTES, program)
