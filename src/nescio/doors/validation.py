"""What to look at after each validation: accuracy, calibration, and whether the guard knows its own from the foreign.

    accuracy        the share of right answers
    nll, ece        calibration, as in `nescio.evaluate`
    flagged         the share of validation inputs that the guard calls foreign: up to about alpha where all is well
    drift_p_value   how often validation inputs that are like the reference would look as foreign, by chance
    auroc, fpr95    how well the guard's score separates foreign inputs from validation inputs, as in `nescio.evaluate`
    caught          the share of foreign inputs that the guard calls foreign

The last three need foreign inputs. Inputs that the guard is fitted to are never those that it is measured on: without a
reference, one half of the validation inputs fits it, and the other is judged. The content of an input decides which.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from nescio import decide, evaluate, inputs, quantities
from nescio.data.sources import Rows
from nescio.guard import Guard, Verdict, split
from nescio.guard.changes import Nuisances
from nescio.guard.verdict import joined
from nescio.inputs import Data, Inputs
from nescio.models import ModelLike
from nescio.modes import preserved
from nescio.quantities import Logits
from nescio.training.feed import generators

DRAWS = 199


def measure(
    model: ModelLike,
    loader: Data,
    *,
    reference: Data | Rows | None = None,
    foreign: Data | Rows | None = None,
    guard: Guard | None = None,
    batches: int | None = None,
    output: str | None = None,
    nuisances: Nuisances = "auto",
    alpha: float = 0.05,
) -> dict[str, float]:
    """Measure accuracy, calibration, drift and the separation of foreign inputs, in a training loop of your own.

    Model, random generators, and those of the loaders are left as they were found.

    Args:
        model: A PyTorch classifier, any callable that returns logits, or a `nescio.Classifier`.
        loader: Validation data: a loader of pairs (inputs, labels), or one such pair.
        reference: Inputs that the guard is fitted to, as in `nescio.Guard.fit`. None takes one half of the validation
            inputs, and measures the guard on the other.
        foreign: Inputs that are not of the kind that the model is meant for, in any form of `nescio.Guard.check`. None
            leaves out what needs them.
        guard: The guard to fit; it must be of the same model. None makes one. It is fitted anew in each call, since the
            weights of the model have changed.
        batches: How many batches of the loader are read; None reads all.
        output: What the model returns, as in `nescio.score`.
        nuisances: As in `nescio.Guard.fit`. None is quicker for pictures.
        alpha: The share of known inputs that the guard may call foreign.

    Returns:
        The numbers by their names, which stand at the top of this file.

    Raises:
        InputError: There are fewer than 20 different inputs to fit the guard to, or data that cannot be used.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> x, model = torch.randn(800, 4), torch.nn.Linear(4, 3)
        >>> numbers = measure(model, (x, model(x).argmax(1)), foreign=9 + torch.randn(50, 4))
        >>> numbers["accuracy"], numbers["auroc"], numbers["caught"]
        (1.0, 1.0, 1.0)
    """
    guard = Guard(model, output=output) if guard is None else guard
    with torch.inference_mode(False), preserved(guard.classifier), _rewound(loader, reference, foreign):
        halves = reference is None
        known = _half(loader, batches) if reference is None else reference
        guard.fit(known, nuisances=nuisances, progress=False)
        p, labels, verdict = _answers_and_verdict(guard, loader, batches, halves)
        numbers = {
            "accuracy": float((p.argmax(1) == labels).double().mean()),
            "nll": evaluate.nll(p, labels),
            "ece": evaluate.ece(p, labels),
            "flagged": _share(verdict, alpha),
            "drift_p_value": decide.drift_test(verdict.p_value, verdict.ranks, draws=DRAWS).p_value,
        }
        if foreign is not None:
            of_foreign = guard.check(foreign, progress=False)
            separated = evaluate.ood(verdict.score, of_foreign.score, bootstrap=0)
            numbers |= {"auroc": separated.auroc, "fpr95": separated.fpr95, "caught": _share(of_foreign, alpha)}
    return numbers


def _answers_and_verdict(
    guard: Guard, loader: Data, batches: int | None, halves: bool
) -> tuple[Tensor, Tensor, Verdict]:
    """Probabilities and labels of all inputs, and the verdict on those that the guard is not fitted to; in one pass."""
    p, labels, verdicts = [], [], []
    for x, y in islice(inputs.labelled(loader), batches):
        answers = quantities.compute(guard.classifier, x, guard.requests)
        p.append(answers[Logits()].softmax(1))
        labels.append(y)
        verdict = guard.judge(answers)
        verdicts.append(verdict[~_fits(x)] if halves else verdict)
    return torch.cat(p), torch.cat(labels), joined(verdicts)


def _half(loader: Data, batches: int | None) -> Iterator[tuple[Inputs, Tensor]]:
    """The inputs of the loader that fit the guard, with their labels."""
    for x, y in islice(inputs.labelled(loader), batches):
        fits = _fits(x)
        if bool(fits.any()):
            yield inputs.take(x, fits), y[fits]


def _fits(x: Inputs) -> Tensor:
    """Which inputs fit the guard, bool ``[N]``: the content alone decides, so every pass agrees."""
    return torch.tensor([digest[-1] % 2 == 0 for digest in split.digests(x, 0)])


def _share(verdict: Verdict, alpha: float) -> float:
    return float(verdict.foreign(alpha).double().mean())


@contextmanager
def _rewound(*loaders: Any) -> Iterator[None]:
    """Put the random generators of the loaders back at the end of the block."""
    states = [(generator, generator.get_state()) for loader in loaders for generator in generators(loader)]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
