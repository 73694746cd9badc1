"""Maps of uncertainty judged: Table 1 of the UA-Backprop paper (Wang et al. 2023), a known patch, and the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from nescio_papers.runner.program import Job, Made
from nescio_papers.runner.scoring import attempted
from nescio_papers.runner.study import Column, Part, Row, Study, pairs, paper_table
from nescio_papers.ua_backprop.case import Case, picked
from nescio_papers.ua_backprop.columns import Told, by_column
from nescio_papers.ua_backprop.ensemble import doubtful
from nescio_papers.ua_backprop.judging import blurred, found_patches, patched
from nescio_papers.ua_backprop.rows import FLOOR, MAGNITUDES, OURS, PATHS, RIVALS
from nescio_papers.ua_backprop.sizes import sizes_of, words

MURR = paper_table("""
method     | mnist       | cifar10     | cifar100    | svhn        | avg
Ours       | 0.648 0.850 | 0.629 0.848 | 0.195 0.302 | 0.625 0.758 | 0.607
Grad       | 0.506 0.741 | 0.578 0.798 | 0.165 0.276 | 0.555 0.705 | 0.541
SmoothGrad | 0.601 0.779 | 0.566 0.800 | 0.154 0.255 | 0.575 0.735 | 0.558
FullGrad   | 0.691 0.869 | 0.555 0.772 | 0.156 0.274 | 0.565 0.709 | 0.574
IG         | 0.434 0.725 | 0.632 0.827 | 0.159 0.270 | 0.649 0.773 | 0.559
Blur IG    | 0.305 0.515 | 0.693 0.971 | 0.184 0.318 | 0.762 0.896 | 0.581
CLUE       | 0.614 0.874 | 0.291 0.628 | 0.074 0.148 | 0.171 0.352 | 0.394
δ-CLUE     | 0.625 0.901 | 0.415 0.577 | 0.073 0.150 | 0.146 0.295 | 0.398
""")
AUC = paper_table("""
method     | mnist       | cifar10     | cifar100    | svhn        | avg
Ours       | 0.667 0.445 | 0.664 0.484 | 0.901 0.821 | 0.526 0.407 | 0.614
Grad       | 0.709 0.534 | 0.701 0.538 | 0.912 0.843 | 0.613 0.448 | 0.662
SmoothGrad | 0.675 0.461 | 0.730 0.551 | 0.919 0.860 | 0.584 0.424 | 0.651
FullGrad   | 0.603 0.429 | 0.696 0.543 | 0.924 0.859 | 0.596 0.455 | 0.638
Blur IG    | 0.816 0.667 | 0.638 0.466 | 0.914 0.851 | 0.541 0.402 | 0.662
IG         | 0.752 0.529 | 0.731 0.444 | 0.905 0.824 | 0.523 0.298 | 0.626
CLUE       | 0.709 0.397 | 0.861 0.624 | 0.966 0.926 | 0.919 0.815 | 0.777
δ-CLUE     | 0.665 0.395 | 0.793 0.710 | 0.968 0.924 | 0.932 0.848 | 0.779
""")
COLUMNS = pairs("mnist cifar10 svhn cifar100")
METHODS = (OURS, *RIVALS, *PATHS)
ROWS = (*METHODS, *MAGNITUDES, FLOOR)
NOTES = (
    "Epistemic uncertainty of a deep ensemble of five. The blurring test takes the test pictures that the ensemble "
    "doubts most, and blurs with a width of 1.5 pixels on every set: the paper prints no width, and says of the "
    "pictures only that they are highly uncertain. The study ua-signs takes other pictures and widths too.",
    "The paper's values of τ₁ and τ₂ are not known; ours are the defaults of nescio.explain. The study ua-sweep looks "
    "for the best ones on validation pictures.",
    "Random order blurs pixels by chance. Rows of UA-Backprop over other paths than FullGrad are not in the paper's "
    "table, nor are those of magnitudes: integrated gradients and Blur IG have signs, and pixels that take doubt away "
    "come last; the other methods cannot tell them from those that cause it.",
    "The anomaly test fills a square of a quarter of the side of pictures that the ensemble gets right with noise, and "
    "asks whether the map is highest there, pixel by pixel: an AUROC of 50 is chance.",
)


PARTS = (
    Part("Maximum uncertainty reduction rate", "program", COLUMNS, ROWS, ("murr2", "murr5"), MURR, averages="joint"),
    Part("Area under the uncertainty reduction curve", "program", COLUMNS, ROWS, ("urr2", "urr5"), AUC, "joint"),
    Part("A patch that is known", "program", COLUMNS, ROWS, ("auroc", "iou"), averages="each"),
    Part("Seconds for 1,000 maps", "program", COLUMNS, METHODS, ("seconds",), averages="each"),
)


def program(job: Job) -> Made:
    """The cells of all four parts, data set by data set."""
    told = Told()
    cells = by_column(job, PARTS, COLUMNS, lambda column: _column(job, column, told))
    settings = {"seeds": told.seeds, "maps": asdict(sizes_of(job.parts.scale))}
    return Made(cells, (), settings, told.models, told.sets, [words(job.parts.scale)])


def _column(job: Job, column: Column, told: Told) -> list[list[dict[str, Any]]]:
    case = Case.of(job, column.known)
    test = job.parts.known(column.known)
    x = picked(test, doubtful(case.ensemble, test, case.sizes.pool, case.sizes.pictures))
    corrupted, masks = patched(case, test, case.sizes.patched)
    used = f"{test.about}; the {len(x)} most doubtful are blurred, {len(corrupted)} that it gets right have a patch"
    told.add(case, replace(test, about=used))

    def cell(row: Row, measure: Callable[[Row], dict[str, Any]]) -> dict[str, Any]:
        return attempted({"row": row.label, "column": column.key, "seed": "all"}, lambda: measure(row))

    judged = [cell(row, lambda row: blurred(case, row, x)) for row in ROWS]
    patches = [cell(row, lambda row: found_patches(case, row, corrupted, masks)) for row in ROWS]
    return [judged, judged, patches, judged[: len(METHODS)]]


STUDY = Study("ua-table1", "Maps of epistemic uncertainty: the blurring test", PARTS, NOTES, program)
