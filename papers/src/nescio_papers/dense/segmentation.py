"""Which pixels are foreign, which are wrong: every score that gives a map, and the RegionGuard, on a small network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nescio import evaluate, scores
from nescio.dense import RegionGuard, RegionVerdict
from nescio.quantities import GradientNorms, Logits
from nescio.scoring import score
from nescio.types import NescioError
from nescio_papers.dense import samples, scenes, training
from nescio_papers.dense.drawing import drawn
from nescio_papers.dense.network import CLASSES
from nescio_papers.dense.samples import FALSE, OBJECTS, Data
from nescio_papers.dense.scenes import EDGE, Scenes
from nescio_papers.runner.cells import kept_json
from nescio_papers.runner.program import Job, Made
from nescio_papers.runner.scale import size_of
from nescio_papers.runner.study import Column, Part, Row, Study

LEVEL = 0.05
BLOCK = 50
EXCLUDED = ("negrad",)
"""Zero by algebra: what is ranked would be round-off."""
GUARDS: Mapping[str, Mapping[str, Any]] = {"RegionGuard": {"grid": 16}, "RegionGuard, deepest layer": {"layer": "deep"}}


def methods() -> dict[str, Any]:
    """Return every score that gives a map, gradient scores without noise, by its name."""
    found = {}
    for name in sorted(scores.names()):
        method = scores.get(name)
        kinds = {type(request) for request in method.needs}
        if kinds <= {Logits, GradientNorms} and name not in EXCLUDED:
            found[name] = scores.get(name, samples=0) if GradientNorms in kinds else method
    return found


METHODS = methods()
SCORES = tuple(Row(name, name) for name in METHODS)
STRANGE = tuple(Row(name, "region_guard", note="of unlabelled pictures") for name in GUARDS)
SUMMARIES = tuple(Row(f"{name}, {how}", name) for name in ("entropy", "energy", "exgrad") for how in ("mean", "max"))
PICTURES = (
    *(Row(f"{name}: its most foreign region", "region_guard") for name in GUARDS),
    Row("the picture as a whole", "guard", note="strangeness and appearance"),
)
FLAGGED = (*PICTURES, *(Row(f"{name}: regions", "region_guard") for name in GUARDS))


def _columns(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name) for name in names)


PARTS = (
    Part("Foreign pixels, told from all others", "program", _columns(*OBJECTS), (*STRANGE, *SCORES),
         ("auroc", "aupr", "fpr95"), averages="each"),
    Part("Wrong pixels, told from right ones", "program", _columns("all pixels", "pixels of digits"),
         (*STRANGE, *SCORES), ("raulc",)),
    Part("Pictures with a foreign object, told from those without", "program", _columns(*OBJECTS),
         (*PICTURES, *SUMMARIES), ("auroc",), averages="each"),
    Part("False alarms: share flagged at 5 %", "program", _columns(*FALSE), FLAGGED, ("share",)),
    Part("Found: share of pictures, or of the object's regions, flagged at 5 %", "program", _columns(*OBJECTS), FLAGGED,
         ("found",), averages="each"),
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What is known of some pictures: the class that was said of each pixel, maps, and verdicts of the guards."""

    answer: Tensor
    maps: Mapping[str, Tensor]
    verdicts: Mapping[str, RegionVerdict]


def seen(network: nn.Module, guards: Mapping[str, RegionGuard], pictures: Scenes) -> Seen:
    """Score some pictures in every way; strangeness of regions is brought to pixels."""
    x = pictures.floats
    maps = score(network, x, list(METHODS.values()), progress=False, output="dense")
    verdicts = {name: guard.check(list(x.split(BLOCK))) for name, guard in guards.items()}
    strange = {
        name: torch.nn.functional.interpolate(one.score[:, None], x.shape[2:], mode="nearest-exact")[:, 0]
        for name, one in verdicts.items()
    }
    with torch.no_grad():
        answer = torch.cat([network(part).argmax(1) for part in x.split(BLOCK)])
    return Seen(answer, {**maps, **strange}, verdicts)


def program(job: Job, kind: str = "unet") -> Made:
    """Train, score and measure, seed after seed."""
    size = size_of(training.SIZES[kind], job.parts.scale)
    seeds = job.seeds or size.seeds
    cells: list[list[dict[str, Any]]] = [[] for _ in PARTS]
    models, figures = [], []
    for seed in seeds:
        job.check()
        network, seconds = training.trained(kind, job.parts, job.work, seed, job.say, job.check)
        one = _Measured(network, samples.held_out(job.parts, size, seed), job)
        made = kept_json(training.folder(kind, job.parts, job.work) / f"cells-{seed}.json", one.all)
        for at, rows in zip(cells, made["cells"], strict=True):
            at += [{**row, "seed": seed} for row in rows]
        count = sum(p.numel() for p in network.parameters())
        about = (
            f"{type(network).__name__}, {count:,} parameters; {training.steps(network):,} steps; "
            f"mean IoU {made['iou']:.3f}"
        )
        models.append({"plan": "segmentation", "seed": seed, "accuracy": made["right"], "seconds": seconds,
                       "about": about})  # fmt: skip
        job.say(f"seed {seed}: {100 * made['right']:.2f} % of pixels right, {about}")
        if seed == seeds[-1]:
            figures.append(one.figure())
    sets = [{"name": name, "about": about, "pictures": size.tests} for name, about in ABOUT.items()]
    settings = {"size": asdict(size), "seeds": {"segmentation": list(seeds)}}
    return Made(cells, figures, settings, models, sets, (f"Sizes: {asdict(size)}.",))


class _Measured:
    """The numbers of one network."""

    def __init__(self, network: nn.Module, pictures: Data, job: Job) -> None:
        self.network, self.data, self.job = network, pictures, job
        self._guards: dict[str, RegionGuard] = {}

    @property
    def guards(self) -> dict[str, RegionGuard]:
        """The guards, fitted when they are first asked for."""
        if not self._guards:
            for name, settings in GUARDS.items():
                self.job.check()
                guard = RegionGuard(self.network, output="dense", **settings)
                self._guards[name] = guard.fit(list(self.data.reference.floats.split(BLOCK)), progress=False)
        return self._guards

    def all(self) -> dict[str, Any]:
        """Return the cells of every part, the share of right pixels, and the mean IoU."""
        pixels, wrong, apart, alarms, found = parts = [[] for _ in PARTS]  # type: ignore[var-annotated]
        own = seen(self.network, self.guards, self.data.own[FALSE[1]])
        for name in FALSE:
            self.job.check()
            verdicts = (
                own.verdicts if name == FALSE[1] else seen(self.network, self.guards, self.data.own[name]).verdicts
            )
            alarms += _cells(name, "share", _flagged(verdicts, None))
        wrong += list(self._wrong(own))
        for name, pictures in self.data.foreign.items():
            self.job.check()
            self.job.say(f"  {name}")
            one = seen(self.network, self.guards, pictures)
            counts = ~pictures.edge
            for row in (*STRANGE, *SCORES):
                values = one.maps[row.label]
                told = evaluate.ood(values[counts & ~pictures.foreign], values[pictures.foreign], bootstrap=0)
                metrics = {key: getattr(told, key) for key in ("auroc", "aupr", "fpr95")}
                pixels.append({"row": row.label, "column": name, "metrics": metrics})
            known, foreign = _numbers(own), _numbers(one)
            apart += _cells(
                name, "auroc", {row: evaluate.ood(known[row], foreign[row], bootstrap=0).auroc for row in known}
            )
            found += _cells(name, "found", _flagged(one.verdicts, pictures.foreign))
        clean = self.data.own[FALSE[1]]
        right, iou = _quality(own.answer, clean.y)
        return {"cells": parts, "right": right, "iou": iou}

    def _wrong(self, own: Seen) -> Iterator[dict[str, Any]]:
        y = self.data.own[FALSE[1]].y
        right = own.answer == y
        for column, inside in (("all pixels", y != EDGE), ("pixels of digits", (y != EDGE) & (y > 0))):
            for row in (*STRANGE, *SCORES):
                try:
                    made: dict[str, Any] = {
                        "metrics": {"raulc": evaluate.raulc(own.maps[row.label][inside], right[inside])}
                    }
                except NescioError as error:  # every answer is right, or wrong
                    made = {"reason": f"not run: {error}"}
                yield {"row": row.label, "column": column, **made}

    def figure(self) -> Any:
        """Draw a picture with each kind of object, and what is said of it."""
        few = {name: _first(pictures, 2) for name, pictures in self.data.foreign.items()}
        shown = {name: (pictures, seen(self.network, self.guards, pictures)) for name, pictures in few.items()}
        rows = [
            (name, pictures.x[i], one.answer[i], one.maps["entropy"][i], one.verdicts["RegionGuard"].map((64, 64))[i])
            for name, (pictures, one) in shown.items()
            for i in range(len(pictures))
        ]
        return drawn(rows)


def _first(pictures: Scenes, count: int) -> Scenes:
    return Scenes(*(getattr(pictures, name)[:count] for name in ("x", "y", "foreign", "edge")))


def _cells(column: str, metric: str, values: Mapping[str, float]) -> list[dict[str, Any]]:
    return [{"row": row, "column": column, "metrics": {metric: value}} for row, value in values.items()]


def _numbers(one: Seen) -> dict[str, Tensor]:
    """One number for each picture, by the rows of `PICTURES` and `SUMMARIES`."""
    numbers = {
        row.label: verdict.score.flatten(1).amax(1)
        for row, verdict in zip(PICTURES, one.verdicts.values(), strict=False)
    }
    numbers[PICTURES[-1].label] = next(iter(one.verdicts.values())).whole.score
    ways: dict[str, Callable[[Tensor], Tensor]] = {"mean": lambda m: m.mean(1), "max": lambda m: m.amax(1)}
    return numbers | {
        row.label: ways[row.label.rpartition(", ")[2]](one.maps[row.method].flatten(1)) for row in SUMMARIES
    }


def _flagged(verdicts: Mapping[str, RegionVerdict], inside: Tensor | None) -> dict[str, float]:
    """Shares that are flagged at 5 %, by the rows of `FLAGGED`; of regions those `inside`, or all of them."""
    shares: dict[str, float] = {}
    for row, verdict in zip(PICTURES, verdicts.values(), strict=False):
        shares[row.label] = float(verdict.unknown(LEVEL).double().mean())
    shares[PICTURES[-1].label] = float(next(iter(verdicts.values())).whole.foreign(LEVEL).double().mean())
    for row, verdict in zip(FLAGGED[len(PICTURES) :], verdicts.values(), strict=True):
        flags = verdict.foreign(LEVEL, (scenes.SIDE, scenes.SIDE))
        shares[row.label] = float((flags if inside is None else flags[inside]).double().mean())
    return shares


def _quality(answer: Tensor, y: Tensor) -> tuple[float, float]:
    """The share of right pixels, and the mean intersection over union of the classes."""
    counts = y != EDGE
    a, b = answer[counts], y[counts]
    ratios = [
        float(((a == c) & (b == c)).sum()) / float(((a == c) | (b == c)).sum())
        for c in range(CLASSES)
        if bool((b == c).any())
    ]
    return float((a == b).double().mean()), sum(ratios) / len(ratios)


ABOUT = {
    "letters": "capitals in the fonts of matplotlib",
    "clothes": "Fashion-MNIST, as ink",
    "characters": "Omniglot, as ink",
    "textures": "discs and squares of scikit-image's brick, grass and gravel, tinted",
}
NOTES = (
    "Settings and hypotheses were written down before the run (`dense/protocol.md`). Nothing was chosen by foreign "
    "pictures.",
    "Gradient scores are those of the last layer in closed form, and without noise. NEGrad is left out: it is zero "
    "by algebra.",
    "Digits of MNIST on crops of photographs of scikit-image and scikit-learn; training, reference and tests have "
    "strips of the photographs and digits of their own. ± is over seeds of the network and of the pictures.",
    "The promise of the RegionGuard is for pictures like its reference: of the same strips. Test strips are other "
    "parts of the same photographs.",
    "A network may be trained on another machine than the one named here, which scored and measured "
    "(`nescio_papers.dense.training`).",
)
STUDY = Study(
    "segmentation",
    "Foreign and wrong pixels: every score that gives a map, and the RegionGuard, on a small U-Net",
    PARTS,
    NOTES,
    program,
)
