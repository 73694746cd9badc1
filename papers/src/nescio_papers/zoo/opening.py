"""`open_trained`: a folder of `nescio train` as a model, for `--model FOLDER` (entry-point group nescio.folders)."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nescio.models.sources import Pictures
from nescio.models.sources.base import Opened
from nescio.models.sources.heads import size
from nescio.models.weights import fill, read_weights
from nescio.types import InputError
from nescio_papers.datasets import SETS
from nescio_papers.zoo.trained import FACTS, WEIGHTS, named

_SIDES = {"mnist": 28, "digits": 8}


def open_trained(place: Path, weights: str | os.PathLike[str] | None, trust_pickle: bool) -> Opened:
    """Open a network that `nescio train` has kept.

    Args:
        place: Its folder.
        weights: A file of other weights; None takes those of the folder.
        trust_pickle: Whether that file may hold code.

    Raises:
        InputError: if the folder is damaged or names no plan.
    """
    file = place / FACTS
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {file}: {error}; it is damaged") from error
    try:
        plan, seed = named(facts["identity"]["plan"]), int(facts["identity"]["seed"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"expected the plan and seed of a trained network in {file}, but: {error}; train it again"
        ) from error
    model = plan.model(seed)
    source = place / WEIGHTS if weights is None else Path(weights)
    fill(model, read_weights(source, trust_pickle=trust_pickle), str(source))
    side = _SIDES.get(plan.data, 32)
    about = f"{plan.name}, seed {seed}, of {place}, {size(model)}"
    return Opened(model.eval(), about, Pictures((side, side), channels=len(model.mean)), SETS[plan.data].classes)
