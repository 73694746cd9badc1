"""A `Job`: all that says what is to be scored, in plain values that can be sent to another process.

    job = Job(ModelAt("torchvision:resnet18", "w.safetensors"), DataAt("photos/"), (nescio.scores.REGrad(),))
    ready = job.open()          the model, the rows, the methods, fitted where they have to be
    identity(job, ready)        what the scores depend on, to tell one job's results from another's

A job can be pickled; what `open` gives cannot: rows hold a lock, and a fitted method may hold the very model it was
fitted with. So each process opens the job for itself. That gives the same everywhere, because weights come from files
or from a fixed seed, fitting is deterministic, and random draws know their seed alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio import __version__
from nescio.data import read_npz
from nescio.data.prefetch import read_ahead
from nescio.data.sources import Rows, open_data
from nescio.data.sources.numbered import stamp
from nescio.data.sources.rows import OnError
from nescio.guard import Guard
from nescio.guard.saving import BUNDLE
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.models.sources.base import Channels, Size
from nescio.modes import preserved
from nescio.posteriors.saving import fingerprint, pack
from nescio.scores import Method
from nescio.scoring import fit
from nescio.specs.saved_models import open_source
from nescio.types import InputError, ModelError, Posterior

RAMP = (1, 2, 4, 16, 64)
"""Where the first batches end that are timed, as far as they are smaller than a batch."""
FOUND = ", found by time"


@dataclass(frozen=True)
class ModelAt:
    """Where a model comes from: the arguments of `nescio.specs.saved_models.open_source`, and the device it runs on."""

    spec: str
    weights: str | None = None
    base: str | None = None
    trust_pickle: bool = False
    output: str | None = None
    size: Size | None = None
    crop: Size | None = None
    mean: Channels | None = None
    std: Channels | None = None
    device: str | None = None
    classes: tuple[str, ...] | None = None
    """The names of its classes, where they are not its own."""

    def open(self) -> Source:
        """The model, on its device; one with random weights has the same in every process and run."""
        with preserved(open_source):
            torch.default_generator.manual_seed(0)
            source = open_source(
                self.spec, self.weights, base=self.base, trust_pickle=self.trust_pickle, output=self.output,
                size=self.size, crop=self.crop, mean=self.mean, std=self.std,
            )  # fmt: skip
        if self.device is not None:
            for classifier in _classifiers(source.model):
                move(classifier, self.device)
        return source if self.classes is None else replace(source, classes=self.classes)


@dataclass(frozen=True)
class DataAt:
    """Where data come from: the arguments of `nescio.data.sources.open_data`."""

    path: str
    x: str | tuple[str, ...] | None = None
    label: str | None = "auto"
    name: str | None = "auto"
    on_error: OnError = "stop"

    def open(self, source: Source) -> Rows:
        """The rows, made ready for that model."""
        return open_data(
            self.path,
            preprocess=source.preprocess,
            x=self.x,
            label=self.label,
            name=self.name,
            classes=source.classes,
            on_error=self.on_error,
        )


@dataclass(frozen=True)
class GuardAt:
    """Where a guard was saved, and at which level it flags."""

    folder: str
    level: float = 0.05

    def open(self, source: Source) -> Guard:
        """The guard, for the model that it was fitted with."""
        if not isinstance(source.model, Classifier):
            raise ModelError(f"expected a network to guard, got {source.about}; name the network itself (--model)")
        return Guard.load(self.folder, source.model)

    @property
    def identity(self) -> list[Any]:
        """What verdicts depend on."""
        return [_short((Path(self.folder) / BUNDLE.record).read_bytes()), self.level]


@dataclass(frozen=True)
class Job:
    """A model, data, methods, and labelled data for those that have to be fitted; or a guard in the place of methods.

    Rows go to the model `batch` at a time, from row 0 on; where work is divided, it is at a multiple of that, because
    numbers are the same bit for bit in the same batch alone. ramp: the first batches are smaller, so that they can be
    timed, and `batch` was found so (`nescio.batch.pacing`). workers: threads, or processes for a GPU, that read; it
    changes no number.
    """

    model: ModelAt
    data: DataAt
    methods: tuple[Method, ...]
    fit: DataAt | None = None
    batch: int = 256
    workers: int | None = None
    ramp: bool = False
    guard: GuardAt | None = None

    def batches(self, places: range) -> Iterator[range]:
        """The places batch by batch; they begin where a batch does."""
        return batches(places, self.batch, RAMP if self.ramp else ())

    def open(self, tell: Callable[[Source, Rows], object] = lambda source, rows: None) -> Ready:
        """Open and fit; `tell` gets what was opened before the fitting begins."""
        source = self.model.open()
        rows = self.data.open(source)
        tell(source, rows)
        if self.fit is None:
            guard = None if self.guard is None else self.guard.open(source)
            return Ready(self, source, rows, self.methods, None, guard)
        data, training = labelled(self.fit, source, self.batch, self.workers)
        output: Any = source.model.output if isinstance(source.model, Classifier) else None
        methods = tuple(fit(source.model, list(self.methods), data, output=output))
        return Ready(self, source, rows, methods, training)


@dataclass(frozen=True)
class Ready:
    """A job that was opened."""

    job: Job
    source: Source
    rows: Rows
    methods: tuple[Method, ...]
    training: Rows | None
    """The rows that methods were fitted to, where they are such, for what they have of problems."""
    guard: Guard | None = None

    @property
    def columns(self) -> dict[str, Method]:
        """The methods by the names of their columns: a method that is there twice has its settings in the name."""
        counts = Counter(one.name for one in self.methods)
        return {one.name if counts[one.name] == 1 else getattr(one, "label", one.name): one for one in self.methods}

    @property
    def device(self) -> torch.device | None:
        """Where the model is."""
        return _classifiers(self.source.model)[0].device if _classifiers(self.source.model) else None


def identity(job: Job, ready: Ready) -> dict[str, Any]:
    """What the scores depend on, by a word for each that people understand, as JSON can hold it."""
    given = job.fit
    return {
        "nescio": __version__,
        "torch": torch.__version__,
        "model": job.model.spec,
        "weights": weights(ready.source.model),
        "data": _short(ready.rows.identity, job.data.x, job.data.label, job.data.name, ready.rows.classes),
        "methods": {key: repr(one) for key, one in zip(ready.columns, job.methods, strict=True)},
        "training data": None if given is None else _short(*_fitted_to(given, ready)),
        "batch size": f"{job.batch}{FOUND}" if job.ramp else job.batch,
        "classes": None if ready.source.classes is None else _short(ready.source.classes),
        **({} if job.guard is None else {"guard": job.guard.identity}),
    }


def machine(ready: Ready) -> str:
    """What computes, in words: on another one the last digits may be others."""
    device = ready.device
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device or 'cpu'}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"


def _classifiers(model: Classifier | Posterior) -> tuple[Classifier, ...]:
    return (model,) if isinstance(model, Classifier) else tuple(getattr(model, "classifiers", ()))


def weights(model: Classifier | Posterior) -> str:
    """A hash of all numbers in the model, and of the names of its parts."""
    known: list[Any] = [(fingerprint(one), one.output, _named(one.module)) for one in _classifiers(model)]
    if not isinstance(model, Classifier):
        record, tensors = pack(model)
        known.append(json.dumps(record, sort_keys=True, default=str))
        for name, value in sorted(tensors.items()):
            plain = value.detach().cpu().contiguous().reshape(-1)
            known.append((name, hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()))
    return _short(*known)


def _named(module: object) -> str:
    return re.sub(r"0x[0-9a-f]+", "", repr(module))  # addresses differ from process to process


def _short(*values: Any) -> str:
    return hashlib.sha256(repr(values).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _fitted_to(given: DataAt, ready: Ready) -> tuple[Any, ...]:
    return ready.training.identity if ready.training is not None else stamp(Path(given.path)), given.x, given.label


def labelled(
    given: DataAt, source: Source, batch: int, workers: int | None = None
) -> tuple[Iterable[tuple[Any, Tensor]], Rows | None]:
    """Labelled batches, to be gone through once, and the rows they come from; None for a plain .npz file."""
    if source.preprocess is not None or not os.fspath(given.path).endswith(".npz"):
        rows = given.open(source)
        if rows.labels is None:
            raise InputError(f"--fit: expected labelled data, but {given.path} has no labels (--label names them)")
        return _pairs(rows, batch, workers), rows
    x, y = (tensor(read_npz(given.path, key)) for key in ("x", "y"))
    if len(x) != len(y):
        raise InputError(f"--fit: expected as many labels y as inputs x in {given.path}, but got {len(y)} and {len(x)}")
    return list(zip(x.split(batch), y.split(batch), strict=True)), None


def _pairs(rows: Rows, batch: int, workers: int | None) -> Iterator[tuple[Inputs, Tensor]]:
    for read in read_ahead(rows, batches(range(len(rows)), batch), workers=workers):
        if read.batch is not None and read.batch.labels is not None:
            yield read.batch.inputs, read.batch.labels


def batches(places: range, size: int, ramp: tuple[int, ...] = ()) -> Iterator[range]:
    """The places in ranges that end at multiples of `size`, and before the first of those at the places of `ramp`."""
    at = places.start
    while at < places.stop:
        stop = next((end for end in ramp if at < end < size), (at // size + 1) * size)
        yield range(at, min(stop, places.stop))
        at = stop


def tensor(array: NDArray[Any]) -> Tensor:
    """An array of a file as a tensor."""
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 8  # torch has no wider number
    return torch.from_numpy(array.astype(np.float64) if wide else array)


def move(classifier: Classifier, device: str) -> None:
    """Bring the model to the device that was named."""
    if classifier.module is None:
        raise InputError("--device: expected a torch.nn.Module to move, but the factory gives a plain function")
    try:
        for root in classifier.roots:
            root.to(device)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        raise InputError(f"--device: cannot use '{device}' here: {error}") from error
