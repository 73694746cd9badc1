"""The page with no set-up at all: the digits of `nescio.serve.bundled`, every method, and things that are no digits."""

from __future__ import annotations

from pathlib import Path

import torch

from nescio import __version__, scores
from nescio._common.lazy_imports import need
from nescio.app import doubt_scale, examples
from nescio.app.backend import Backend
from nescio.data import byte_digits
from nescio.decide import ConformalPolicy, Policy
from nescio.scores.base import must_be_fitted
from nescio.scoring import fit
from nescio.serve import bundled as service
from nescio.serve.engine import Engine

METHODS = (
    scores.default_method().name,
    *("regrad", "exgrad", "evengrad", "gradnorm", "perturb_x", "mahalanobis", "knn", "energy", "entropy"),
    *("max_probability", "mutual_information"),
)
KNOWN = "the digits it knows"


def bundled(
    methods: list[str] | None = None,
    place: str | Path | None = None,
    *,
    policy: tuple[str, Policy | ConformalPolicy] | None = None,
    progress: bool | None = None,
    epochs: int | None = None,
    known: int = 300,
) -> Backend:
    """Return what the page of the bundled digits stands on; the first call trains and measures them, and keeps that.

    Args:
        methods: The scores to compare; None takes many.
        place: Where the model is kept; None means the user's cache.
        policy: Which answers to accept, and what that policy is called.
        progress: Whether bars are shown; None shows them in a terminal.
        epochs: How long the model is trained; None takes the usual number.
        known: How many held-out digits say what scores are usual.

    Returns:
        The backend, for `run` or `application`.

    Raises:
        MissingExtra: If a package of the extra "app" is not installed.

    Examples:
        >>> nescio.app.run(nescio.app.bundled(), nescio.app.Settings())  # doctest: +SKIP
    """
    for package in ("sklearn", "PIL", "matplotlib"):
        need(package, "app")
    names = list(methods or METHODS)
    made = service.bundled(names[:1], place, progress=progress, epochs=epochs)
    digits = byte_digits()
    train, test = digits.train, digits.held_out
    assert made.network is not None
    chosen = [scores.get(name) for name in names]
    if learning := [method for method in chosen if must_be_fitted(method)]:
        fitted = {m.name: m for m in fit(made.network, learning, (train.x, train.y), progress=False)}
        chosen = [fitted.get(method.name, method) for method in chosen]
    rule = None if policy is None else policy[1]
    engine = Engine(made.source, chosen, posterior=made.posterior, policy=rule, guard=made.guard)
    others = sorted(set(range(len(test.y))) - set(service.example_places(test.y)))[
        :known
    ]  # than those that are examples
    rows, labels = list(test.x[others]), test.y[others]
    key = {
        "methods": {name: repr(method) for name, method in engine.methods.items()},
        "nescio": __version__,
        "torch": torch.__version__,
        "known": len(rows),
        "epochs": epochs,
    }
    file = (service.folder() if place is None else Path(place)) / "scale.npz"
    scale = doubt_scale.read_scale(file, key)
    if scale is None:
        scale = doubt_scale.measured(engine, rows, known=KNOWN, labels=labels, progress=progress)
        doubt_scale.write_scale(file, key, scale)
    return Backend(
        engine,
        scale=scale,
        policy=policy,
        examples=tuple(examples.digits_and_others()),
        notes=("The digits are white on black, 8×8 pixels: a dark digit on white paper is foreign to the model.",),
    )
