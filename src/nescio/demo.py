"""The demonstration: a small network learns digits, and the guard is asked which pictures not to trust.

1. The paper's small CNN is trained on part of scikit-learn's digits (seeded, best epoch on validation).
2. A guard is fitted to digits that the network has not seen.
3. Other held-out digits stand against as many pictures that are no digits, in equal parts of each kind. The guard
   judges them; the page begins with some of each, evenly chosen.
4. Every registered method for a single network scores all of them with its default settings, alone and timed. Those
   that need training data are fitted to the pictures that the network was trained on.

All of it runs on one thread: the pictures are too small for a second to gain much, the order of sums and with it the
table does not depend on the number of cores, and other work on the machine does little harm.

Nothing here is tuned to the outcome, and a method that does badly is shown like any other.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio import progress as bars
from nescio import scores, zoo
from nescio._common.lazy_imports import need
from nescio.data import NOT_DIGITS, Digits, digits, replacing
from nescio.data.digits import ABOUT, Split
from nescio.findings import first_screen
from nescio.guard import Guard, Verdict
from nescio.quantities import Predictions
from nescio.report import Comparison, MethodResult, PictureSet, page
from nescio.report.findings_types import FirstScreen, Tile
from nescio.scoring import fit, score
from nescio.types import InputError

BATCH = 50
REFERENCE = 300
"""Digits that the guard is fitted to."""
GUARD = (
    f"Doubt of the answer, features and early activations together, against {REFERENCE} digits it was not trained on."
)
LEVEL = 0.05
SHOWN = 12
"""Digits at the beginning of the page, and as many others."""
OWN = """nescio report --model MODEL --weights FILE --data new --reference photos --out report.html"""


def demo(
    *,
    seed: int = 0,
    inputs: int = 200,
    epochs: int = 30,
    methods: Sequence[str] | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Train a small network on digits, and compare scores on digits and on pictures that are none.

    For a seed the scores are the same on every run of one machine; only the times differ.

    Args:
        seed: The seed of everything random.
        inputs: The number of held-out digits, and that of the other pictures together.
        epochs: How long the network is trained.
        methods: Names of scores; None takes every registered one that a single network can do.
        progress: True or False shows or hides the bars; None shows them in a terminal.

    Returns:
        The comparison, which `write_page` lays out.

    Raises:
        InputError: If the seed is negative, or the number of inputs too small or too large.

    Examples:
        >>> nescio.demo.demo(inputs=1)
        Traceback (most recent call last):
        nescio.types.InputError: expected a seed of at least 0 and ... to 1000 inputs, got seed=0, inputs=1
    """
    for package in ("sklearn", "matplotlib", "PIL"):
        need(package, "demo")  # said before the work, not after it
    if seed < 0 or not 2 * len(NOT_DIGITS) <= inputs <= 1000:
        raise InputError(
            f"expected a seed of at least 0 and {2 * len(NOT_DIGITS)} to 1000 inputs, got seed={seed}, inputs={inputs}"
        )
    with _one_thread():
        return _compared(seed, inputs, epochs, list(_of_a_network() if methods is None else methods), progress)


def _of_a_network() -> list[str]:
    """The methods that take a model, and not a posterior in its place."""
    return [name for name in scores.names() if Predictions() not in scores.get(name).needs]


def _compared(seed: int, inputs: int, epochs: int, names: list[str], progress: bool | None) -> Comparison:
    whole = digits(held_out=inputs + REFERENCE, seed=seed)
    x, y = whole.held_out.x, whole.held_out.y
    known = replace(whole, held_out=Split(x[:inputs], y[:inputs]))
    foreign = {kind: NOT_DIGITS[kind].make(count, seed) for kind, count in _shares(inputs).items()}
    model = _trained(known, epochs, seed, progress)
    guard = Guard(model).fit(x[inputs:], seed=seed, progress=progress)
    everything = torch.cat([known.held_out.x, *foreign.values()])
    with bars.bar((1 + len(names)) * len(everything), show=progress, description="scoring", foretells=False) as bar:
        sizes = [inputs, *map(len, foreign.values())]
        chosen: list[Any] = [*map(scores.get, names), guard]
        results = tuple(_scored(model, method, known, everything, sizes, bar) for method in chosen)
    sets = (
        _pictures(model, "held-out digits", ABOUT, known.held_out.x, known.held_out.y),
        *(_pictures(model, kind, NOT_DIGITS[kind].about, x) for kind, x in foreign.items()),
    )
    return Comparison(
        known=sets[0],
        foreign=sets[1:],
        methods=results,
        accuracy=zoo.accuracy(model, known.held_out.x, known.held_out.y),
        facts=_facts(seed, inputs, epochs, known, foreign),
        front=_front(guard, guard.check(everything, progress=False), sets),
        featured=guard.name,
    )


def _front(guard: Guard, verdict: Verdict, sets: Sequence[PictureSet]) -> FirstScreen:
    """Some pictures of each kind, judged; and in a sentence how the guard does on all."""
    tiles = [_tile(one, at) for one in sets for at in range(len(one.pictures))]
    first = len(sets[0].pictures)
    places = [*_evenly(range(first)), *_evenly(range(first, len(tiles)))]
    screen = first_screen.with_guard(
        verdict, guard, dict.fromkeys(places, 1), tiles.__getitem__, kind="pictures", level=LEVEL,
        like=f"the {REFERENCE} digits of the reference",
    )  # fmt: skip
    flagged = verdict.foreign(LEVEL)
    caught, alarms = int(flagged[first:].sum()), int(flagged[:first].sum())
    all_of_them = (
        f"In the whole test the guard calls {caught} of {len(tiles) - first} pictures that are no digits foreign, and "
        f"{alarms} of {first} digits by mistake."
    )
    screen["lines"] = [all_of_them, *screen["lines"]]
    screen["command"] = {"about": "The same page for your own model and your own pictures:", "text": OWN}
    return screen


def _evenly(places: range) -> list[int]:
    count = min(SHOWN, len(places))
    return [places[k * len(places) // count] for k in range(count)]


def _tile(pictures: PictureSet, at: int) -> Tile:
    """What the strip shows of a picture."""
    label, answer = None if pictures.labels is None else int(pictures.labels[at]), int(pictures.predicted[at])
    return {
        "index": at,
        "name": pictures.name.removesuffix("es").removesuffix("s") if label is None else f"a handwritten {label}",
        "class": str(answer),
        "probability": float(pictures.probability[at]),
        "truth": None if label in (None, answer) else str(label),
        "picture": pictures.pictures[at],
    }


def write_page(comparison: Comparison, path: str | Path) -> None:
    """Write the page of the comparison, as a whole or not at all.

    Args:
        comparison: What `demo` returned.
        path: The HTML file.

    Examples:
        >>> import tempfile
        >>> comparison = nescio.demo.demo(inputs=20, epochs=1, methods=["entropy"], progress=False)
        >>> nescio.demo.write_page(comparison, tempfile.mkdtemp() + "/comparison.html")
    """
    text = page(comparison)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _shares(inputs: int) -> dict[str, int]:
    """Equal parts of each kind, which together are as many as the known inputs."""
    each, rest = divmod(inputs, len(NOT_DIGITS))
    return {kind: each + (place < rest) for place, kind in enumerate(NOT_DIGITS)}


def _trained(data: Digits, epochs: int, seed: int, progress: bool | None) -> nn.Module:
    model = zoo.small_cnn(channels=1, size=8, classes=10, kernel=3, seed=seed)
    with bars.bar(epochs, show=progress, description="training", unit="epoch") as bar:
        zoo.train(
            model,
            data.train.x,
            data.train.y,
            (data.validation.x, data.validation.y),
            epochs=epochs,
            batch_size=32,  # the paper's 128 is for MNIST's 54,000 pictures; here it would be ten steps an epoch
            seed=seed,
            on_epoch=lambda epoch: bar.update(1),
        )
    return model


def _scored(model: nn.Module, method: Any, data: Digits, x: Tensor, sizes: list[int], bar: bars.Bar) -> MethodResult:
    """One method alone: its scores of every set, and its time, in which fitting does not count."""

    def batches() -> Iterator[Tensor]:
        for batch in x.split(BATCH):
            yield batch  # comes back here when the batch has been scored
            bar.update(len(batch))

    if getattr(method, "needs_training_data", False):
        method = fit(model, method, (data.train.x, data.train.y), progress=False)
    score(model, x[:2], method, progress=False)  # what happens only on the first call is not the method's cost
    start = time.perf_counter()
    scored = score(model, batches(), method, progress=False)
    seconds = time.perf_counter() - start
    known, *others = (part.numpy() for part in scored.split(sizes))
    judge = isinstance(method, Guard)
    return MethodResult(
        name=method.name,
        summary=GUARD if judge else method.summary,
        cost="1 forward pass" if judge else method.cost,
        settings={"reference": REFERENCE} if judge else {one.name: getattr(method, one.name) for one in fields(method)},
        seconds_per_input=seconds / len(x),
        known=known,
        foreign=dict(zip(NOT_DIGITS, others, strict=True)),
    )


@torch.no_grad()
def _pictures(model: nn.Module, name: str, about: str, x: Tensor, y: Tensor | None = None) -> PictureSet:
    probability, predicted = model(x).softmax(dim=1).max(dim=1)
    return PictureSet(
        name=name,
        about=about,
        pictures=x[:, 0].numpy().astype(np.float64),
        predicted=predicted.numpy(),
        probability=probability.numpy().astype(np.float64),
        labels=None if y is None else y.numpy(),
    )


def _facts(seed: int, inputs: int, epochs: int, known: Digits, foreign: dict[str, Tensor]) -> dict[str, str]:
    """What somebody needs to get the same table."""
    packages = {
        "nescio": version("nescio"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scikit-learn": need("sklearn", "demo").__version__,
    }
    kinds = " and ".join(f"{len(x)} {kind}" for kind, x in foreign.items())
    return {
        "command": f"nescio demo --seed {seed} --inputs {inputs} --epochs {epochs}",
        "network": "Conv(32, 3×3) – ReLU – Conv(32, 3×3) – ReLU – MaxPool(2) – Dense(128) – ReLU – Dense(10)",
        "training": (
            f"{len(known.train.x)} digits, {epochs} epochs of SGD (rate 0.01, momentum 0.9, weight decay 0.0005, "
            f"batches of 32); the best epoch on {len(known.validation.x)} other digits was kept"
        ),
        "guard": f"fitted to {REFERENCE} digits that the network has not seen",
        "scored": f"{inputs} other held-out digits against {kinds}",
        "tuning": "none: every method has its default settings",
        "seed": str(seed),
        "versions": ", ".join(f"{name} {number}" for name, number in packages.items()),
        "machine": f"{platform.machine()}, one thread of the CPU",
    }
