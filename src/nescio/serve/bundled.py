"""A model to try the service with: digits, trained once on bundled pictures and kept in the user's cache.

In ``nescio/bundled`` of $XDG_CACHE_HOME or ~/.cache are the trained network and, by method, the policy for its scores
of 300 held-out digits. A Laplace posterior of the last layer, for the kinds of doubt, and the guard, whose reference
are held-out digits too, are fitted at each start: that takes a second.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from nescio import decide, zoo
from nescio.data import load_set, to_float
from nescio.decide import ConformalPolicy, Policy
from nescio.guard import Guard
from nescio.models import Classifier
from nescio.posteriors import Laplace
from nescio.serve.engine import Engine
from nescio.specs.saved_models import open_source
from nescio.types import Method

PLAN, SEED, SAMPLES, RISK = "digits", 0, 20, 0.02


def folder() -> Path:
    """Where it is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nescio" / "bundled"


def bundled(
    methods: Sequence[str | Method] | None = None,
    place: str | Path | None = None,
    *,
    policy: Policy | ConformalPolicy | None = None,
    progress: bool | None = None,
    epochs: int | None = None,
) -> Engine:
    """The digits with a guard, and a policy for the first of the methods, unless another one is given; made if need be.

    epochs: fewer than the plan's, to try things out.
    """
    place = folder() if place is None else Path(place)
    trained = zoo.trained(PLAN, SEED, place, progress=progress, epochs=epochs)
    place = place / (f"{PLAN}-{SEED}" + ("" if epochs is None else f"-epochs{epochs}"))
    source = open_source(str(place))
    about = f"bundled digits: a small network for 8×8 pictures of white digits on black, {trained.accuracy:.1%} right"
    source = replace(source, about=about)
    assert isinstance(source.model, Classifier)
    train, test = load_set("digits", "train"), load_set("digits", "test")
    posterior = Laplace(source.model, samples=SAMPLES).fit((to_float(train.x), train.y), progress=progress)
    p = posterior.predict(to_float(test.x), progress=False)
    engine = Engine(source, methods, posterior=posterior)
    method = next(iter(engine.methods))
    file = place / f"policy-{method}.json"
    if policy is None and not file.is_file():
        found = [one.scores[method] for one in engine.assess(list(to_float(test.x)), [method])]
        right = p.mean(0).argmax(1) == test.y
        decide.threshold(found, right, RISK, about={"score": method, "model": "bundled digits"}).save(file)
    policy = Policy.load(file) if policy is None else policy
    others = sorted(set(range(len(test.y))) - set(shown(test.y)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the reference has", UserWarning)  # there are no more, and nobody can add any
        guard = Guard(source.model).fit((to_float(test.x)[others], test.y[others]), progress=progress)
    return Engine(source, methods, posterior=posterior, policy=policy, guard=guard)


def shown(labels: Tensor) -> list[int]:
    """The places of the first held-out digit of each kind: examples for people, which are in no reference."""
    return [int((labels == label).nonzero()[0]) for label in range(10)]
