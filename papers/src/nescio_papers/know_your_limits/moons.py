"""Half-moons: which models know, far away from the data, that they do not know? Figures 2 and 3 of the supplement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nescio import evaluate, scores
from nescio.posteriors import DeepEnsemble, MCDropout, PosteriorBase
from nescio_papers.know_your_limits import drawing as draw
from nescio_papers.know_your_limits import moon_figures as figures
from nescio_papers.know_your_limits.doubts import METRICS, reader, single
from nescio_papers.know_your_limits.half_moons import Moons, between, half_moons
from nescio_papers.know_your_limits.models import Net, Plan, Trainer, accuracy
from nescio_papers.runner.cells import kept_json
from nescio_papers.runner.program import Figure, Job, Made
from nescio_papers.runner.scale import size_of
from nescio_papers.runner.study import Column, Part, Row, Study

PAPER = ("one network", "temperature-scaled", "MC dropout", "ensemble", "anchored ensemble")
MODELS = (*PAPER, "Bayes by backprop", "evidential", "Laplace")
OFF = "dropout left off"
TABLED = tuple(name for name in MODELS if name != "temperature-scaled")  # which orders inputs as one network does
PLACES = {"between": 0.0, "2×": 2.0, "10×": 10.0, "100×": 100.0}
METHODS: Mapping[str, Any] = {
    "REGrad": scores.get("regrad", layer_decay=None, samples=0),
    "REGrad, k = 1": scores.get("regrad", layer_decay=None, samples=0, power=1),
    "EvenGrad": scores.get("evengrad", samples=0),
    "ExGrad": scores.get("exgrad"),
    "UNGrad": scores.get("ungrad"),
    "GradNorm": scores.get("gradnorm"),
    "Energy": scores.get("energy"),
    "Mahalanobis": scores.get("mahalanobis"),
    "KNN": scores.get("knn"),
}
SHOWN = ("REGrad", "EvenGrad", "ExGrad", "UNGrad", "GradNorm")


@dataclass(frozen=True)
class Size:
    """How large the study is: pixels along a side, points, networks, samples, epochs and the points of a ring."""

    n: int
    training: int
    held_out: int
    members: int
    samples: int
    epochs: int
    longer: int
    ring: int
    seeds: tuple[int, ...]


SIZES = {
    "smoke": Size(10, 100, 50, 2, 4, 8, 3, 20, (0,)),
    "quick": Size(56, 500, 250, 10, 50, 30, 100, 250, (0, 1, 2)),
    "paper": Size(140, 500, 250, 10, 100, 60, 300, 1000, (0, 1, 2, 3, 4)),
}


def _rows() -> tuple[Row, ...]:
    rows = []
    for model in TABLED:
        metrics = METRICS[:2] if model == "one network" else METRICS
        note = "" if model in PAPER else "not in the paper's figures"
        rows += [Row(f"{model}, {metric.replace('_', ' ')}", metric, note=note) for metric in metrics]
    code = "what the paper's public code computes"
    rows += [Row(f"{model}, public code's MI", "published", note=code) for model in PAPER[2:]]
    rows += [Row(f"{OFF}, {word}", "published", note=code) for word in ("entropy", "public code's MI")]
    training = {"Mahalanobis", "KNN"}
    rows += [
        Row(f"one network, {label}", label, note="needs the training data" if label in training else "")
        for label in METHODS
    ]
    return tuple(rows)


PART = Part(
    "Is what lies between the moons, or far away, told from held-out points?",
    "program",
    tuple(Column("moons", place) for place in PLACES),
    _rows(),
    ("auroc",),
)


def program(job: Job) -> Made:
    """Train, measure, draw."""
    size = size_of(SIZES, job.parts.scale)
    cells: list[dict[str, Any]] = []
    models: list[dict[str, Any]] = []
    drawn: list[Figure] = []
    seeds = job.seeds or size.seeds
    for number, seed in enumerate(seeds):
        data = half_moons(seed, size.training, size.held_out)
        trainer = _trainer(job, data, size, seed, printed=False)
        posteriors = trainer.all(MODELS if number == 0 else TABLED)
        models += [_model(name, trainer, one, "") for name, one in posteriors.items()]
        job.say(f"half-moons, seed {seed}: trained, {100 * models[-len(posteriors)]['accuracy']:.1f} % right")
        own = figures.Scores(trainer.one, METHODS, (data.x, data.y))
        path = job.work / "limits" / "moons" / f"table-{size.ring}-{trainer.mark}.json"
        cells += kept_json(path, partial(_cells, posteriors, own, data, size, seed, job.check))
        if number == 0:
            printed = _trainer(job, data, size, seed, printed=True)
            as_printed = printed.all(PAPER)
            models += [_model(name, printed, one, ", as printed") for name, one in as_printed.items()]
            drawn = _figures(job, size, data, trainer, posteriors, own, printed, as_printed)
    about = f"{size.training} points to train on and {size.held_out} held out, noise 0.125, for each seed"
    return Made(
        [cells],
        drawn,
        {"seeds": {"moons": list(seeds)}, "size": {k: v for k, v in vars(size).items() if k != "seeds"}},
        models,
        [{"name": "half-moons", "about": about, "pictures": size.held_out}],
    )


def _trainer(job: Job, data: Moons, size: Size, seed: int, printed: bool) -> Trainer:
    """Return the trainer as the supplement prints it, or with a rate at which the moons are learned."""
    one, two = (0.000538, 0.000526) if printed else (0.005, 0.005)
    plan = Plan(
        Net((25, 25, 25), 0.014552, one),
        Net((25, 25, 25, 25), 0.205046, two),
        epochs=min(20, size.epochs) if printed else size.epochs,
        patience=5 if printed else None,
        members=size.members,
        samples=size.samples,
        longer_epochs=size.longer,
    )
    held = data.held_x, data.held_y
    return Trainer((data.x, data.y), held, plan, seed, job.work / "limits" / "moons", job.check)


def _model(name: str, trainer: Trainer, posterior: PosteriorBase, as_printed: str) -> dict[str, Any]:
    return {
        "plan": f"{name}{as_printed}",
        "seed": trainer.seed,
        "accuracy": accuracy(posterior, trainer.held_out),
        "seconds": trainer.seconds(name),
        "about": "the supplement's rate, 20 epochs at most" if as_printed else "rate 0.005",
    }


def _off(dropout: PosteriorBase) -> DeepEnsemble:
    """Return the dropout network as the public code predicts with it: ten times in eval mode, dropout off."""
    return DeepEnsemble(list(dropout.roots) * 10)


def _ten(dropout: PosteriorBase) -> PosteriorBase:
    """Return MC dropout with ten samples, as the public code takes them."""
    return MCDropout(dropout.roots[0], samples=10)


def _cells(
    posteriors: Mapping[str, PosteriorBase],
    own: figures.Scores,
    data: Moons,
    size: Size,
    seed: int,
    check: Callable[[], None],
) -> list[dict[str, Any]]:
    places = {name: data.ring(radius, size.ring) if radius else between() for name, radius in PLACES.items()}
    x = torch.cat([data.held_x, *places.values()])
    values: dict[str, Tensor] = {}
    for name in TABLED:
        check()
        one = posteriors[name]
        every = reader(one)(x)
        values |= {f"{name}, {m.replace('_', ' ')}": every[m] for m in (METRICS[:2] if single(one) else METRICS)}
    for name in PAPER[2:]:
        ten = _ten(posteriors[name]) if name == "MC dropout" else posteriors[name]
        values[f"{name}, public code's MI"] = reader(ten)(x)["published"]
    off = reader(_off(posteriors["MC dropout"]))(x)
    values |= {f"{OFF}, entropy": off["entropy"], f"{OFF}, public code's MI": off["published"]}
    values |= {f"one network, {label}": value for label, value in own.all(x).items()}
    cells = []
    for row, value in values.items():
        known, *rest = value.detach().split([len(data.held_x), *map(len, places.values())])
        for place, foreign in zip(places, rest, strict=True):
            auroc = evaluate.ood(known.numpy(), foreign.numpy(), bootstrap=0).auroc
            cells.append({"row": row, "column": f"moons→{place}", "seed": seed, "metrics": {"auroc": auroc}})
    return cells


def _figures(
    job: Job,
    size: Size,
    data: Moons,
    trainer: Trainer,
    posteriors: Mapping[str, PosteriorBase],
    own: figures.Scores,
    printed: Trainer,
    as_printed: Mapping[str, PosteriorBase],
) -> list[Figure]:
    folder = job.work / "limits" / "moons"
    keep = figures.Kept(folder, trainer.mark, size.n, job.check)
    values, slopes = figures.models_by_metric(posteriors, keep, data)
    old, _ = figures.models_by_metric(as_printed, figures.Kept(folder, printed.mark, size.n, job.check), data)
    by_model = figures.measured(posteriors, data, size.ring)
    other = figures.Scores(printed.one, METHODS, (data.x, data.y))
    shares = [accuracy(one, (data.held_x, data.held_y)) for one in as_printed.values()]
    return [
        figures.grid(
            values, data, "Uncertainty over the plane",
            "Every model (row) by every metric (column); light is certain, dark uncertain, on one scale for a column: "
            "the paper's, with entropy and mutual information in bits. Orange and blue: the training points. The last "
            "three rows are not in the paper, which found no setting for Bayes by backprop.",
            "Surfaces of four uncertainties for eight models on half-moons", "kyl-values",
        ),
        figures.grid(
            slopes, data, "How much uncertainty still changes with the input",
            "The size of the gradient of each panel above by the input, from autograd, on a logarithmic scale from "
            "10⁻⁶ (pale: nothing changes any more) to 1. Away from the data it falls to 0 except along the "
            "boundaries of the networks, which is what Propositions 1 and 2 and Lemmas 4 to 7 say.",
            "Gradient magnitudes of four uncertainties for eight models", "kyl-slopes",
            limits=figures.slope_limits(list(figures.LIMITS)), log=True, colours=draw.SLOPE,
        ),
        figures.numbers(by_model, "All is of the networks of the first seed."),
        figures.distances(by_model),
        figures.published({**posteriors, "MC dropout": _ten(posteriors["MC dropout"])},
                          _off(posteriors["MC dropout"]), keep, data),
        *figures.by_score({"trained": own, "as printed": other}, SHOWN, keep, data),
        figures.grid(
            old, data, "As the supplement prints it",
            "The paper's five models with its own rate (0.0005) and at most 20 epochs of eight steps. That is too "
            f"short to learn the moons from 500 points: {100 * min(shares):.0f} to {100 * max(shares):.0f} % of the "
            "held-out points are right, and the boundary is nearly straight. All other pictures here are of networks "
            "that were trained at ten times that rate.",
            "Surfaces of four uncertainties for five models that were trained for 20 epochs", "kyl-printed",
        ),
    ]  # fmt: skip


STUDY = Study(
    "kyl-moons",
    "Half-moons: where models are certain, and where their uncertainty stands still",
    (PART,),
    (
        "Ulmer and Cinà, “Know your limits” (2021), supplement B. The paper has pictures and no numbers, so there is "
        "nothing to set beside ours but its descriptions.",
        "AUROC of places against held-out points: 100 means that every place has more doubt than every held-out "
        "point, 50 that the score cannot tell. 2×, 10× and 100× are rings around the data, in units of their radius. A "
        "temperature has no rows: for two classes it leaves the order of inputs as it is.",
        "What the public code calls mutual information is a constant less the aleatoric part: it is high wherever the "
        "samples are sure of themselves. So it tells far places from data only because networks are surer there, and "
        "calls places between the moons the least uncertain of all.",
        "At the scale quick: three seeds, a grid of 56 × 56, ensembles of 10, 50 samples of dropout, Laplace and Bayes "
        "by backprop (10 where the public code's formula is shown). Pictures are of the first seed.",
        "Networks as in the supplement: three layers of 25 units (MC dropout: four), ReLU, its dropout rates, Adam, "
        "batches of 64. Ours are trained at a rate of 0.005.",
    ),
    program,
)
