"""One data set of a study of maps: its ensemble, its pictures, and everything that is kept as it is finished.

What took time lies in the work folder under a name that holds digests of the networks, the pictures and the settings:
maps as `.npz`, numbers as `.json`. So a run that was cut off goes on, and studies share what they have in common.
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nescio.attribution import VAE, explain
from nescio.attribution.vae import RECIPE
from nescio.data import replacing
from nescio.types import InputError
from nescio_papers.runner.cells import digest, read_json, write_json
from nescio_papers.runner.parts import Model, Pictures
from nescio_papers.runner.program import Job
from nescio_papers.runner.study import NAMES, Row
from nescio_papers.ua_backprop.ensemble import Ensemble, at_hand, of_plan
from nescio_papers.ua_backprop.rows import (
    FLAT,
    OURS,
    RANDOM,
    SHUFFLED,
    SIGNED,
    UNSIGNED,
    bare,
    described,
    needs_vae,
    settings,
)
from nescio_papers.ua_backprop.sizes import Sizes, sizes_of

Floats = NDArray[np.float64]
LATENT: Mapping[str, int] = {"mnist": 20}
WIDE = 64
"""Numbers that the auto-encoder writes a picture with: of MNIST, and of pictures in colour."""


@dataclass(frozen=True)
class Maps:
    """Maps [N, H, W] and the seconds that they took."""

    values: Floats
    seconds: float


@dataclass
class Case:
    """A data set with an ensemble."""

    job: Job
    known: str
    ensemble: Ensemble
    models: list[Model] = field(default_factory=list)
    _vae: VAE | None = None
    _warm: set[str] = field(default_factory=set)
    """Methods that were called before: what happens at a first call alone is no part of the time."""

    @classmethod
    def of(cls, job: Job, known: str, plan: str | None = None) -> Case:
        """Return the case with the networks of a training plan (None: its own).

        Those of CIFAR-100's own plan are read, but never trained.
        """
        sizes = sizes_of(job.parts.scale)
        seeds = range(sizes.members) if job.seeds is None else job.seeds
        if len(seeds) < 2:
            raise InputError(f"expected at least 2 seeds, one for each member of the ensemble, got {list(seeds)}")
        plan = plan or known
        if plan == "cifar100" and not job.parts.scale.bundled and not at_hand(job.parts, plan, seeds):
            raise InputError("its ensemble takes too long to train here, and no trained networks are at hand")
        began = time.perf_counter()
        ensemble, models = of_plan(job.parts, plan, seeds, job.check)
        shown = ", ".join(f"{100 * model.accuracy:.2f}" for model in models)
        job.say(f"{NAMES[known]}: {len(models)} networks, {shown} % right ({time.perf_counter() - began:.0f} s)")
        return cls(job, known, ensemble, models)

    @property
    def sizes(self) -> Sizes:
        """Those of the scale."""
        return sizes_of(self.job.parts.scale)

    def vae(self) -> VAE:
        """Return the auto-encoder of the training pictures, read or trained."""
        if self._vae is None:
            began = time.perf_counter()
            train = self.job.parts.known(self.known, "train")
            count, epochs = self.sizes.vae
            latent = LATENT.get(self.known, WIDE)
            x = train.floats(0, count or len(train.x))
            name = digest(train.id, repr((len(x), epochs, latent)))
            self._vae = VAE.train_on(
                x,
                latent=latent,
                recipe=replace(RECIPE, epochs=epochs),
                device=self.ensemble.device,
                folder=self.job.work / "maps" / f"vae-{train.name.replace(' ', '-')}-{name}",
                progress=self.job.parts.progress,
            )
            self.job.say(f"{NAMES[self.known]}: auto-encoder ({time.perf_counter() - began:.0f} s)")
        return self._vae

    def maps(self, row: Row, x: Tensor, of: str = "epistemic", **more: Any) -> Maps:
        """Return the maps of pictures [N, C, H, W] in [0, 1] by a method, made or read; `more` are further settings."""
        if row.method == SHUFFLED:  # the pictures are in random order: the next one is any other one
            return Maps(np.roll(self.maps(OURS, x, of, **more).values, 1, axis=0), 0.0)
        if row.method.startswith(UNSIGNED):
            return Maps(np.abs(self.maps(bare(row), x, of, **more).values), 0.0)
        if row.method.startswith(SIGNED):
            signs = np.sign(self.maps(Row("", "blur_gradient"), x, of, **more).values)
            others = {name: value for name, value in more.items() if name != "sigma"}
            return Maps(np.abs(self.maps(bare(row), x, of, **others).values) * signs, 0.0)
        chosen = {**settings(row, self.sizes), **more}
        about = {"of": of, **described(row, self.sizes, **more)}
        if needs_vae(row):
            about["vae"] = [self.known, *self.sizes.vae, LATENT.get(self.known, WIDE)]
        path = self._path("maps", row.method, x, about, ".npz")
        maps = _read(path)
        if maps is None:
            self.job.check()
            maps = self._made(row, x, of, chosen)
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as part, part.open("wb") as file:
                np.savez(file, maps=maps.values.astype(np.float32), seconds=np.array(maps.seconds))
            maps = Maps(maps.values.astype(np.float32).astype(np.float64), maps.seconds)  # as it will be read
        return maps

    def _made(self, row: Row, x: Tensor, of: str, chosen: Mapping[str, Any]) -> Maps:
        shape = (len(x), *x.shape[2:])
        if row.method in (RANDOM, FLAT):
            return Maps(np.random.default_rng(0).random(shape) if row.method == RANDOM else np.ones(shape), 0.0)
        more: Any = {"of": of, "progress": False, **chosen}
        if needs_vae(row):
            more["vae"] = self.vae()
        posterior, there = self.ensemble.posterior, x.to(self.ensemble.device)  # many at a time on a GPU
        called = f"{row.method} {more.get('path')}"
        if called not in self._warm and not self.job.parts.scale.bundled:
            explain(posterior, there[:2], row.method, **more)
        self._warm.add(called)
        began = time.perf_counter()
        attribution = explain(posterior, there, row.method, **more)
        return Maps(attribution.maps.numpy(), time.perf_counter() - began)

    def numbers(
        self,
        what: str,
        row: Row,
        x: Tensor,
        made: Callable[[], Mapping[str, Any]],
        about: Mapping[str, Any],
        **more: Any,
    ) -> dict[str, Any]:
        """Return numbers about a method on pictures, made or read; `about` says what else they depend on."""
        told = described(row, self.sizes, **more)
        path = self._path(what, row.method, x, {**told, "about": about}, ".json")
        numbers = read_json(path)
        if numbers is None:
            self.job.check()
            began = time.perf_counter()
            numbers = {"settings": told, **made()}
            write_json(path, numbers)
            self.job.say(f"{NAMES[self.known]}, {what}: {row.label} ({time.perf_counter() - began:.1f} s)")
        return numbers

    def _path(self, what: str, method: str, x: Tensor, about: Mapping[str, Any], ending: str) -> Any:
        pictures = digest(bytes(x.contiguous().numpy().data), repr(tuple(x.shape)))
        name = digest(self.ensemble.id, pictures, json.dumps(about, sort_keys=True))
        return self.job.work / "maps" / what / f"{self.known}-{method}-{name}{ending}"


def picked(pictures: Pictures, indices: Tensor) -> Tensor:
    """Return some pictures as floats in [0, 1]."""
    return pictures.x[indices].float() / 255


def _read(path: Any) -> Maps | None:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return Maps(file["maps"].astype(np.float64), float(file["seconds"]))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
