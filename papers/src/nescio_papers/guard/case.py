"""One network of the study: the z of every witness, and every single score, for own, shifted and foreign pictures.

The reference are pictures that the network was not trained on. It is cut as `nescio.Guard` cuts it, in the order in
which the pictures lie, which is random. What is kept is small (one z for each input and way of looking at it), so that
forms of the guard can be compared without the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from nescio import quantities, scores
from nescio.guard import split
from nescio.guard.anatomy import anatomy_of
from nescio.guard.changes import compressed
from nescio.guard.fitted_witnesses import FittedWitnesses, take
from nescio.guard.fitting import rows_of
from nescio.guard.witnesses import Anatomy, Appearance, Doubt, Strangeness, Witness
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.quantities import Logits
from nescio.scores import Method
from nescio.scoring import fit, score
from nescio.types import NescioError
from nescio_papers.runner.parts import Pictures
from nescio_papers.runner.shifts import SHIFTS, shifted

Table = dict[str, NDArray[np.float32]]
DOUBTS = ("gen", "entropy", "energy", "max_probability")
DEARER: Mapping[str, Mapping[str, Any]] = {"regrad": {"samples": 0}, "evengrad": {}, "shift_entropy": {}}
"""Scores of doubt that take more than the forward pass, with their settings."""
WITNESSES: tuple[Witness, ...] = (Strangeness(), Appearance())
SAMPLES = 20
"""Draws of the methods that perturb something."""
MEMORY_GB = 16.0
"""For gradients: several networks may share a GPU."""
LEFT_OUT = ("laplace", "mutual_information")
"""Methods that stand for a posterior."""


@dataclass(frozen=True)
class Sizes:
    """How many inputs: of each set, of a shift, references, training inputs of fitted methods."""

    pictures: int = 2000
    shifted: int = 1000
    references: tuple[int, ...] = (100, 200, 500, 1000, 2000, 4000)
    main: int = 2000
    training: int = 10_000


SIZES = {
    "smoke": Sizes(60, 30, (40, 80), 80, 200),
    "quick": Sizes(),
    "paper": Sizes(pictures=10_000),
}


def resampled(x: Tensor, side: int = 150, quality: float = 90.0) -> Tensor:
    """Return own pictures uint8, treated as foreign ones were: enlarged, compressed as JPEG, and made small again."""
    parts = []
    for batch in x.split(500):
        large = F.interpolate(batch.float() / 255, (side, side), mode="bicubic", antialias=True).clamp(0, 1)
        large = torch.stack([compressed(one, quality) for one in large])
        small = F.interpolate(large, x.shape[2:], mode="bicubic", antialias=True)
        parts.append((255 * small).round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts)


class Case:
    """A network, and what its pictures look like to the witnesses."""

    def __init__(
        self, network: nn.Module, validation: Pictures, test: Pictures, foreign: Mapping[str, Pictures], sizes: Sizes
    ) -> None:
        self.classifier = Classifier.of(network)
        self.sizes = sizes
        held = min(sizes.shifted, len(validation.x) // 4)
        most = min(max(sizes.references), len(validation.x) - held)
        self.reference = validation.x[:most]
        spare, labels = validation.x[most : most + held], validation.y[most : most + held]
        self.sets: dict[str, Tensor] = {"own": test.x[: sizes.pictures], "spare": spare}
        self.labels = test.y[: sizes.pictures]
        self.sets["resampled"] = resampled(test.x[: sizes.shifted])
        self.sets |= {f"shift:{kind}": shifted(spare, labels, kind) for kind in SHIFTS}
        self.sets |= {name: pictures.x[: sizes.pictures] for name, pictures in foreign.items()}
        self.anatomy = self._anatomy()

    def _anatomy(self) -> Anatomy:
        with preserved(self.classifier):
            return anatomy_of(self.classifier, _floats(self.reference[:8]))

    def collected(self, check: Callable[[], None]) -> Table:
        """Return the z of every witness for every set and size of the reference; and whether answers are right."""
        needs = [request for witness in WITNESSES for request in witness.needs(self.anatomy)]
        requests = tuple(dict.fromkeys([*needs, Logits()]))
        doubts = {name: Doubt(scores.get(name)) for name in DOUBTS}
        known = scores.names()
        dearer = {name: scores.get(name, **settings) for name, settings in DEARER.items() if name in known}

        def heard(x: Tensor) -> dict[str, Any]:
            parts = []
            with preserved(self.classifier):
                for some in x.split(500):
                    answers = quantities.compute(self.classifier, _floats(some), requests)
                    logits = answers[Logits()]
                    statements: dict[str, Any] = rows_of(WITNESSES, self.anatomy, answers)
                    statements |= {name: doubt.rows(logits) for name, doubt in doubts.items()}
                    for name, method in dearer.items():
                        statements[name] = (
                            score(
                                self.classifier, _floats(some), method, progress=False, memory_gb=MEMORY_GB
                            ).unsqueeze(1),
                        )
                    statements["answer"] = (logits.argmax(1),)
                    parts.append(statements)
            return {name: tuple(map(torch.cat, zip(*(p[name] for p in parts), strict=True))) for name in parts[0]}

        reference = heard(self.reference)
        sets = {}
        for name, x in self.sets.items():
            check()
            sets[name] = heard(x)
        table: Table = {"right": (sets["own"]["answer"][0] == self.labels).numpy().astype(np.float32)}
        everyone: list[Witness] = [*WITNESSES, *(_Named(name, Doubt()) for name in (*doubts, *dearer))]
        for size in self.sizes.references:
            if size > len(self.reference):
                continue
            check()
            table |= _judged(everyone, reference, sets, size)
        return table

    def single(self, training: Pictures, check: Callable[[], None], say: Callable[[str], object]) -> Table:
        """Score every set but the shifts by every registered method; one that fails is left out, and named."""
        table: Table = {}
        sets = {name: x for name, x in self.sets.items() if not name.startswith("shift:") and name != "spare"}
        for method in map(_method, single_methods()):
            check()
            try:
                ready: Any = method
                if getattr(method, "needs_training_data", False):
                    ready = fit(self.classifier, method, training.batches(self.sizes.training), progress=False)
                for name, x in sets.items():
                    parts = [
                        score(self.classifier, _floats(some), ready, progress=False, memory_gb=MEMORY_GB).numpy()
                        for some in x.split(500)
                    ]
                    table[f"single/{method.name}/{name}"] = np.concatenate(parts).astype(np.float32)
            except (NescioError, RuntimeError, ValueError) as error:
                say(f"  {method.name}: {' '.join(str(error).split())[:200]}")
        return table


class _Named(Witness):
    """A witness under another name, so that several scores of doubt can stand beside each other."""

    def __init__(self, name: str, witness: Witness) -> None:
        self.name, self.fit, self.measure = name, witness.fit, witness.measure  # type: ignore[misc,method-assign]


def _judged(
    witnesses: Sequence[Witness], reference: Mapping[str, Any], sets: Mapping[str, Mapping[str, Any]], size: int
) -> Table:
    """Return tables `size/witness/set` of z [folds, N, M]; the set `rank` is the one that gives ranks."""
    table: dict[str, list[NDArray[np.float32]]] = {}
    for fold in split.folds(torch.arange(size), torch.arange(size)):
        own = take({w.name: reference[w.name] for w in witnesses}, fold.fit)
        fitted = FittedWitnesses.of(witnesses, own, fold.fit)
        judged = {"rank": take({w.name: reference[w.name] for w in witnesses}, fold.rank), **sets}
        for name, rows in judged.items():
            for witness in witnesses:
                z = fitted.z(witness, rows[witness.name])
                table.setdefault(f"{size}/{witness.name}/{name}", []).append(z.numpy().astype(np.float32))
    stacked: Table = {}
    for key, folds in table.items():  # the folds of ranks differ in size: they are filled up with NaN
        most = max(len(one) for one in folds)
        filled = [np.pad(one, ((0, most - len(one)), (0, 0)), constant_values=np.nan) for one in folds]
        stacked[key] = np.stack(filled)
    return stacked


def single_methods() -> list[str]:
    """Return the names of the single scores that are compared."""
    return [name for name in scores.names() if name not in LEFT_OUT]


def _method(name: str) -> Method:
    drawn = name in ("perturb_x", "perturb_theta", "mc_aa", "inserted_dropout")
    return scores.get(name, **({"samples": SAMPLES} if drawn else {}))


def _floats(x: Tensor) -> Tensor:
    return x.float() / 255
