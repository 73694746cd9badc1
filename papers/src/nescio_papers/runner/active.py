"""Active learning as in the paper's supplement B.4: the small CNN, trained anew in every cycle on what it doubted.

    split by index   the first labels from pictures 1 … 10,000 of the training set, as many of each class; validation
                     10,001 … 20,000; the pool is the rest
    training         SGD 0.01, momentum 0.9, weight decay 5e-4, batches of 128; the best epoch on validation
    measured         accuracy and negative log-likelihood on the test set, mean over the cycles

One run of all cycles is a cell. The network of the first cycle is the same for every method, and trained once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio import training
from nescio.evaluate import active as learning
from nescio.posteriors.deterministic import Deterministic
from nescio.scores.base import must_be_fitted
from nescio.scoring import fit, score
from nescio.types import InputError
from nescio.zoo import Normalised
from nescio_papers import datasets as data
from nescio_papers import zoo
from nescio_papers.runner import metrics
from nescio_papers.runner.cells import digest, read_json, write_json
from nescio_papers.runner.methods import described, made
from nescio_papers.runner.parts import BATCH, Parts
from nescio_papers.runner.scoring import attempted
from nescio_papers.runner.study import Column, Row
from nescio_papers.zoo.plans import SGD, STATISTICS, to_floats

FIRST: Mapping[str, tuple[int, int]] = {
    "mnist": (20, 20),
    "cifar10": (500, 100),
    "svhn": (500, 100),
    "cifar100": (1000, 500),
}
"""m₁, the labels to begin with, and m₂, those that each cycle adds."""
RANDOM = "random"


def cycles(
    rows: list[Row],
    column: Column,
    seed: int,
    parts: Parts,
    work: Path,
    check: Callable[[], None],
    say: Callable[[str], object],
) -> list[dict[str, Any]]:
    """Return a cell for each row: its run of all cycles."""
    entries: list[dict[str, Any]] = [{"row": row.label, "column": column.key, "seed": seed} for row in rows]
    try:
        learner = Learner(column.known, seed, parts, check)
    except InputError as error:
        return [entry | {"reason": f"not run (data not at hand): {' '.join(str(error).split())}"} for entry in entries]

    def cell(row: Row) -> dict[str, Any]:
        began = time.perf_counter()
        method = None if row.method == RANDOM else made(row, column.known, parts.scale, seed)
        about = {"method": RANDOM} if method is None else described(method)
        path = work / "active" / f"{column.known}-{seed}-{row.method}-{digest(learner.id, repr(about))}.json"
        kept = read_json(path)
        if kept is None:
            kept = {**learner.run(method), "settings": about, "seconds": time.perf_counter() - began}
            write_json(path, kept)
            say(f"{column.label}, seed {seed}: {row.label} ({kept['seconds']:.0f} s)")
        values = {name: float(np.mean(kept[name])) for name in ("acc", "nll")} | {"seconds": kept["seconds"]}
        curve = {name: kept[name] for name in ("labels", "acc", "nll")}
        return {"settings": about, "shared": 1, "metrics": values, "curve": curve}

    return [attempted(entry, partial(cell, row)) for row, entry in zip(rows, entries, strict=True)]


class Learner:
    """The data, the split and the training of one data set and seed."""

    def __init__(self, known: str, seed: int, parts: Parts, check: Callable[[], None]) -> None:
        self.name = "digits" if parts.scale.bundled else known
        self.seed, self.scale, self.device, self.check = seed, parts.scale, parts.device, check
        self.data = data.load_set(self.name, "train", root=parts.root)  # in its own order: the split is by index
        self.test = data.load_set(self.name, "test", root=parts.root)
        first, self.added = (20, 10) if parts.scale.bundled else FIRST[known]
        ends = {"first": 400, "second": 500} if parts.scale.bundled else {}
        self.split = learning.by_index(self.data.y.numpy(), first, seed, **ends)
        self.pool = np.random.default_rng(seed).permutation(self.split.pool)[: parts.scale.pool]
        self.id = digest(
            bytes(self.data.x.numpy().data),
            repr((self.name, seed, self.scale.cycles, self.scale.epochs, len(self.pool))),
        )
        self._begun: tuple[nn.Module, dict[str, float]] | None = None

    def run(self, method: Any) -> dict[str, list[float]]:
        """Run all cycles with a method; None chooses at random."""
        done = learning.active_learning(
            self.train,
            lambda model, indices: self.score(model, indices, method),
            self.split.initial,
            self.pool,
            acquired=self.added,
            cycles=self.scale.cycles,
            choose="top" if method is not None else "random",
            seed=self.seed,
        )
        return {"labels": done.labelled.tolist(), **{name: values.tolist() for name, values in done.measured.items()}}

    def train(self, indices: Any) -> tuple[nn.Module, dict[str, float]]:
        """Train a new network on these pictures; return it and what it reaches on the test set."""
        self.check()
        self.labelled = indices
        begins = len(indices) == len(self.split.initial)
        if begins and self._begun is not None:
            return self._begun
        model = self._network().to(self.device)
        recipe = replace(SGD, epochs=self.scale.epochs)
        training.train(
            model, self._pair(indices), self._pair(self.split.validation), recipe=recipe, seed=self.seed, progress=False
        )
        p = torch.cat([Deterministic(model).predict(x, progress=False)[0] for x in self._floats(self.test.x)])
        reached = metrics.answers(p, self.test.y)
        if begins:
            self._begun = model, reached
        return model, reached

    def score(self, model: nn.Module, indices: Any, method: Any) -> Tensor:
        """Return how much the network doubts these pictures; methods that need training data get those with labels."""
        if must_be_fitted(method):
            x, y = self._pair(self.labelled)
            method = fit(model, method, (to_floats(x), y), progress=False)
        pictures = self.data.x[torch.as_tensor(indices)]
        return score(model, self._floats(pictures), method, progress=False)

    def _network(self) -> nn.Module:
        channels, size = self.data.x.shape[1], self.data.x.shape[2]
        small = {"kernel": 3} if size < 16 else {}
        network = zoo.small_cnn(channels, size, len(self.data.classes), seed=self.seed, **small)
        return Normalised(network, *STATISTICS[self.name])

    def _pair(self, indices: Any) -> tuple[Tensor, Tensor]:
        places = torch.as_tensor(indices)
        return self.data.x[places], self.data.y[places]

    def _floats(self, x: Tensor) -> Iterator[Tensor]:
        return (to_floats(batch) for batch in x.split(BATCH))
