"""`Job`: all that says what is to be scored, in plain values that can be sent to another process.

    job = Job(ModelSpec("torchvision:resnet18", "w.safetensors"), DataSpec("photos/"), (nescio.scores.REGrad(),))
    ready = job.open()          the model, the rows, the methods, fitted where they have to be
    identity(job, ready)        what the scores depend on, to tell one job's results from another's

A job can be pickled; what `open` gives cannot: rows hold a lock, and a fitted method may hold the very model it was
fitted with. So each process opens the job for itself. That gives the same everywhere, because weights come from files
or from a fixed seed, fitting is deterministic, and random draws know their seed alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from nescio import __version__
from nescio._common.formatting import count
from nescio.data.sources import Rows
from nescio.data.sources.numbered import stamp
from nescio.dense import RegionGuard
from nescio.guard import Guard
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.posteriors.saving import fingerprint, pack
from nescio.scores import Method
from nescio.scoring import fit
from nescio.specs import (
    DataSpec,
    GuardSpec,
    ModelSpec,
    guard_record,
    only_network,
    open_guard,
    open_rows,
    open_source,
    open_training,
)
from nescio.specs.opening import classifiers_of
from nescio.types import Posterior

RAMP = (1, 2, 4, 16, 64)
"""Where the first batches end that are timed, as far as they are smaller than a batch."""
FOUND = ", found by time"


@dataclass(frozen=True)
class Job:
    """Say what is to be scored, by which methods, or judged, by which guard.

    Rows go to the model `batch` at a time, from row 0 on. Work is divided at multiples of that, because numbers are the
    same bit for bit only in the same batch.

    Args:
        model: The model.
        data: The rows.
        methods: The scores; none where a guard judges.
        fit: Labelled data for the methods that have to be fitted.
        batch: How many rows go to the model at a time.
        workers: Threads, or processes for a GPU, that read rows; None chooses. It changes no number.
        ramp: Whether the first batches are smaller, so that they can be timed (`nescio.batch.pacing`).
        guard: The guard that judges the rows, in the place of methods.
        maps: For a model that answers at every position: the folder for the maps of each row; None keeps none.

    Examples:
        >>> import tempfile
        >>> from nescio.specs import DataSpec, ModelSpec
        >>> file = tempfile.mkdtemp() + "/x.npz"
        >>> np.savez(file, x=np.zeros((4, 1, 28, 28), np.float32))
        >>> job = Job(ModelSpec("nescio.zoo:small_cnn"), DataSpec(file), (nescio.scores.get("entropy"),))
        >>> ready = job.open()
        >>> len(ready.rows), list(ready.columns)
        (4, ['entropy'])

        The other examples of this room take such a job from `nescio.batch.example_job`.
    """

    model: ModelSpec
    data: DataSpec
    methods: tuple[Method, ...]
    fit: DataSpec | None = None
    batch: int = 256
    workers: int | None = None
    ramp: bool = False
    guard: GuardSpec | None = None
    maps: str | None = None

    def batches(self, places: range) -> Iterator[range]:
        """Cut the places into batches; the first place is one where a batch begins.

        Args:
            places: Places of rows.

        Returns:
            The batches, as ranges of places.
        """
        return batches(places, self.batch, RAMP if self.ramp else ())

    def open(self, tell: Callable[[Source, Rows], object] = lambda source, rows: None) -> Ready:
        """Open the model and the rows, and fit the methods that have to be.

        Args:
            tell: Called with the model and the rows before the fitting begins.

        Returns:
            The job with its model and its rows.
        """
        source = open_source(self.model)
        rows = open_rows(self.data, source)
        tell(source, rows)
        if self.fit is None:
            guard = None if self.guard is None else open_guard(self.guard, only_network(source))
            return Ready(self, source, rows, self.methods, None, guard)
        data, training = open_training(self.fit, source, self.batch, self.workers)
        output: Any = source.model.output if isinstance(source.model, Classifier) else None
        methods = tuple(fit(source.model, list(self.methods), data, output=output))
        return Ready(self, source, rows, methods, training)


@dataclass(frozen=True)
class Ready:
    """Hold a job that was opened: its model, its rows, its methods or its guard.

    Attributes:
        job: The job.
        source: Its model.
        rows: Its rows.
        methods: Its methods, fitted.
        training: The rows that methods were fitted to, where they are such, for what they have of problems.
        guard: Its guard.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> example_job().open().device
        device(type='cpu')
    """

    job: Job
    source: Source
    rows: Rows
    methods: tuple[Method, ...]
    training: Rows | None
    guard: Guard | RegionGuard | None = None

    @property
    def columns(self) -> dict[str, Method]:
        """Return the methods by the names of their columns; a method that is there twice has its settings in it."""
        counts = Counter(one.name for one in self.methods)
        return {one.name if counts[one.name] == 1 else getattr(one, "label", one.name): one for one in self.methods}

    @property
    def device(self) -> torch.device | None:
        """Return the device of the model."""
        return classifiers_of(self.source.model)[0].device if classifiers_of(self.source.model) else None


def identity(job: Job, ready: Ready) -> dict[str, Any]:
    """Return what the scores depend on, each under a word that people understand, as JSON can hold it.

    Args:
        job: What is to be done.
        ready: The same, opened.

    Returns:
        The values by their words.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> job = example_job()
        >>> identity(job, job.open())["methods"]
        {'entropy': 'Entropy()'}
    """
    training = job.fit
    return {
        "nescio": __version__,
        "torch": torch.__version__,
        "model": job.model.name,
        "weights": weights(ready.source.model),
        "data": _short(ready.rows.identity, job.data.x, job.data.label, job.data.name, ready.rows.classes),
        "methods": {key: repr(one) for key, one in zip(ready.columns, job.methods, strict=True)},
        "training data": None if training is None else _short(*_fitted_to(training, ready)),
        "batch size": f"{job.batch}{FOUND}" if job.ramp else job.batch,
        "classes": None if ready.source.classes is None else _short(ready.source.classes),
        **({} if job.guard is None else {"guard": _guard_identity(job.guard)}),
        **({} if job.maps is None else {"maps": job.maps}),
    }


def machine(ready: Ready) -> str:
    """Say in words what computes; on another machine the last digits may differ.

    Args:
        ready: The job, opened.

    Returns:
        The words.

    Examples:
        >>> from nescio.batch.example_job import example_job
        >>> machine(example_job().open())
        'cpu, ... thread..., ...'
    """
    device = ready.device
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = count(torch.get_num_threads(), "thread")
    return f"{device or 'cpu'}, {threads}, {torch.backends.cpu.get_cpu_capability()}"


def weights(model: Classifier | Posterior) -> str:
    """Return a hash of all numbers in the model, and of the names of its modules.

    Args:
        model: The model, or a distribution over it.

    Returns:
        Sixteen digits.

    Examples:
        >>> layer = torch.nn.Linear(4, 3)
        >>> weights(nescio.Classifier(layer)) == weights(nescio.Classifier(layer))
        True
    """
    known: list[Any] = [(fingerprint(one), one.output, _named(one.module)) for one in classifiers_of(model)]
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


def _guard_identity(guard: GuardSpec) -> list[str | float]:
    """Return what verdicts depend on."""
    return [_short(guard_record(guard.folder).read_bytes()), guard.level]


def _fitted_to(given: DataSpec, ready: Ready) -> tuple[Any, ...]:
    return ready.training.identity if ready.training is not None else stamp(Path(given.path)), given.x, given.label


def batches(places: range, size: int, ramp: tuple[int, ...] = ()) -> Iterator[range]:
    """Cut places into ranges that end at multiples of `size`; before the first of these also at those of `ramp`.

    Args:
        places: The places.
        size: How many a batch has.
        ramp: Where the first batches end.

    Returns:
        The ranges.

    Examples:
        >>> list(batches(range(10), 4))
        [range(0, 4), range(4, 8), range(8, 10)]
    """
    at = places.start
    while at < places.stop:
        stop = next((end for end in ramp if at < end < size), (at // size + 1) * size)
        yield range(at, min(stop, places.stop))
        at = stop
