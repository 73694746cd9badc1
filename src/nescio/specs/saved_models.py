"""Which model a folder of nescio belongs to: ``model.json`` beside a saved posterior or guard.

A model is code, so it is not saved with them; its name is. A folder may come from anyone, and a function that its
``model.json`` names would be run. So without `ModelSpec.trust_pickle` only a model of torchvision, timm, transformers
or the zoo, or a trained network, is opened because a folder names it. A function has to be named by the one who opens
it: as `ModelSpec.base`, or as ``--model``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nescio import zoo
from nescio._common.json_files import json_object
from nescio.data import replacing
from nescio.models.sources.model_opening import KINDS
from nescio.specs.values import ModelSpec
from nescio.types import InputError

MODEL = "model.json"
FACTS, WEIGHTS = "trained.json", "weights.pt"
NETWORKS = ("small_cnn", *zoo.PAPERS_NETWORKS)
_KEPT = ("weights", "output", "size", "crop", "mean", "std", "class_names")
"""What is remembered of a spec, beside its name."""


def folder_of(name: str) -> Path:
    """Return the folder that the name of a model means, if it is one: a trained network is also known by its files."""
    path = Path(name)
    return path.parent if path.name in (WEIGHTS, FACTS) and (path.parent / FACTS).is_file() else path


def names_code(name: str) -> bool:
    """Return whether a model of that name comes from a function, which is run to make it, and not from a collection.

    Args:
        name: The name of a model, as `ModelSpec` has it.

    Returns:
        True for ``package.module:factory``.

    Examples:
        >>> names_code("mymodels:build"), names_code("timm:resnet18"), names_code("model.pt2")
        (True, False, False)
    """
    kind, colon, rest = name.partition(":")
    of_the_zoo = kind in (zoo.__name__, "nescio_papers.zoo") and rest in NETWORKS
    return bool(colon) and not (kind in KINDS or of_the_zoo or folder_of(name).is_dir())


def remember(folder: str | os.PathLike[str], spec: ModelSpec) -> None:
    """Write beside a saved posterior or guard which model it belongs to, so that opening it needs nothing more.

    Args:
        folder: Where the posterior or the guard is.
        spec: The model; paths of files are kept as absolute ones.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     remember(folder, ModelSpec("timm:resnet18", size=224))
        ...     remembered(folder)
        ModelSpec(name='timm:resnet18', size=224)
    """
    kind, _, rest = spec.name.partition(":")
    name = f"hf:{Path(rest).resolve()}" if kind == "hf" and Path(rest).exists() else _absolute(spec.name)
    settings = {key: getattr(spec, key) for key in _KEPT}
    settings |= {key: None if settings[key] is None else _absolute(settings[key]) for key in ("weights", "class_names")}
    record = {"format": "nescio.model", "version": 1, "model": name, **settings}
    with replacing(Path(folder) / MODEL) as part:
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def remembered(folder: str | os.PathLike[str]) -> ModelSpec | None:
    """Read the spec that `remember` has written.

    Args:
        folder: Where the posterior or the guard is.

    Returns:
        The spec; None where nothing was written.

    Raises:
        InputError: The file is damaged, or another one.

    Examples:
        >>> remembered("nowhere") is None
        True
    """
    file = Path(folder) / MODEL
    if not file.is_file():
        return None
    record = json_object(file, "a record", "it is damaged")
    if record.get("format") != "nescio.model" or not isinstance(record.get("model"), str):
        raise InputError(f"expected the name of a model in {file}, got another file; name it as base (--base)")
    kept: dict[str, Any] = {key: tuple(value) if isinstance(value := record.get(key), list) else value for key in _KEPT}
    return ModelSpec(record["model"], **kept)


def _absolute(path: str) -> str:
    return str(Path(path).resolve()) if Path(path).exists() else path
