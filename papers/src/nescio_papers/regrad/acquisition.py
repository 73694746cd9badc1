"""Active learning with the paper's protocol: 200 epochs, the whole pool, ten acquisitions, all methods side by side.

Beside the plain negative log-likelihood stands cross-entropy applied to softmax outputs, log Σ_j exp(p_j) − p_y, which
is, almost certainly, what the paper's Table 3 prints: for a network that is sure it is log(e + C − 1) − accuracy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.evaluate.active import by_index
from nescio.modes import full_products
from nescio.scores.base import must_be_fitted
from nescio.scoring import fit, score
from nescio.types import NescioError
from nescio.zoo import Normalised
from nescio_papers import datasets as data
from nescio_papers import zoo
from nescio_papers.regrad import label_charts, table3
from nescio_papers.regrad.rows import SVHN
from nescio_papers.runner import metrics
from nescio_papers.runner.active import FIRST, RANDOM
from nescio_papers.runner.cells import digest, kept_json, read_json, write_json
from nescio_papers.runner.methods import made
from nescio_papers.runner.program import NOT_ASKED, Job, Made, why_not
from nescio_papers.runner.scale import size_of
from nescio_papers.runner.scoring import TimeOver
from nescio_papers.runner.stacked import State, Trainer, put_into, stacked
from nescio_papers.runner.study import Part, Row, Study, pairs
from nescio_papers.zoo.plans import SGD, STATISTICS, to_floats

SETS = ("mnist", "svhn", "cifar10", "cifar100")
ROWS: tuple[Row, ...] = tuple(
    row
    for row in table3.STUDY.parts[0].rows
    if row.settings.get("norm", 2) != 1 and row.settings.get("power", 2) != 1 and (row.paper or row.method == RANDOM)
)
FEW = ("ExGrad, L2", "REGrad*, k = 2", "Entropy", "Random")
SIX = (*FEW, "UNGrad, L2", "Inserted Dropout")
BLOCK = 500
"""Pictures of the pool in a call: several runs share a GPU, and each call takes memory by what is free."""
EVERY = 20
Looks = Mapping[str, tuple[Mapping[str, Any], ...]]
_DENSE = {"select": ("network.dense1", "network.dense2")}
NARROW_LOOKS: Looks = {"exgrad": (_DENSE,), "regrad": ({"samples": 0, **_DENSE},)}
"""Dear scores see the whole pool with these settings first, and what they put highest again with their own: here by
the gradients of the dense layers alone, without noisy copies.
"""
LOOKS: Looks = {
    **NARROW_LOOKS,
    **{method: (_DENSE,) for method in ("negrad", "ungrad", "gradnorm")},
    **{method: ({"samples": 10},) for method in ("perturb_x", "perturb_theta", "mc_aa", "inserted_dropout")},
}
"""The same for every method."""


@dataclass(frozen=True)
class Size:
    """Seeds by data set, acquisitions, epochs; so many pictures of the pool and of validation; rows by data set.

    A set without rows of its own has all; on the sets in `later` the other rows are a run of their own, after these.
    whole: the sets whose pool is all there is. looks: how dear scores see the pool first; of `again` pictures the one
    that is put highest is seen again.
    """

    seeds: Mapping[str, tuple[int, ...]]
    acquisitions: int = 10
    epochs: int = 200
    pool: int | None = None
    validation: int | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    later: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()
    looks: Looks = field(default_factory=lambda: LOOKS)
    again: int = 20


SIZES = {
    "smoke": Size(dict.fromkeys(SETS, (0,)), acquisitions=2, epochs=3, pool=100),
    "small": Size(
        {"mnist": (0, 1, 2, 3, 4)},
        acquisitions=5,
        pool=10_000,
        validation=1000,
        rows={"mnist": FEW},
        looks=NARROW_LOOKS,
        again=100,
    ),
    "quick": Size(
        {"mnist": (0, 1, 2, 3, 4), "svhn": (0, 1, 2, 3, 4), "cifar10": (0, 1, 2), "cifar100": (0,)},
        pool=10_000,
        validation=2000,
        rows={"svhn": SIX, "cifar10": SIX, "cifar100": FEW},
        later=("svhn", "cifar10"),
        whole=("svhn", "cifar10", "cifar100"),
    ),
}


class Race:
    """All methods on one data set and seed, cycle after cycle."""

    def __init__(self, known: str, rows: Sequence[Row], seed: int, job: Job) -> None:
        small = job.parts.scale.bundled
        self.known, self.rows, self.seed, self.job = known, rows, seed, job
        name, self.device = "digits" if small else known, job.parts.device
        train, test = (data.load_set(name, split, root=job.parts.root) for split in ("train", "test"))
        self.pictures, self.labels = train.x, train.y
        self.test_x, self.test_y = test.x.to(self.device), test.y
        first, self.added = (20, 10) if small else FIRST[known]
        ends = {"first": 400, "second": 500} if small else {}
        split = by_index(train.y.numpy(), first, seed, **ends)
        self.size = size_of(SIZES, job.parts.scale)
        most = None if known in self.size.whole else self.size.pool
        pool = np.random.default_rng(seed).permutation(split.pool)[:most]
        self.split = split._replace(pool=np.sort(pool), validation=split.validation[: self.size.validation])
        kernel = {"kernel": 3} if train.x.shape[2] < 16 else {}
        cnn = zoo.small_cnn(train.x.shape[1], train.x.shape[2], len(train.classes), seed=seed, **kernel)
        self.network = Normalised(cnn, *STATISTICS[name]).to(self.device).eval()
        # MNIST's networks are small, and its runs were made in TF32
        recipe = replace(SGD, epochs=self.size.epochs, precision=None if known == "mnist" else "bfloat16")
        x, y = train.x.to(self.device), train.y.to(self.device)
        self.trainer = Trainer(self.network, x, y, recipe, every=min(EVERY, recipe.epochs))
        self.labelled = [np.asarray(self.split.initial) for _ in rows]

    def run(self) -> list[dict[str, Any]]:
        """Return a cell for each method: its curves over the start and all acquisitions."""
        curves: list[dict[str, list[float]]] = [{"labels": [], "acc": [], "nll": [], "twice": []} for _ in self.rows]
        start = stacked([self.network] * len(self.rows))
        validation = torch.as_tensor(self.split.validation, device=self.device)
        path = kept(self.job, self.known, self.rows, self.seed, "-begun")
        begun = read_json(path)
        if begun is not None:
            curves, self.labelled = begun["curves"], [np.array(own) for own in begun["labelled"]]
        for cycle in range(len(curves[0]["labels"]), self.size.acquisitions + 1):
            self.job.check()
            different = len(self.rows) if cycle else 1  # the first network is the same for all
            indices = torch.as_tensor(np.stack(self.labelled[:different]), device=self.device)
            begin = {name: value[:different] for name, value in start.items()}
            seeds = [1000 * cycle + self.seed] * different
            state = self.trainer.train(begin, indices, validation, seeds, self.job.check)
            state = {name: value.expand(len(self.rows), *value.shape[1:]) for name, value in state.items()}
            for curve, reached, own in zip(curves, self._measured(state), self.labelled, strict=True):
                curve["labels"].append(len(own))
                for name, value in reached.items():
                    curve[name].append(value)
            accuracy = fmean(curve["acc"][-1] for curve in curves)
            self.job.say(f"{self.known}, seed {self.seed}, cycle {cycle}: {100 * accuracy:.2f} % right on average")
            if cycle < self.size.acquisitions:
                self._acquire(state, cycle)
                write_json(path, {"curves": curves, "labelled": [own.tolist() for own in self.labelled]})
        path.unlink(missing_ok=True)
        return [
            {
                "row": row.label,
                "column": self.known,
                "seed": self.seed,
                "curve": curve,
                "metrics": {name: fmean(curve[name][1:]) for name in ("acc", "nll", "twice")},
            }
            for row, curve in zip(self.rows, curves, strict=True)
        ]

    def _measured(self, state: State) -> list[dict[str, float]]:
        """Return accuracy, NLL and cross-entropy of softmax outputs of each network on the test pictures."""
        blocks = [block.cpu() for _, block in self.trainer.answers(state, self.test_x)]
        probabilities = torch.cat(blocks, 1).double().softmax(2)
        return [
            {**metrics.answers(p, self.test_y), "twice": float(F.cross_entropy(p, self.test_y))} for p in probabilities
        ]

    def _acquire(self, state: State, cycle: int) -> None:
        """Add to each run the pictures of the pool that its network doubts most."""
        for at, row in enumerate(self.rows):
            self.job.check()
            pool = np.setdiff1d(self.split.pool, self.labelled[at])
            if row.method == RANDOM:
                chosen = np.random.default_rng([self.seed, cycle]).permutation(pool)[: self.added]
            else:
                put_into(self.network, state, at)
                values = self._scores(row, self.labelled[at], pool)
                chosen = pool[torch.argsort(values, descending=True, stable=True)[: self.added].numpy()]
            self.labelled[at] = np.concatenate([self.labelled[at], chosen])

    def _scores(self, row: Row, labelled: Any, pool: Any) -> Tensor:
        """Return the doubt of each picture; what would take many draws only where a first look puts it high."""
        method = made(row, self.known, self.job.parts.scale, self.seed)
        if must_be_fitted(method):
            own = torch.as_tensor(labelled)
            method = fit(self.network, method, (to_floats(self.pictures[own]), self.labels[own]), progress=False)
        values = torch.full((len(pool),), -torch.inf, dtype=torch.float64)
        left = torch.arange(len(pool))
        for look in self.size.looks.get(row.method, ()):
            rough = self._scored(replace(method, **look), pool[left.numpy()])
            left = left[rough.topk(max(self.added, len(left) // self.size.again)).indices]
        return values.index_put((left,), self._scored(method, pool[left.numpy()]).to(values))

    def _scored(self, method: Any, pool: Any) -> Tensor:
        blocks = torch.as_tensor(pool).split(BLOCK)
        with full_products():  # steps of 1e-4 are lost in TF32
            return score(self.network, (to_floats(self.pictures[block]) for block in blocks), method, progress=False)


def program(job: Job) -> Made:
    """Run all methods and seeds of each set, and set every method beside random acquisition."""
    cells: list[dict[str, Any]] = []
    seeds_of: dict[str, list[int]] = {}
    size = size_of(SIZES, job.parts.scale)
    for known in SETS:
        asked = known in size.seeds and known in (job.sets or SETS)
        seeds_of[known] = list(job.seeds or size.seeds[known]) if asked else []
        for run, seed in product(_runs(known, size), seeds_of[known]):
            path = kept(job, known, run, seed)
            try:
                cells += kept_json(path, partial(_run, known, run, seed, job))
            except (TimeOver, NescioError) as error:
                cells += [{"row": r.label, "column": known, "seed": seed, "reason": why_not(error)} for r in run]
        done = {cell["row"] for cell in cells if cell["column"] == known}
        reason = f"not run at the scale {job.parts.scale.name}" if known in (job.sets or SETS) else NOT_ASKED
        cells += [
            {"row": r.label, "column": known, "seed": "all", "reason": reason} for r in ROWS if r.label not in done
        ]
    gains = [_over_random(cell, cells) for cell in cells if cell["row"] != "Random"]
    settings = {"seeds": seeds_of, **{name: value for name, value in asdict(size).items() if name != "seeds"}}
    return Made([cells, gains], [*label_charts.gains(gains), label_charts.identity(cells)], settings)


def _runs(known: str, size: Size) -> list[list[Row]]:
    """Return the rows of each run on a data set, in the order of the runs."""
    first = [row for row in ROWS if row.label in size.rows.get(known, (row.label,))]
    rest = [row for row in ROWS if row not in first and known in size.later]
    return [first, rest] if rest else [first]


def kept(job: Job, known: str, rows: Sequence[Row], seed: int, ending: str = "") -> Path:
    """Return the file of a run; its name holds a digest of all settings, so that none is taken for another."""
    size = replace(size_of(SIZES, job.parts.scale), seeds={}, later=())  # more runs leave a run as it is
    settings = repr((size, rows, EVERY, job.parts.scale.bundled))
    return job.work / "acquisition" / f"{known}-{seed}-{digest(settings)}{ending}.json"


def _run(known: str, rows: Sequence[Row], seed: int, job: Job) -> list[dict[str, Any]]:
    job.check()
    return Race(known, rows, seed, job).run()


def _over_random(cell: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return by how much a run is better than random acquisition with the same data set and seed."""
    if "reason" in cell:
        return dict(cell)
    random = [
        other["metrics"]["acc"]
        for other in cells
        if "metrics" in other
        and (other["row"], other["column"], other["seed"]) == ("Random", cell["column"], cell["seed"])
    ]
    place = {name: cell[name] for name in ("row", "column", "seed")}
    if not random:
        return {**place, "reason": "not run: random acquisition, which it is set beside, was not run"}
    return {**place, "metrics": {"gain": float(cell["metrics"]["acc"] - random[0])}}


STUDY = Study(
    "acquisition",
    "Active learning with the paper's protocol, five seeds",
    (
        Part(
            "Means over the acquisitions",
            "program",
            pairs(" ".join(SETS)),
            ROWS,
            ("acc", "twice", "nll"),
            {row: {known: cells[known] for known in SETS} for row, cells in table3.PAPER.items()},
            "each",
        ),
        Part(
            "Accuracy over random acquisition with the same seed",
            "program",
            pairs(" ".join(SETS)),
            tuple(row for row in ROWS if row.method != RANDOM),
            ("gain",),
        ),
    ),
    (
        "Settings were written down before the run (`regrad/protocol.md`). 200 epochs, ten acquisitions; the network "
        "before the first one is not averaged in. The pool: every picture above index 20,000, of MNIST 10,000 of them. "
        "2,000 pictures for validation, after every twentieth epoch. Scores that need many draws see the whole pool "
        "with few, gradients by the dense layers, and its most doubted twentieth with all. On SVHN and CIFAR-10 six "
        "rows are run first, and the others after them; CIFAR-100 has four. Training on a GPU is in bfloat16, on MNIST "
        "in TF32. At the scale small: MNIST alone, four methods, 10,000 pictures of the pool, 1,000 for validation, "
        "five acquisitions, and the most doubted hundredth seen again.",
        "`NLL of softmax outputs` is what the paper's Table 3 seems to print: its NLL stands there. Gradient baselines "
        "are in L2.",
        "REGrad* takes eight paired copies.",
        SVHN,
    ),
    program,
)
