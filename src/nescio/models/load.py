"""A model by name: the factory ``package.module:factory`` is found, called, and its model filled with weights."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from nescio.inputs import describe
from nescio.models.classifier import Classifier
from nescio.models.structure import listing
from nescio.models.weights import fill, read_weights
from nescio.types import InputError, ModelError


def load(
    spec: str, weights: str | os.PathLike[str] | None = None, *, trust_pickle: bool = False
) -> Classifier | Callable[..., Any]:
    """Make a model with a factory, and load weights into it.

    Args:
        spec: ``package.module:factory``; modules in the current folder are found too. The factory is called without
            arguments and returns a ``torch.nn.Module``, or a `Classifier` that also says how to read inputs and
            outputs.
        weights: A ``.safetensors`` file or one of ``torch.save``.
        trust_pickle: Whether to execute the code that a pickle names.

    Returns:
        The model.

    Raises:
        InputError: The spec, or the file of weights, cannot be read.
        ModelError: The factory is not there or fails, or the weights do not fit.

    Examples:
        >>> nescio.models.load("torch.nn:Identity")
        Identity()
    """
    with folder_importable():
        model = _model_of(imported_factory(spec), spec)
    if weights is not None:
        module = model.module if isinstance(model, Classifier) else model
        if not isinstance(module, nn.Module):
            raise ModelError(f"expected {spec} to give a torch.nn.Module to load weights into, got {describe(module)}")
        fill(module, read_weights(weights, trust_pickle=trust_pickle), os.fspath(weights))
    return model


def imported_factory(spec: str) -> Any:
    """The object that `spec` names."""
    name, colon, attribute = spec.partition(":")
    if not (name and colon and attribute):
        raise InputError(
            f"expected package.module:factory, got {spec!r}; for example torchvision.models:resnet18, "
            "or mymodels:build for a function build in mymodels.py of this folder"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(
            f"expected package.module:factory, got {spec!r}; a module is named by words with dots between them and not "
            "by a path: run from the folder that holds it, or add that folder to PYTHONPATH"
        )
    importlib.invalidate_caches()
    try:
        named: Any = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise ModelError(
                f"expected a module {name!r}, but there is no {error.name!r} to import (seen from {Path.cwd()}); "
                "check its name, run from the folder that holds it, or install its package"
            ) from error
        raise ModelError(
            f"expected to import {name!r}, but it needs {error.name!r}, which is not installed; install that first"
        ) from error
    for part in attribute.split("."):
        if not hasattr(named, part):
            public = [key for key, value in vars(named).items() if callable(value) and not key.startswith("_")]
            raise ModelError(f"expected {part!r} in {name!r}, which has {listing(public) or 'nothing to call'}")
        named = getattr(named, part)
    return named


def _model_of(factory: Any, spec: str) -> Classifier | Callable[..., Any]:
    """What the factory returns; a module that is there already is taken as it is."""
    if isinstance(factory, nn.Module | Classifier):
        return factory
    if not callable(factory):
        raise ModelError(f"expected {spec} to be a function that makes a model, got {describe(factory)}")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ModelError(
            f"expected {spec} to work without arguments, got: {error}; write a function that gives them"
        ) from error
    except ValueError:  # some have no signature to look at
        pass
    model = factory()
    if not isinstance(model, Classifier) and not callable(model):
        raise ModelError(f"expected {spec} to return a torch.nn.Module, got {describe(model)}")
    result: Classifier | Callable[..., Any] = model
    return result


@contextmanager
def folder_importable() -> Iterator[None]:
    """The current folder first among those that Python imports from, as `python -m` has it."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
