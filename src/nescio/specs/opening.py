"""From specs to what they name: a model, its rows, labelled batches to fit with, a guard.

The only place where a model is opened. One with random weights has the same ones in every process and in every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio import plugins, posteriors
from nescio.data import read_class_names, read_npz
from nescio.data.prefetch import read_ahead
from nescio.data.sources import Rows, open_data
from nescio.dense import RegionGuard, region_saving
from nescio.guard import Guard, guard_saving
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.positions import PositionsFound
from nescio.models.sources import Source, open_model
from nescio.models.sources.base import Opened
from nescio.models.sources.model_opening import FORMS, with_own_settings
from nescio.modes import preserved
from nescio.posteriors.saving import RECORD
from nescio.specs.saved_models import FACTS, MODEL, folder_of, names_code, remembered
from nescio.specs.values import DataSpec, GuardSpec, ModelSpec
from nescio.types import InputError, ModelError, Posterior

AnyGuard = Guard | RegionGuard
"""Of whole inputs, or of pictures and their regions."""
Pairs = Sequence[tuple[Inputs, Tensor]]
"""Labelled batches, to fit with."""


def open_source(spec: ModelSpec) -> Source:
    """Open the model that a spec names, and bring it to its device.

    Args:
        spec: Which model, and how it is opened.

    Returns:
        The model or posterior, how a row is made ready for it, and the names of its classes.

    Raises:
        InputError: The spec names nothing that can be opened, or its device cannot be used.
        ModelError: Opening the model would run code that nobody has trusted.

    Examples:
        >>> open_source(ModelSpec("nescio.zoo:small_cnn")).about
        'nescio.zoo:small_cnn, ... parameters'
    """
    class_names = None if spec.class_names is None else read_class_names(spec.class_names)
    with preserved(open_source):
        torch.default_generator.manual_seed(0)
        source = _opened(spec)
    if spec.device is not None:
        for classifier in classifiers_of(source.model):
            _move(classifier, spec.device)
    return source if class_names is None else replace(source, classes=class_names)


def classifiers_of(model: Classifier | Posterior) -> tuple[Classifier, ...]:
    """Return the networks of a model: the classifier itself, or those of a posterior."""
    return (model,) if isinstance(model, Classifier) else tuple(getattr(model, "classifiers", ()))


def open_rows(data: DataSpec, source: Source) -> Rows:
    """Open the rows that a spec names, made ready for a model.

    Args:
        data: Where the rows are.
        source: The model that they are for.

    Returns:
        The rows, which are read one by one.

    Examples:
        >>> import tempfile
        >>> source = open_source(ModelSpec("nescio.zoo:small_cnn"))
        >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        ...     np.savez(file.name, x=np.zeros((5, 1, 28, 28), dtype=np.float32))
        ...     len(open_rows(DataSpec(file.name), source))
        5
    """
    return open_data(
        data.path, preprocess=source.preprocess, x=data.x, label=data.label, name=data.name, classes=source.classes,
        on_error=data.on_error,
    )  # fmt: skip


def open_training(
    data: DataSpec, source: Source, batch_size: int, workers: int | None = None
) -> tuple[Iterable[tuple[Inputs, Tensor]], Rows | None]:
    """Open labelled data, to fit methods or a posterior with.

    Args:
        data: Where the data are.
        source: The model that is fitted with.
        batch_size: How many rows a batch has.
        workers: Threads or processes that read; None chooses.

    Returns:
        Pairs of inputs and labels, to be gone through once, and the rows that they come from; None for the arrays of a
        .npz file, which are read as they are.

    Examples:
        >>> import tempfile
        >>> source = open_source(ModelSpec("nescio.zoo:small_cnn"))
        >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        ...     np.savez(file.name, x=np.zeros((5, 1, 28, 28), dtype=np.float32), y=np.arange(5))
        ...     pairs, rows = open_training(DataSpec(file.name), source, batch_size=4)
        >>> [len(labels) for inputs, labels in pairs]
        [4, 1]
    """
    if source.preprocess is not None or not os.fspath(data.path).endswith(".npz"):
        rows = open_rows(data, source)
        if rows.labels is None:
            raise InputError(f"--fit: expected labelled data, but {data.path} has no labels (--label names them)")
        return _pairs(rows, batch_size, workers), rows
    x, y = (_tensor(read_npz(data.path, key)) for key in ("x", "y"))
    if len(x) != len(y):
        raise InputError(f"--fit: expected as many labels y as inputs x in {data.path}, but got {len(y)} and {len(x)}")
    return list(zip(x.split(batch_size), y.split(batch_size), strict=True)), None


def guard_record(folder: str | os.PathLike[str]) -> Path:
    """Return the file that says what a folder of a guard holds: of one of whole inputs, or of regions of pictures.

    Args:
        folder: Where the guard was saved.

    Returns:
        The file.

    Raises:
        InputError: The folder holds no guard.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> nescio.Guard(torch.nn.Linear(4, 3)).fit(torch.randn(400, 4), progress=False).save(folder)
        >>> guard_record(folder).name
        'guard.json'
    """
    for bundle in (guard_saving.BUNDLE, region_saving.BUNDLE):
        if (file := Path(folder) / bundle.record).is_file():
            return file
    raise InputError(f"expected a folder of `nescio guard`, but there is no {guard_saving.BUNDLE.record} in {folder}")


def open_guard(guard: GuardSpec, network: Classifier) -> AnyGuard:
    """Load a guard for the network that it was fitted with.

    Args:
        guard: Where the guard was saved.
        network: That network.

    Returns:
        The guard; of a model that answers at every position a `nescio.dense.RegionGuard`.

    Examples:
        >>> import tempfile
        >>> network, folder = nescio.Classifier(torch.nn.Linear(4, 3)), tempfile.mkdtemp()
        >>> nescio.Guard(network).fit(torch.randn(400, 4), progress=False).save(folder)
        >>> open_guard(GuardSpec(folder), network).check(torch.randn(2, 4)).p_value.shape
        torch.Size([2])
    """
    of_regions = guard_record(guard.folder).name == region_saving.BUNDLE.record
    return (RegionGuard if of_regions else Guard).load(guard.folder, network)


def fit_guard(network: Classifier, rows: Rows, *, doubt: str | None = None, seed: int = 0, **settings: Any) -> AnyGuard:
    """Fit a guard to the rows of a reference.

    Args:
        network: The model that is guarded.
        rows: Some hundred inputs of the kind that the model is meant for.
        doubt: The score that the witness of doubt takes; None takes the usual one.
        seed: Of the split of the reference.
        settings: Further ones of `nescio.Guard.fit`.

    Returns:
        The guard, fitted; for a model that answers at every position a `nescio.dense.RegionGuard`, which asks no
        witness of doubt and makes no changed copies.

    Raises:
        InputError: The rows are too few, or too alike.

    Examples:
        >>> import tempfile
        >>> np.save(file := tempfile.mkdtemp() + "/x.npy", np.random.randn(400, 4).astype(np.float32))
        >>> guard = fit_guard(nescio.Classifier(torch.nn.Linear(4, 3)), open_data(file), progress=False)
        >>> guard.fitted.names[0]
        'doubt'
    """
    try:
        try:
            guard = Guard(network) if doubt is None else Guard(network, doubt=doubt)
            return guard.fit(rows, seed=seed, **settings)
        except PositionsFound as found:
            network.class_dim = found.class_dim
            return RegionGuard(network).fit(rows, seed=seed)
    except InputError as error:
        bad = rows.problems if rows.on_error == "skip" else []  # else the error names the row
        rest = f"; {len(bad)} of {len(rows)} rows could not be used, the first: {bad[0]}" if bad else ""
        raise InputError(f"--reference: {error}{rest}") from error


def only_network(source: Source, why: str = "for a guard") -> Classifier:
    """Return the model of a source that is a single network.

    Args:
        source: The model, opened.
        why: What it has to be one for, in words.

    Returns:
        The network.

    Raises:
        ModelError: The source is a distribution over networks.

    Examples:
        >>> only_network(open_source(ModelSpec("nescio.zoo:small_cnn"))).output
        'logits'
    """
    if not isinstance(source.model, Classifier):
        raise ModelError(f"expected one network {why}, got {source.about}; name the network itself (--model)")
    return source.model


def _opened(spec: ModelSpec) -> Source:
    """Open by what the name means: a saved posterior, a trained network, or what `open_model` knows."""
    folder = folder_of(spec.name)
    if (folder / RECORD).is_file():
        return _posterior(folder, spec)
    if spec.base is not None:
        raise InputError(f"expected a folder of a saved posterior beside a base, got {spec.name!r}; leave the base out")
    changes = (spec.size, spec.crop, spec.mean, spec.std)
    if (folder / FACTS).is_file():
        return with_own_settings(_trained(folder, spec), spec.output, changes)
    if folder.is_dir():
        hint = f"; say hf:{spec.name} for a model of transformers" if (folder / "config.json").is_file() else ""
        raise InputError(
            f"expected {FORMS}, or a folder with {FACTS} (nescio train) or {RECORD} (a saved posterior), got the "
            f"folder {spec.name}, which has neither{hint}"
        )
    size, crop, mean, std = changes
    return open_model(
        spec.name, spec.weights, trust_pickle=spec.trust_pickle, output=spec.output, size=size, crop=crop, mean=mean,
        std=std, task=spec.task,
    )  # fmt: skip


def _posterior(folder: Path, spec: ModelSpec) -> Source:
    """Open a saved distribution over its model."""
    base = replace(spec, name=spec.base, base=None) if spec.base is not None else None
    kept = _known_base(folder, base, spec.trust_pickle)
    if kept is not None:
        base = replace(spec, name=kept.name, base=None).filled_from(kept)
    assert base is not None
    if (Path(base.name) / RECORD).is_file():
        raise InputError(f"expected a model under the posterior in {folder}, got another posterior, {base.name}")
    under = _opened(base)
    posterior = posteriors.load(folder, only_network(under))
    about = f"{type(posterior).__name__} of {folder} over {under.about}"
    return Source(posterior, under.preprocess, about, under.classes)


def _known_base(folder: Path, given: ModelSpec | None, trust_pickle: bool) -> ModelSpec | None:
    """Return the model that the folder names: None where another one was given, or nothing is known of it."""
    if given is not None:
        with suppress(InputError):
            kept = remembered(folder)
            return kept if kept is not None and kept.name == given.name else None
        return None
    kept = remembered(folder)
    if kept is None:
        raise InputError(
            f"expected to know which model the posterior in {folder} belongs to, but there is no {MODEL}; name the "
            "model as base (--base), with its weights"
        )
    if names_code(kept.name) and not trust_pickle:
        raise ModelError(
            f"{folder / MODEL} names the function {kept.name}, and opening it would run that: expected to be told that "
            f"this is meant. If you know that function, name it yourself: base={kept.name!r} (--base {kept.name}); if "
            "you trust where the folder comes from, say trust_pickle=True (--trust-pickle)"
        )
    return kept


def _trained(folder: Path, spec: ModelSpec) -> Opened:
    """Open a network that `nescio train` has kept, by the package that knows it."""
    entry = plugins.plugins("nescio.folders").get(FACTS)
    if entry is None:
        raise ModelError(
            f"expected the package nescio_papers, which knows the network in {folder}, but it is not installed; "
            f"install it: {plugins.PAPERS}"
        )
    result: Opened = plugins.load(entry)(folder, spec.weights, spec.trust_pickle)
    return result


def _move(classifier: Classifier, device: str) -> None:
    if classifier.module is None:
        raise InputError("--device: expected a torch.nn.Module to move, but the factory gives a plain function")
    try:
        for root in classifier.roots:
            root.to(device)
    except (RuntimeError, AssertionError, ValueError, NotImplementedError) as error:
        raise InputError(f"--device: cannot use '{device}' here: {error}") from error


def _pairs(rows: Rows, size: int, workers: int | None) -> Iterator[tuple[Inputs, Tensor]]:
    ranges = (range(start, min(start + size, len(rows))) for start in range(0, len(rows), size))
    for read in read_ahead(rows, ranges, workers=workers):
        if read.batch is not None and read.batch.labels is not None:
            yield read.batch.inputs, read.batch.labels


def _tensor(array: NDArray[Any]) -> Tensor:
    wide = array.dtype.kind == "f" and array.dtype.itemsize > 8  # torch has no wider number
    return torch.from_numpy(array.astype(np.float64) if wide else array)
