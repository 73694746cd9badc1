"""Filling of cells: the scores of one model on one set, methods that share work together, shard after shard.

After every shard the cells are written, so that a run that is cut off loses no more than one. A method that fails is
left out with its reason, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nescio.posteriors.deterministic import Deterministic
from nescio.posteriors.ensemble import DeepEnsemble
from nescio.quantities import Logits
from nescio.scores import MutualInformation
from nescio.scores.base import must_be_fitted
from nescio.scoring import fit, score
from nescio_papers.runner.cells import EMPTY, Cell, Cells
from nescio_papers.runner.methods import described
from nescio_papers.runner.parts import Model, Pictures

SHARD = 1000
RIGHT: Mapping[str, Any] = {"method": "right"}
"""The cell that holds whether each answer is right."""
OVER = "not run: the time that was given was over; run it again to go on"


class TimeOver(Exception):
    """The time that was given for the run is over."""


def failure(error: Exception) -> str:
    """Return why a cell has no numbers."""
    return OVER if isinstance(error, TimeOver) else f"failed: {worded(error)}"


def worded(error: Exception) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def attempted(entry: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the cell with what `measure` gives, or with the reason why there is nothing."""
    try:
        return {**entry, **measure()}
    except Exception as error:
        return {**entry, "reason": failure(error)}


@dataclass
class Scorer:
    """Scores with one model, or with all models of a plan as an ensemble; methods are fitted to `training`."""

    cells: Cells
    id: str
    network: Any
    training: Pictures | None = None
    fit_count: int | None = None
    check: Callable[[], None] = lambda: None
    errors: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why a method failed, by pictures and key."""
    _fitted: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, cells: Cells, **more: Any) -> Scorer:
        """Return the scorer of one model."""
        return cls(cells, model.id, model.network, **more)

    @classmethod
    def ensemble(cls, models: list[Model], cells: Cells, **more: Any) -> Scorer:
        """Return the scorer of all models together."""
        name = "+".join(model.id.rpartition("-")[2][:8] for model in models)
        return cls(cells, f"{models[0].plan}-ensemble-{name}", DeepEnsemble([m.network for m in models]), **more)

    def about(self, method: Any, alone: bool = False) -> dict[str, Any]:
        """Return name and settings of a method, and all else that its scores depend on."""
        about = described(method)
        if getattr(method, "needs_training_data", False) and self.training is not None:
            about |= {"training": self.training.id, "count": self.fit_count}
        return about | ({"alone": True} if alone else {})

    def fill(self, pictures: Pictures, count: int, methods: Mapping[str, Any], alone: bool = False) -> None:
        """Score the first `count` pictures with every method, as far as that is not done yet."""
        missing: dict[tuple[Any, ...], dict[str, Any]] = {}
        for key, method in methods.items():
            have = len(self.read(pictures, method, alone).scores)
            if have < count:
                shares = key if alone else _heavy(method)
                missing.setdefault((have, shares), {})[key] = method
        for (have, _), group in missing.items():
            self._group(pictures, have, count, group, alone)

    def read(self, pictures: Pictures, method: Any, alone: bool = False) -> Cell:
        """Return the cell of a method."""
        return self.cells.read(self.cells.path(self.id, pictures.id, self.about(method, alone)))

    def right(self, pictures: Pictures, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return whether each of the first answers is right, as 1 and 0."""
        path = self.cells.path(self.id, pictures.id, RIGHT)
        have = self.cells.read(path)
        if len(have.scores) < count:
            source = self.network if isinstance(self.network, DeepEnsemble) else Deterministic(self.network)
            hits = []
            for start in range(0, count, SHARD):
                stop = min(start + SHARD, count)
                answers = source.predict(pictures.floats(start, stop), progress=False).mean(0).argmax(1)
                hits.append((answers == pictures.y[start:stop]).double().numpy())
            have = Cell(np.concatenate(hits))
            self.cells.write(path, have, RIGHT)
        return have.scores[:count]

    def _group(self, pictures: Pictures, have: int, count: int, group: dict[str, Any], alone: bool) -> None:
        """Methods that share their work; when they fail together, each is tried by itself."""
        try:
            ready = self._ready(group)
            cells = {key: self.read(pictures, method, alone) if have else EMPTY for key, method in ready.items()}
            for start in range(have, count, SHARD):
                self.check()
                cells = self._shard(pictures, start, min(start + SHARD, count), ready, cells, alone)
        except (TimeOver, KeyboardInterrupt):
            raise
        except Exception as error:
            if len(group) > 1:
                for key, method in group.items():
                    self.fill(pictures, count, {key: method}, alone)
                return
            (key,) = group
            self.errors[pictures.id, key] = worded(error)

    def _shard(
        self,
        pictures: Pictures,
        start: int,
        stop: int,
        ready: Mapping[str, Any],
        cells: Mapping[str, Cell],
        alone: bool,
    ) -> dict[str, Cell]:
        """Return the cells with so many more pictures, which are kept where another process has not kept more."""
        began = time.perf_counter()
        score_by_method = score(self.network, pictures.floats(start, stop), list(ready.values()), progress=False)
        seconds = time.perf_counter() - began
        longer = {}
        for (key, method), values in zip(ready.items(), score_by_method.values(), strict=True):
            about = self.about(method, alone)
            path = self.cells.path(self.id, pictures.id, about)
            before = replace(cells[key], scores=cells[key].scores[:start])
            longer[key] = before.extended(values.numpy(), seconds, len(ready))
            if len(self.cells.read(path).scores) < stop:
                self.cells.write(path, longer[key], about)
        return longer

    def _ready(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """Return the methods, fitted where they have to be, once for this model."""
        waiting = {key: method for key, method in group.items() if must_be_fitted(method) and key not in self._fitted}
        if waiting and self.training is not None:
            self.check()
            batches = self.training.batches(self.fit_count or len(self.training.x))
            done = fit(self.network, list(waiting.values()), batches, progress=False)
            self._fitted |= dict(zip(waiting, done, strict=True))
        return {key: self._fitted.get(key, method) for key, method in group.items()}


def _heavy(method: Any) -> tuple[Any, ...]:
    """Return what groups methods: the quantities they need beyond logits; fitted methods stay together."""
    if must_be_fitted(method):
        return ("fitted",)
    return tuple(request for request in method.needs if request != Logits())


def ensemble_method() -> MutualInformation:
    """Return the method that an ensemble is scored with."""
    return MutualInformation()
