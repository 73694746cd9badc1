"""A plan carried out: the network of a plan and a seed, trained once and found again in its folder.

A folder NAME-SEED holds ``weights.pt`` (read without executing code) and ``trained.json`` (accuracy, history, plan);
while training goes on, also the state of the run, from which a killed one goes on.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from nescio import training
from nescio.data import replacing
from nescio.training import Epoch
from nescio.training.checkpoint import described
from nescio.types import InputError
from nescio.zoo import Normalised
from nescio_papers.datasets import load_set
from nescio_papers.zoo.plans import RECIPES, TrainingPlan, to_floats

WEIGHTS, FACTS = "weights.pt", "trained.json"
RENAMED = ("nescio.zoo.plans.", "nescio_papers.zoo.plans.")
"""Folders that were written before the papers were a package of their own name functions by the first."""


@dataclass(frozen=True)
class Trained:
    """A trained network in eval mode, and what is known of it; ``accuracy`` is on the test pictures."""

    model: Normalised
    accuracy: float
    history: tuple[Epoch, ...]
    seconds: float
    plan: str
    seed: int


def trained(
    plan: TrainingPlan | str,
    seed: int = 0,
    folder: str | Path = "models",
    *,
    root: str | Path | None = None,
    device: str | torch.device = "cpu",
    progress: bool | None = None,
    limit: int | None = None,
    epochs: int | None = None,
) -> Trained:
    """Return the network of a plan and a seed: read from its folder, or trained and kept there.

    Args:
        plan: A plan, or the name of one of `RECIPES`.
        seed: Seed of the weights, of the order of pictures, and of which of them choose between epochs.
        folder: The folder of all networks; this one lies in `folder/PLAN-SEED`.
        root: The folder of the data sets, as `load_set` takes it.
        device: Where to train.
        progress: Whether to show a bar; None shows it in a terminal.
        limit: Use so many training pictures, to try things out; such a network has a folder of its own.
        epochs: Other than the plan's, to try things out; such a network has a folder of its own.

    Raises:
        InputError: if the data are not there, or the folder holds a network that was trained with other settings.
    """
    plan = named(plan)
    if epochs is not None:
        plan = replace(plan, recipe=replace(plan.recipe, epochs=epochs))
    suffix = "".join(f"-{word}{value}" for word, value in (("limit", limit), ("epochs", epochs)) if value is not None)
    place = Path(folder) / f"{plan.name}-{seed}{suffix}"
    model = plan.model(seed)
    identity = {"plan": plan.name, "seed": seed, **described(plan.recipe)}
    if (place / FACTS).exists():
        return _read(place, model.to(device), identity)
    start = perf_counter()
    data, validation, test = _parts(plan, seed, root, limit)
    model.to(device)
    history = training.train(model, data, validation, recipe=plan.recipe, seed=seed, folder=place, progress=progress)
    right = _accuracy(model, *test)
    seconds = perf_counter() - start
    with replacing(place / WEIGHTS) as part:
        torch.save({name: value.cpu() for name, value in model.state_dict().items()}, part)
    facts = {"identity": identity, "accuracy": right, "seconds": seconds, "history": [asdict(e) for e in history]}
    with replacing(place / FACTS) as part:
        part.write_text(json.dumps(facts, indent=1))
    (place / training.checkpoint.FILE).unlink(missing_ok=True)
    return Trained(model, right, tuple(history), seconds, plan.name, seed)


def named(plan: TrainingPlan | str) -> TrainingPlan:
    """Return the plan of this name; a plan is returned as it is."""
    if isinstance(plan, TrainingPlan):
        return plan
    if plan not in RECIPES:
        raise InputError(f"expected the name of a plan, got {plan!r}; known: {', '.join(RECIPES)}")
    return RECIPES[plan]


Labelled = tuple[Tensor, Tensor]


def _parts(
    plan: TrainingPlan, seed: int, root: str | Path | None, limit: int | None
) -> tuple[Labelled, Labelled, Labelled]:
    """Return the training, validation and test pictures of a plan."""
    train, test = load_set(plan.data, "train", root=root), load_set(plan.data, "test", root=root)
    order = torch.randperm(len(train.x), generator=torch.Generator().manual_seed(seed))[:limit]
    held = max(1, math.floor(plan.validation * len(order)))
    fit, chosen = order[held:], order[:held]
    return (train.x[fit], train.y[fit]), (train.x[chosen], train.y[chosen]), (test.x, test.y)


@torch.no_grad()
def _accuracy(model: Normalised, x: Tensor, y: Tensor) -> float:
    right = 0
    for some, labels in zip(x.split(1000), y.split(1000), strict=True):
        answers = model(to_floats(some.to(model.mean.device))).argmax(1)
        right += int((answers.cpu() == labels).sum())
    return right / len(y)


def _read(place: Path, model: Normalised, identity: dict[str, Any]) -> Trained:
    try:
        facts = json.loads((place / FACTS).read_text())
        weights = torch.load(place / WEIGHTS, map_location="cpu", weights_only=True)
        kept = {name: str(value).replace(*RENAMED) for name, value in facts["identity"].items()}
        if kept != {name: str(value) for name, value in identity.items()}:
            raise InputError(
                f"expected the network of plan {identity['plan']} and seed {identity['seed']} in {place}, but it was "
                "trained with other settings; delete that folder or name another one"
            )
        model.load_state_dict(weights)
        history = tuple(Epoch(**epoch) for epoch in facts["history"])
        return Trained(model.eval(), facts["accuracy"], history, facts["seconds"], identity["plan"], identity["seed"])
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise InputError(
            f"expected a trained network in {place}, but it cannot be read ({type(error).__name__}: {error}); "
            "delete that folder to train again"
        ) from error
