"""Maps of uncertainty as attention: Table 2 of the UA-Backprop paper (Wang et al. 2023)."""

from __future__ import annotations

from typing import Any

from nescio import mitigate
from nescio.types import InputError
from nescio_papers.runner.program import Job, Made
from nescio_papers.runner.scoring import attempted
from nescio_papers.runner.study import Column, Part, Row, Study, pairs, paper_table
from nescio_papers.ua_backprop.columns import Told, by_column
from nescio_papers.ua_backprop.retraining import NONE, Few
from nescio_papers.ua_backprop.rows import CONTROLS, OURS, RIVALS
from nescio_papers.ua_backprop.sizes import sizes_of, words

PAPER = paper_table("""
method       | mnist       | cifar10     | cifar100    | svhn        | avg
Ours         | 91.95 0.287 | 36.48 1.768 | 12.12 4.326 | 65.13 1.489 | 51.42 1.968
Grad         | 91.35 0.302 | 31.60 1.938 | 12.13 4.422 | 63.74 1.578 | 49.71 2.060
SmoothGrad   | 90.68 0.324 | 32.05 1.942 | 12.57 4.508 | 62.35 1.628 | 49.41 2.100
FullGrad     | 91.39 0.300 | 32.85 1.920 | 12.06 4.574 | 62.38 1.568 | 49.67 2.091
IG           | 91.98 0.350 | 34.43 1.829 | 11.89 4.265 | 64.31 1.511 | 50.65 1.989
Blur IG      | 91.57 0.288 | 32.20 1.935 | 12.34 4.630 | 65.04 1.526 | 50.29 2.095
CLUE         | 91.64 0.348 | 33.34 1.846 | 12.15 4.299 | 60.01 1.572 | 49.29 2.016
δ-CLUE       | 91.76 0.350 | 35.02 1.809 | 12.22 4.362 | 62.71 1.612 | 50.43 2.033
No attention | 90.78 0.358 | 31.62 1.921 | 12.02 4.536 | 60.64 1.569 | 48.77 2.096
""")
COLUMNS = pairs("mnist cifar10 svhn cifar100")
ROWS = (OURS, *RIVALS, Row("No attention", NONE, paper="No attention"), *CONTROLS)
NOTES = (
    "Networks are trained on 500 pictures of MNIST, 1,000 of CIFAR-10 and 2,000 of SVHN, with attention to maps of "
    "epistemic uncertainty of an ensemble of five that was trained on the same pictures alone. All runs share the "
    "pictures and the maps, and differ in the network's first weights and the order of its batches. The paper's "
    "schedule and its α are not known.",
    "The paper tests on the original test pictures: the first table does so without attention. The second gives the "
    "same networks maps of the first test pictures too, made by the same ensemble without knowing labels.",
    "CLUE and δ-CLUE look for pictures in an auto-encoder that was trained on more pictures, without their labels.",
    "Three controls say what is not the maps' doing. Random attention has maps of random numbers. Flat attention is "
    "the mean of what our maps give at every pixel, so that features are larger by as much and no more. Shuffled maps "
    "are ours, but each is that of another picture.",
)


PARTS = (
    Part("Tested on pictures as they are", "program", COLUMNS, ROWS, ("acc", "nll"), PAPER, averages="each"),
    Part("Tested with maps of the test pictures", "program", COLUMNS, ROWS, ("acc", "nll"), averages="each"),
)


def program(job: Job) -> Made:
    """The cells of both parts, data set by data set, run by run."""
    sizes = sizes_of(job.parts.scale)
    seeds = tuple(range(sizes.runs)) if job.seeds is None else job.seeds
    told = Told()
    cells = by_column(job, PARTS, COLUMNS, lambda column: _column(job, column, seeds, told))
    settings = {
        "seeds": {column.plan: list(seeds) for column in COLUMNS},
        "alpha": mitigate.ALPHA,
        "few": dict(sizes.few),
        "epochs": sizes.epochs,
    }
    sized = (
        f"{len(seeds)} runs of {sizes.epochs} epochs with α = {mitigate.ALPHA:g}, tested on "
        f"{'all' if sizes.tested is None else f'the first {sizes.tested:,}'} test pictures; the first "
        f"{sizes.attended:,} of them get maps."
    )
    return Made(cells, (), settings, told.models, told.sets, [sized, words(job.parts.scale)])


def _column(job: Job, column: Column, seeds: tuple[int, ...], told: Told) -> list[list[dict[str, Any]]]:
    if column.known == "cifar100" and job.parts.scale.name == "quick":
        raise InputError("it takes too long at this scale")
    train, test = job.parts.known(column.known, "train"), job.parts.known(column.known)
    few = Few.of(job, column.known, train, test)
    told.add(few.case, train, test)
    sizes = few.case.sizes
    tested = min(len(test.x), sizes.tested or len(test.x))

    def cells(row: Row, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        entry = {"row": row.label, "column": column.key, "seed": seed}
        made = attempted(entry, lambda: few.retrained(row, seed, test, tested, sizes.attended, mitigate.ALPHA))
        if "reason" in made:
            return made, made
        return entry | {"metrics": made["plain"]}, entry | {"metrics": made["attended"]}

    # a run that is cut off has all rows, with fewer seeds
    plain, attended = zip(*(cells(row, seed) for seed in seeds for row in ROWS), strict=True)
    return [list(plain), list(attended)]


STUDY = Study(
    "ua-table2", "Maps of epistemic uncertainty as attention in a training with few pictures", PARTS, NOTES, program
)
