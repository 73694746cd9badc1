"""Is it the map, or is it a temperature? Table 2 of the UA-Backprop paper again, with a control for every row.

Attention multiplies features by 1 + αA while a network is trained, and not when it is tested: its logits are then
smaller than those it learned to give, which softens its answers. So each row has a control, a flat map with the mean of
that row's attention, and the likelihood is also measured after temperature scaling, which no softening survives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio import evaluate, mitigate
from nescio._common.lazy_imports import need
from nescio.mitigate.map_attention import Normalise
from nescio_papers.runner import metrics
from nescio_papers.runner.parts import Pictures
from nescio_papers.runner.program import Job, Made
from nescio_papers.runner.scoring import attempted
from nescio_papers.runner.study import Column, Part, Row, Study, pairs
from nescio_papers.ua_backprop import charts
from nescio_papers.ua_backprop.columns import Cells, Told, by_column
from nescio_papers.ua_backprop.ensemble import BATCH
from nescio_papers.ua_backprop.retraining import APART, NONE, Few
from nescio_papers.ua_backprop.rows import CONTROLS, OURS, RIVALS
from nescio_papers.ua_backprop.sizes import sizes_of, words
from nescio_papers.zoo.plans import to_floats

HELD = 1000
"""Training pictures that α and the temperature are chosen on; the networks are trained on others."""
STRENGTHS: Mapping[str, tuple[float, ...]] = {"range": (0.0, 2.0, 8.0), "softmax": (0.0, 500.0, 2000.0)}
"""α, by how a map is brought to one scale: by its range A is up to ¼, by a softmax about 1 of the number of pixels."""
METHODS = (OURS, *(row for row in RIVALS if row.label in ("Grad", "IG")), CONTROLS[0])
FLAT = ", flat"
"""After a row's label: its control."""
WITHOUT = Row("No attention", NONE)
PRINTED = Row(f"{OURS.label}, as printed", OURS.method, {**OURS.settings, "scale": "softmax", "alpha": 8.0})
"""Softmax, and an α that is not raised to make up for it."""
FEW_METHODS = ("ua_backprop", "random", NONE)
"""What is run first, and alone on CIFAR-10, which takes longer, and on one core of a processor."""
COLUMNS = pairs("mnist svhn cifar10")


def _rows() -> tuple[Row, ...]:
    rows = [
        Row(f"{row.label}, {scale}{flat}", row.method, {**row.settings, "scale": scale, "flat": bool(flat)})
        for row in METHODS
        for scale in STRENGTHS
        for flat in ("", FLAT)
    ]
    return (*rows, PRINTED, WITHOUT)


ROWS = _rows()
PART = Part(
    "Tested on pictures as they are", "program", COLUMNS, ROWS, ("acc", "nll", "tempered", "factor"), averages="each"
)
NOTES = (
    "Hypotheses and settings were written down before the run (`ua_backprop/protocol.md`).",
    "Maps are of epistemic uncertainty of an ensemble that was trained on the same pictures alone, which are drawn at "
    "random. “range” brings a map to [0, 1]; “softmax” is what the paper prints. “flat” is the control of the row "
    "above it: the mean of its attention at every pixel, with the same α.",
    "“as printed” has α = 8 with the softmax, which leaves 1 + αA within 8 parts of the number of pixels of 1. On "
    "CIFAR-10 UA-Backprop and random maps alone are run.",
    f"α is that with the lowest NLL on {HELD:,} training pictures that no network was trained on; the temperature is "
    "fitted on them too. “factor” is the mean of 1 + αA, by which features are larger in training than in the test.",
)


@dataclass(frozen=True)
class Held:
    """Pictures and labels that choose α and the temperature."""

    x: Tensor
    y: Tensor


def tempered(held: Tensor, held_y: Tensor, p: Tensor) -> Tensor:
    """Return probabilities [N, C] after temperature scaling, fitted on held-out probabilities and labels."""
    optimize = need("scipy.optimize", "data")

    def scaled(values: Tensor, log_t: float) -> Tensor:
        return (values.clamp(min=1e-300).log() / np.exp(log_t)).softmax(1)

    found = optimize.minimize_scalar(
        lambda log_t: evaluate.nll(scaled(held, log_t), held_y), bounds=(-3.0, 3.0), method="bounded"
    )
    return scaled(p, float(found.x))


def program(job: Job) -> Made:
    """The cells, data set by data set, run by run, and the temperature as a figure."""
    sizes = sizes_of(job.parts.scale)
    seeds = tuple(range(sizes.runs)) if job.seeds is None else job.seeds
    told = Told()
    cells = by_column(job, (PART,), COLUMNS, lambda column: _column(job, column, seeds, told))
    by_plan = {column.plan: list(seeds) for column in COLUMNS}
    settings = {"seeds": by_plan, "strengths": STRENGTHS, "epochs": sizes.epochs, "few": dict(sizes.few)}
    return Made(cells, charts.temperature(cells[0]), settings, told.models, told.sets, [words(job.parts.scale)])


def _column(job: Job, column: Column, seeds: Sequence[int], told: Told) -> list[Cells]:
    test = job.parts.known(column.known)
    sizes = sizes_of(job.parts.scale)
    tested = min(len(test.x), sizes.tested or len(test.x))
    here = [row for row in ROWS if row.method in FEW_METHODS]
    if column.known != "cifar10" and job.parts.scale.name != "small":
        here += [row for row in ROWS if row not in here]
    cells: Cells = []
    for seed in seeds:
        few, held = drawn(job, column.known, seed)
        told.add(few.case, job.parts.known(column.known, "train"), test)
        run = _Run(few, seed, held, test, tested)
        for row in here:
            entry = {"row": row.label, "column": column.key, "seed": seed}
            cells.append(attempted(entry, partial(run.judged, row)))
    return [cells]


def drawn(job: Job, known: str, seed: int) -> tuple[Few, Held]:
    """Return the few training pictures of a run with their ensemble, and held-out ones: other pictures in each run."""
    train = job.parts.known(known, "train")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(train.x)))
    mixed = replace(train, x=train.x[order], y=train.y[order], id=f"{train.id}-mixed-{seed}")
    few = Few.of(job, known, mixed, job.parts.known(known))
    start = len(few.x)
    return few, Held(mixed.x[start : start + HELD], mixed.y[start : start + HELD])


Trained = tuple[mitigate.Mitigated, float]


@dataclass
class _Run:
    """One run: its pictures, and the network without attention, which is the same for all rows."""

    few: Few
    seed: int
    held: Held
    test: Pictures
    tested: int

    @cached_property
    def plain(self) -> dict[str, float]:
        """What the network of α = 0 reaches."""
        return self._tried(WITHOUT, 0.0)

    def judged(self, row: Row) -> dict[str, Any]:
        """Train with each α, choose one on the held-out pictures; return what that one reaches, and all the others.

        `tried` has the numbers of every α, also those that were not chosen.
        """

        def made() -> dict[str, Any]:
            alphas = STRENGTHS[row.settings["scale"]] if row.method != NONE else (0.0,)
            alphas = (row.settings["alpha"],) if "alpha" in row.settings else alphas
            tried = []
            for alpha in alphas:
                self.few.case.job.check()
                tried.append(self._tried(row, alpha) if alpha else self.plain)
            best = min(tried, key=lambda one: (one["held"], one["alpha"]))
            return {"metrics": {name: best[name] for name in (*PART.metrics, "alpha")}, "tried": tried}

        about = {"seed": self.seed, "epochs": self.few.recipe.epochs, "tests": self.test.id, "tested": self.tested}
        chosen = {"strengths": {name: list(values) for name, values in STRENGTHS.items()}, "row": row.label}
        bare = replace(row, settings=_own(row))
        held = {"held": len(self.held.x)}
        return self.few.case.numbers("attention", bare, to_floats(self.few.x), made, about | held | chosen)

    def _tried(self, row: Row, alpha: float) -> dict[str, float]:
        """Train with an α; return the NLL on held-out pictures; on test pictures accuracy and NLL, also scaled."""
        network, factor = _trained(self.few, row, self.seed, alpha)
        p = network.predict(self.held.x, None, progress=False)[0]
        answers = network.predict(list(self.test.x[: self.tested].split(BATCH)), None, progress=False)[0]
        y = self.test.y[: self.tested]
        after = evaluate.nll(tempered(p, self.held.y, answers), y)
        reached = {"held": evaluate.nll(p, self.held.y), **metrics.answers(answers, y), "tempered": after}
        return {"alpha": alpha, "factor": factor, **reached}


def _own(row: Row) -> dict[str, Any]:
    """Return the settings of the maps, without those of the training."""
    return {name: value for name, value in row.settings.items() if name not in ("scale", "flat", "alpha")}


def _trained(few: Few, row: Row, seed: int, alpha: float) -> Trained:
    """Return a network that was trained with a row's attention, or with its mean everywhere, and the mean factor."""
    maps: Any = None
    scale: Normalise = "range"
    if row.method != NONE:
        scale = row.settings["scale"]
        maps = few.maps(replace(row, settings=_own(row)), few.x)
    mean = 0.0 if maps is None else float(mitigate.attention(maps, scale).mean())
    strength = alpha
    if row.settings.get("flat") and maps is not None:
        maps, scale = np.ones_like(maps), "softmax"
        strength = alpha * mean / float(mitigate.attention(maps[:1], "softmax").mean())
    device = few.case.ensemble.device
    network = mitigate.retrain(
        lambda: few.plan.model(APART + seed).to(device),
        (few.x, few.y),
        maps,
        recipe=few.recipe,
        alpha=strength,
        normalise=scale,
        seed=APART + seed,
        progress=False,
    )
    return network, 1.0 + alpha * mean


STUDY = Study("ua-attention", "Maps as attention: is it the map, or a temperature?", (PART,), NOTES, program)
