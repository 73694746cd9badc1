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

import torch
from torch import Tensor

from nescio import decide, training
from nescio._common.formatting import percentage
from nescio.data import Split, byte_digits, replacing
from nescio.decide import ConformalPolicy, Policy
from nescio.guard import Guard
from nescio.models import Classifier
from nescio.models.sources import Pictures, Source
from nescio.models.weights import fill, read_weights
from nescio.posteriors import Laplace
from nescio.scores import Method
from nescio.serve.engine import Engine
from nescio.training import Recipe, accuracy
from nescio.zoo import Normalised, small_cnn

SEED, SAMPLES, RISK = 0, 20, 0.02
CHOOSING = 0.1
"""The share of the training digits that chooses between epochs."""
MEAN, STD = (0.3053,), (0.3760,)
"""Of the training pixels, with values in [0, 1]."""
RECIPE = Recipe(
    epochs=30, batch_size=128, lr=1e-2, optimizer="sgd", momentum=0.9, weight_decay=5e-4, schedule="constant"
)
"""The REGrad paper's for its small CNN (supplement B.1)."""
WEIGHTS = "weights.pt"


def folder() -> Path:
    """Return the folder where the bundled model is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nescio" / "bundled"


def bundled(
    methods: Sequence[str | Method] | None = None,
    place: str | Path | None = None,
    *,
    policy: Policy | ConformalPolicy | None = None,
    progress: bool | None = None,
    epochs: int | None = None,
) -> Engine:
    """Return the bundled digits with a guard and a policy; they are trained with the first call, and kept.

    Args:
        methods: Names or objects of scores; None takes the usual one.
        place: Where the model is kept; None means the user's cache.
        policy: Which answers to accept; None makes a policy for the first of the methods.
        progress: Whether bars are shown; None shows them in a terminal.
        epochs: How long it is trained; None takes the usual number.
    """
    digits = byte_digits()
    train, test = digits.train, digits.held_out
    place = folder() if place is None else Path(place)
    place = place / (f"digits-{SEED}" + ("" if epochs is None else f"-epochs{epochs}"))
    network = _network(place, train, replace(RECIPE, epochs=RECIPE.epochs if epochs is None else epochs), progress)
    right = accuracy(network, test.x, test.y)
    about = f"bundled digits: a small network for 8×8 pictures of white digits on black, {percentage(right)} % right"
    model = Classifier.of(network)
    source = Source(model, Pictures((8, 8), channels=1), about, tuple("0123456789"))
    posterior = Laplace(model, samples=SAMPLES).fit((train.x, train.y), progress=progress)
    p = posterior.predict(test.x, progress=False)
    engine = Engine(source, methods, posterior=posterior)
    method = next(iter(engine.methods))
    file = place / f"policy-{method}.json"
    if policy is None and not file.is_file():
        uncertainty = [one.scores[method] for one in engine.assess(list(test.x), [method])]
        correct = p.mean(0).argmax(1) == test.y
        decide.threshold(uncertainty, correct, RISK, about={"score": method, "model": "bundled digits"}).save(file)
    policy = Policy.load(file) if policy is None else policy
    others = sorted(set(range(len(test.y))) - set(example_places(test.y)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the reference has", UserWarning)  # there are no more, and nobody can add any
        guard = Guard(model).fit((test.x[others], test.y[others]), progress=progress)
    return Engine(source, methods, posterior=posterior, policy=policy, guard=guard)


def _network(place: Path, digits: Split, recipe: Recipe, progress: bool | None) -> Normalised:
    """Read the network from the folder, or train it and keep it there; a training that was killed goes on."""
    model = Normalised(small_cnn(1, 8, 10, kernel=3, seed=SEED), MEAN, STD)
    file = place / WEIGHTS
    if file.is_file():
        fill(model, read_weights(file), str(file))
        return model.eval()
    order = torch.randperm(len(digits.y), generator=torch.Generator().manual_seed(SEED))
    choosing, fitting = order.tensor_split([int(CHOOSING * len(order))])
    data, validation = ((digits.x[rows], digits.y[rows]) for rows in (fitting, choosing))
    training.train(model, data, validation, recipe=recipe, seed=SEED, folder=place, progress=progress)
    with replacing(file) as part:
        torch.save(model.state_dict(), part)
    (place / training.checkpoint.FILE).unlink(missing_ok=True)
    return model


def example_places(labels: Tensor) -> list[int]:
    """Return the places of the first held-out digit of each kind: examples for people, in no reference."""
    return [int((labels == label).nonzero()[0]) for label in range(10)]
