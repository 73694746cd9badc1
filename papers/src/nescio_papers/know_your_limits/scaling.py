"""Tables of numbers with one feature scaled up: does a score see that something is badly wrong?

Every feature of the standardised test inputs is multiplied by 10, 100, 1,000 and 10,000 in turn, and the scaled inputs
are to be told from the same inputs as they were, by AUROC: the mean over the features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio import evaluate, scores
from nescio._common.lazy_imports import need
from nescio.posteriors import PosteriorBase
from nescio.scoring import score
from nescio_papers.know_your_limits.doubts import METRICS, reader, single
from nescio_papers.know_your_limits.models import Net, Plan, Trainer, accuracy
from nescio_papers.runner.cells import kept_json
from nescio_papers.runner.drawing import curves, svg
from nescio_papers.runner.program import Figure, Job, Made
from nescio_papers.runner.scale import size_of
from nescio_papers.runner.study import Column, Part, Row, Study

SETS = {"breast cancer": "load_breast_cancer", "wine": "load_wine"}
SCALES = (10, 100, 1000, 10000)
MODELS = ("one network", "MC dropout", "ensemble", "anchored ensemble", "Bayes by backprop", "evidential", "Laplace")
METHODS: Mapping[str, Any] = {
    "REGrad": scores.get("regrad", layer_decay=None, samples=0),
    "REGrad, k = 1": scores.get("regrad", layer_decay=None, samples=0, power=1),
    "REGrad*": scores.get("regrad", sigma=0.02),
    "EvenGrad": scores.get("evengrad"),
    "ExGrad": scores.get("exgrad"),
    "UNGrad": scores.get("ungrad"),
    "GradNorm": scores.get("gradnorm"),
    "GradNorm as published": scores.get("gradnorm", as_published=True),
    "ExGrad V term": scores.get("exgrad_v"),
    "energy": scores.get("energy"),
    "GEN": scores.get("gen"),
    "perturb x": scores.get("perturb_x", samples=20),
    "perturb θ": scores.get("perturb_theta", samples=20),
    "MC-AA": scores.get("mc_aa", samples=20),
    "inserted dropout": scores.get("inserted_dropout", samples=20),
    "Mahalanobis": scores.get("mahalanobis"),
    "KNN": scores.get("knn"),
    "KNN, lengths kept": scores.get("knn", normalise=False),
}
FITTED = ("Mahalanobis", "KNN", "KNN, lengths kept")
DRAWN = (
    "one network: entropy",
    "ensemble: entropy",
    "ensemble: mutual information",
    "Laplace: mutual information",
    "one network: REGrad",
    "one network: EvenGrad",
    "one network: UNGrad",
    "one network: GradNorm",
    "one network: Mahalanobis",
)


@dataclass(frozen=True)
class Size:
    """How many members, samples, epochs, test inputs and features there are at most, and which seeds."""

    members: int
    samples: int
    epochs: int
    longer: int
    tests: int
    features: int
    seeds: tuple[int, ...]


SIZES = {
    "smoke": Size(2, 3, 2, 2, 12, 2, (0,)),
    "quick": Size(5, 30, 20, 40, 40, 30, (0, 1, 2)),
    "paper": Size(10, 100, 60, 150, 200, 30, (0, 1, 2, 3, 4)),
}


def _rows() -> tuple[Row, ...]:
    rows = []
    for model in MODELS:
        own = METRICS[:2] if model == "one network" else METRICS
        rows += [Row(f"{model}: {metric.replace('_', ' ')}", metric) for metric in own]
    rows += [
        Row(f"one network: {label}", label, note="needs the training data" if label in FITTED else "")
        for label in METHODS
    ]
    return tuple(rows)


PART = Part(
    "Inputs with one feature scaled up, told from the same inputs as they were",
    "program",
    tuple(Column(name, f"×{scale:,}") for name in SETS for scale in SCALES),
    _rows(),
    ("auroc",),
)


@dataclass(frozen=True)
class Split:
    """Standardised inputs: training, validation and test."""

    training: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def split(name: str, seed: int) -> Split:
    """Split a set at random into 60, 15 and 25 %, standardised by the mean and spread of the training inputs."""
    bunch = getattr(need("sklearn.datasets", "demo"), SETS[name])()
    x, y = torch.from_numpy(bunch.data).double(), torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    one, two = int(0.6 * len(x)), int(0.75 * len(x))
    training, held_out, test = order[:one], order[one:two], order[two:]
    x = (x - x[training].mean(0)) / x[training].std(0)
    return Split(*((x[part], y[part]) for part in (training, held_out, test)))


def scaled(x: Tensor, feature: int, factor: float) -> Tensor:
    """Return the inputs with one feature multiplied."""
    copy = x.clone()
    copy[:, feature] *= factor
    return copy


def program(job: Job) -> Made:
    """Train, scale, score."""
    size = size_of(SIZES, job.parts.scale)
    seeds = job.seeds or size.seeds
    cells: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    for name in SETS:
        for seed in seeds:
            parts = split(name, seed)
            plan = Plan(
                Net((50, 50), 0.0, 0.003), Net((50, 50), 0.2, 0.003), size.epochs, 32, None,
                size.members, size.samples, size.longer,
            )  # fmt: skip
            trainer = Trainer(parts.training, parts.held_out, plan, seed, job.work / "limits" / "scaling", job.check)
            made = trainer.all(MODELS)
            for label, one in made.items():
                right = accuracy(one, parts.test)
                about = "two layers of 50 ReLU units"
                took = trainer.seconds(label)
                models.append(
                    {"plan": f"{name}, {label}", "seed": seed, "accuracy": right, "seconds": took, "about": about}
                )
            path = job.work / "limits" / "scaling" / f"table-{size.tests}-{size.features}-{trainer.mark}.json"
            cells += kept_json(path, partial(_cells, name, seed, parts, trainer, made, size, job))
            job.say(f"{name}, seed {seed}: {100 * models[-len(MODELS)]['accuracy']:.1f} % right")
    sets = [
        {"name": name, "about": f"scikit-learn's {how}, standardised", "pictures": len(split(name, 0).test[0])}
        for name, how in SETS.items()
    ]
    settings = {
        "seeds": {name: list(seeds) for name in SETS},
        "size": {k: v for k, v in vars(size).items() if k != "seeds"},
    }
    return Made([cells], [_figure(cells)], settings, models, sets)


def _cells(
    name: str, seed: int, parts: Split, trainer: Trainer, made: Mapping[str, PosteriorBase], size: Size, job: Job
) -> list[dict[str, Any]]:
    x = parts.test[0][: size.tests]
    features = range(min(size.features, x.shape[1]))
    every = torch.cat([x, *(scaled(x, feature, factor) for factor in SCALES for feature in features)])
    values: dict[str, Tensor] = {}
    for model, one in made.items():
        job.check()
        read = reader(one)
        with torch.no_grad():
            blocks = [{m: v.detach() for m, v in read(block).items()} for block in every.split(1024)]
        for metric in METRICS[:2] if single(one) else METRICS:
            values[f"{model}: {metric.replace('_', ' ')}"] = torch.cat([block[metric] for block in blocks])
    for label, method in METHODS.items():
        job.check()
        fit = parts.training if label in FITTED else None
        values[f"one network: {label}"] = score(trainer.one, every, method, fit=fit, chunk=1024, progress=False)
    cells = []
    for row, value in values.items():
        known, *rest = value.split(len(x))
        for at, factor in enumerate(SCALES):
            own = rest[at * len(features) : (at + 1) * len(features)]
            aurocs = [evaluate.ood(known.numpy(), part.numpy(), bootstrap=0).auroc for part in own]
            cells.append(
                {"row": row, "column": f"{name}→×{factor:,}", "seed": seed, "metrics": {"auroc": fmean(aurocs)},
                 "lowest": min(aurocs)}
            )  # fmt: skip
    return cells


def _figure(cells: list[dict[str, Any]]) -> Figure:
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name in SETS:
        panels[name] = {}
        for row in DRAWN:
            line = []
            for factor in SCALES:
                own = [c["metrics"]["auroc"] for c in cells if c["row"] == row and c["column"] == f"{name}→×{factor:,}"]
                line.append((float(factor), 100 * float(np.mean(own))))
            panels[name][row] = line
    figure = curves(panels, "factor of one feature", ylabel="AUROC, %", width=4.4, columns=2)
    alt = "AUROC by the factor of one feature, for nine scores on two data sets"
    return Figure(
        "AUROC by the factor",
        "Mean over features and seeds. Below 50 a score calls the scaled inputs more certain than the originals: the "
        "further away, the surer. Scores made of one network's probabilities fall there, and so do REGrad, EvenGrad "
        "and ExGrad, which weigh the lengths of gradients by probabilities that vanish faster than the lengths grow. "
        "Disagreement of several networks stands still, often below 50. What sees it is the length of gradients "
        "without those weights (UNGrad, GradNorm with its sign turned back) and the distance from training data.",
        alt,
        svg(figure, alt, "kyl-scaling"),
    )


STUDY = Study(
    "kyl-scaling",
    "One feature of a table scaled up: AUROC of each score against the factor",
    (PART,),
    (
        "After the experiment of Ulmer and Cinà, “Know your limits” (2021). The supplement has no numbers for it, so "
        "there are none to set beside ours; the data here are the two tables that come with scikit-learn.",
        "Each feature of the standardised test inputs is multiplied in turn, and the AUROC is the mean over features, "
        "± over seeds; 50 means that a score cannot tell, below 50 that it calls what was scaled more certain.",
        "Temperature scaling has no rows: it hardly changes the order of inputs that one network's probabilities give. "
        "At the scale quick: at most 40 test inputs, ensembles of 5, 30 samples, three seeds; perturbations "
        "take 20 draws.",
    ),
    program,
)
