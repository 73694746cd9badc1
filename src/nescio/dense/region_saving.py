"""A `RegionGuard` in a folder: `regions.json` and its tensors, and below it, in `whole`, the guard of whole pictures.

The model is not in it: `load` is given the model, and refuses another one's weights.
"""

from __future__ import annotations

import os
from pathlib import Path

from nescio.data.bundles import Bundle
from nescio.dense.region_guard import Averaged, RegionGuard
from nescio.guard import Guard
from nescio.models import ModelLike
from nescio.posteriors.saving import fingerprint, same
from nescio.types import InputError

BUNDLE = Bundle("regions.json", "nescio.regions", 1, "guard of regions")
WHOLE = "whole"
"""The folder of the guard of whole pictures."""


def save(guard: RegionGuard, folder: str | os.PathLike[str]) -> None:
    """Write a fitted guard to the folder, which is made where it is missing; an older guard in it is replaced."""
    assert guard.fitted and guard.guard is not None
    record = {
        "output": guard.classifier.output,
        "class_dim": guard.classifier.class_dim,
        "weights": fingerprint(guard.classifier),
        "layer": guard.layer,
        "neighbours": guard.witness.neighbours,
        "memory": guard.memory,
        "grid": guard.grid,
    }
    BUNDLE.write(folder, record, guard._state)
    guard.guard.save(Path(folder) / WHOLE)


def load(folder: str | os.PathLike[str], model: ModelLike) -> RegionGuard:
    """Return the guard that was saved in the folder, for the model that it was fitted with."""
    record, tensors = BUNDLE.read(folder)
    try:
        classifier = same(model, record)
        classifier.class_dim = record["class_dim"]
        settings = {key: record[key] for key in ("layer", "neighbours", "memory", "grid")}
        guard = RegionGuard(classifier, **settings)
        guard._state = dict(tensors)
        missing = {"features", "values", "shares", "maxima"} - tensors.keys()
    except (KeyError, TypeError) as error:
        raise InputError(
            f"expected a saved guard of regions in {folder}, but its record is not whole ({error!r}); save it again"
        ) from error
    if missing or not all(bool(value.isfinite().all()) for value in tensors.values()):
        raise InputError(f"expected finite tensors of a guard of regions in {folder}, got others; save it again")
    guard.guard = Guard.load(Path(folder) / WHOLE, Averaged(classifier))
    return guard
