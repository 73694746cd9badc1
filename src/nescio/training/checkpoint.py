"""A training run in one file, which is replaced as a whole after every epoch, and so is valid whenever the run ends.

It holds the weights, those of the best epoch, the optimizer's state, the state of every random generator, the history,
and what the run was started with: only a run with the same arguments goes on from it. `torch.load` reads it without
executing code.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from nescio.data import check_writable, replacing
from nescio.training.recipe import Recipe
from nescio.types import InputError

FILE = "training.pt"
VERSION = 1


def stable_name(function: object) -> str:
    """A function, or an object that is called, by a name that is the same in the next run."""
    if function is None or (is_dataclass(function) and not isinstance(function, type)):
        return repr(function)
    if isinstance(function, functools.partial):
        words = [*map(repr, function.args), *(f"{key}={value!r}" for key, value in sorted(function.keywords.items()))]
        return f"{stable_name(function.func)}({', '.join(words)})"
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}.{kind.__qualname__}"


def described(recipe: Recipe) -> dict[str, str]:
    """The settings of a recipe as text."""
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    return {name: stable_name(value) if callable(value) else repr(value) for name, value in values.items()}


def write(folder: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Put the state of the run in the place of the one before."""
    with replacing(Path(folder) / FILE) as part:
        torch.save({"format": "nescio.training", "version": VERSION, **content}, part)


def read(folder: str | os.PathLike[str], identity: Mapping[str, str]) -> dict[str, Any] | None:
    """The state of a run that was started with the same arguments, or None where there is none yet.

    The folder is made where it is missing.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {place}: {error.strerror or error}") from error
    file = place / FILE
    check_writable(file)  # before the first epoch, not after it
    if not file.exists():
        return None
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
        assert content["format"] == "nescio.training"
    except Exception as error:  # a damaged file can raise anything
        raise InputError(
            f"expected the state of a training run in {file}, but it cannot be read ({type(error).__name__}): it is "
            "damaged or another file; delete it to begin again, or name another folder"
        ) from error
    if content["version"] != VERSION:
        raise InputError(f"expected version {VERSION} in {file}, got {content['version']!r}; name another folder")
    began = content["identity"]
    other = [
        f"{name} ({began.get(name, 'nothing')} there, {identity.get(name, 'nothing')} here)"
        for name in dict.fromkeys([*began, *identity])
        if began.get(name) != identity.get(name)
    ]
    if other:
        raise InputError(
            f"expected the arguments that the run in {place} was started with, but others came: {'; '.join(other)}. "
            "Name another folder, or delete that one; to go on after a kill, the model must start from the same "
            "weights too: seed what makes it"
        )
    result: dict[str, Any] | None = content
    return result
