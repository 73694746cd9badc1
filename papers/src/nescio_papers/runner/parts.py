"""Where a run gets its data and its models: the only file here that knows `datasets` and `zoo`.

Pictures of a set come in one fixed random order, so that the first n of them are a fair sample of any size; those of
a foreign set are brought to the form of the known one (channels and pixels). At the smoke scale digits stand in for
every known set and things that are no digits for every foreign one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nescio.types import InputError
from nescio_papers import datasets as data
from nescio_papers import zoo
from nescio_papers.runner.cells import digest, fingerprint
from nescio_papers.runner.scale import Scale
from nescio_papers.runner.shifts import shifted

BATCH = 500
STAND_INS: Mapping[str, str] = {
    "omniglot": "drawn_letters",
    "fashion": "photo_patches",
    "svhn": "photo_patches",
    "lsun": "drawn_letters",
    "scenes": "drawn_letters",
    "cifar10": "photo_patches",
    "cifar100": "drawn_letters",
}


@dataclass(frozen=True)
class Pictures:
    """Pictures uint8 [N, C, H, W] in their fixed order, labels, and a name that no other pictures have."""

    x: Tensor
    y: Tensor
    name: str
    about: str
    id: str

    @property
    def facts(self) -> dict[str, Any]:
        """What the results say about the set."""
        return {"name": self.name, "about": self.about, "pictures": len(self.x)}

    def floats(self, start: int, stop: int) -> Tensor:
        """Return some of them as the models take them: floats in [0, 1]."""
        return self.x[start:stop].float() / 255

    def batches(self, count: int) -> Batches:
        """Return the first `count` as labelled batches."""
        return Batches(self, min(count, len(self.x)))


@dataclass(frozen=True)
class Batches:
    """Labelled batches that can be read again and again."""

    pictures: Pictures
    count: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, self.count, BATCH):
            stop = min(start + BATCH, self.count)
            yield self.pictures.floats(start, stop), self.pictures.y[start:stop]


@dataclass(frozen=True)
class Model:
    """A trained network: what it reaches on the test set, how it was trained, and a name that no other one has."""

    network: nn.Module
    accuracy: float
    plan: str
    seed: int
    seconds: float
    about: str
    id: str

    @property
    def facts(self) -> dict[str, Any]:
        """What the results say about the network."""
        return {name: getattr(self, name) for name in ("plan", "seed", "accuracy", "seconds", "about")}


class Parts:
    """Data and models of one run, each loaded once."""

    def __init__(
        self, scale: Scale, data_root: str | Path | None, models: Path, device: str, progress: bool | None
    ) -> None:
        self.scale, self.root, self.models, self.device, self.progress = scale, data_root, models, device, progress
        self._sets: dict[tuple[str, ...], Pictures] = {}
        self._models: dict[tuple[str, int], Model] = {}

    def known(self, name: str, split: str = "test") -> Pictures:
        """Return pictures of a set that a model knows, of the split "test" or "train"."""
        return self._load("digits" if self.scale.bundled else name, split)

    def validation(self, plan: str, seed: int) -> Pictures:
        """Return the pictures that the network of this plan and seed was not trained on, but chosen by."""
        chosen = zoo.RECIPES[self.plan(plan)]
        whole = data.load_set(chosen.data, "train", root=self.root)
        key = (chosen.name, "validation", str(seed))
        if key not in self._sets:
            held = held_out(chosen, seed, len(whole.x))
            about = f"{whole.about}; {len(held)} pictures that the network of seed {seed} was not trained on"
            self._sets[key] = _pictures(whole.x[held], whole.y[held], f"{chosen.data} validation {seed}", about)
        return self._sets[key]

    def foreign(self, name: str, known: Pictures) -> Pictures:
        """Return foreign pictures in the form of the known ones, or a shift of those."""
        if name.startswith("shift:"):
            return self._shift(known, name.removeprefix("shift:"))
        wanted = known.x.shape[1:]
        pictures = self._load(STAND_INS[name] if self.scale.bundled else name, "test")
        if pictures.x.shape[1:] == wanted:
            return pictures
        key = (pictures.id, *map(str, wanted))
        if key not in self._sets:
            self._sets[key] = _pictures(
                _formed(pictures.x, *wanted), pictures.y, pictures.name, f"{pictures.about}; resized"
            )
        return self._sets[key]

    def model(self, plan: str, seed: int) -> Model:
        """Return the network of a plan and a seed: read from the folder of models, or trained and kept there."""
        name = self.plan(plan)
        if self.scale.networks and zoo.RECIPES[name].data not in self.scale.networks:
            raise InputError(f"the scale {self.scale.name} has no network of this data set: it takes too long there")
        if (name, seed) not in self._models:
            epochs = self.scale.epochs_trained
            done = zoo.trained(
                name, seed, self.models, root=self.root, device=self.device, progress=self.progress, epochs=epochs
            )
            about = zoo.RECIPES[name].about + ("" if epochs is None else f"; {epochs} epochs here")
            id_ = f"{name}-{seed}-{fingerprint(done.model)}"
            self._models[name, seed] = Model(done.model, done.accuracy, name, seed, done.seconds, about, id_)
        return self._models[name, seed]

    def plan(self, plan: str) -> str:
        """Return the name of the plan at this scale: the fast one where there is one and it is wanted."""
        if self.scale.bundled:
            return "digits"
        return f"{plan}-fast" if self.scale.fast and f"{plan}-fast" in zoo.RECIPES else plan

    def _load(self, name: str, split: str) -> Pictures:
        if (name, split) not in self._sets:
            pictures = data.load_set(name, split, root=self.root)
            order = torch.randperm(len(pictures.x), generator=torch.Generator().manual_seed(0))
            self._sets[name, split] = _pictures(pictures.x[order], pictures.y[order], f"{name} {split}", pictures.about)
        return self._sets[name, split]

    def _shift(self, known: Pictures, kind: str) -> Pictures:
        key = (known.id, kind)
        if key not in self._sets:
            changed = shifted(known.x, known.y, kind)
            self._sets[key] = _pictures(changed, known.y, f"{known.name} {kind}", f"{known.about}; changed: {kind}")
        return self._sets[key]


def held_out(plan: zoo.TrainingPlan, seed: int, count: int) -> Tensor:
    """Return which of `count` training pictures `zoo.trained` keeps for validation: the first of its seeded order."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    return order[: max(1, math.floor(plan.validation * count))]


def _pictures(x: Tensor, y: Tensor, name: str, about: str) -> Pictures:
    return Pictures(x, y, name, about, f"{name}-{digest(bytes(x.contiguous().numpy().data))}")


def _formed(x: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Return pictures with these channels (grey ones repeated, colours averaged) and pixels (bilinear, smoothed)."""
    parts = []
    for batch in x.split(1000):
        part: Any = batch.float()
        if part.shape[1] != channels:
            part = part.expand(-1, channels, -1, -1) if part.shape[1] == 1 else part.mean(1, keepdim=True)
        if part.shape[2:] != (height, width):
            part = nn.functional.interpolate(part, (height, width), mode="bilinear", antialias=True)
        parts.append(part.round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts)
