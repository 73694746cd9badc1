"""What a set of scores needs, computed once: logits, features, norms of gradients by layer, perturbed predictions.

`compute` answers a list of requests (those of `nescio.types`) for one batch. Equal requests are answered once, logits
and features share a forward pass, and requests for gradient norms that differ in their rows only share their forward
and backward passes. The model and the random generators are left as they were, also when something goes wrong.

In the place of a model there may be a posterior: it answers `Predictions`, and as `Logits` the logarithm of its mean
probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

import torch
from torch import Tensor

from nescio import inputs, trace
from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.quantities.draws import sampled_logits
from nescio.quantities.features import forward
from nescio.quantities.nudged import nudged_logits
from nescio.quantities.shifted import shifted_logits
from nescio.types import (
    Activations,
    Features,
    GradientNorms,
    InputError,
    LastLayer,
    Logits,
    ModelError,
    NormTable,
    NudgedLogits,
    Posterior,
    Predictions,
    Request,
    SampledLogits,
    ShiftedLogits,
)

__all__ = ["compute"]

Answer = Tensor | NormTable | tuple[Tensor, ...]


def compute(
    source: Classifier | Posterior,
    x: Inputs,
    requests: Iterable[Request],
    chunk: int | None = None,
    memory_gb: float | None = None,
) -> dict[Request, Answer]:
    """The value of each request for the batch x; source: a model, or a posterior in its place.

    `chunk` bounds how many inputs or noisy copies are handled at once, `memory_gb` the memory that gradients take.
    """
    wanted = list(dict.fromkeys(requests))
    if strange := [request for request in wanted if not isinstance(request, Request)]:
        kinds = " or ".join(kind.__name__ for kind in get_args(Request))
        raise InputError(
            f"expected requests to be {kinds} of nescio.types, got {strange[0]!r}; mend the method's `needs`"
        )
    if not isinstance(source, Classifier):
        return _of_posterior(source, x, wanted)
    classifier = source
    x = classifier.prepare(x)
    if inputs.size(x) == 0:
        raise InputError("expected a batch of at least one input, got none; leave empty batches out")
    values: dict[Request, Answer] = {}
    with preserved(classifier, again=False):
        heard = [request for request in wanted if isinstance(request, Features | Activations | LastLayer)]
        if heard or Logits() in wanted:
            values |= forward(classifier, x, heard, chunk)
        for request in wanted:
            if isinstance(request, SampledLogits):
                values[request] = sampled_logits(classifier, x, request, chunk)
            elif isinstance(request, NudgedLogits):
                values[request] = nudged_logits(classifier, x, request, chunk)
            elif isinstance(request, ShiftedLogits):
                values[request] = shifted_logits(classifier, x, request, chunk)
            elif isinstance(request, Predictions):
                values[request] = _predictions(_fitted(request, classifier), x)
        norms = [r for r in wanted if isinstance(r, GradientNorms)]
        values.update(_gradient_norms(classifier, x, norms, chunk, memory_gb))
    return {request: values[request] for request in wanted}


def _predictions(posterior: Posterior, x: Inputs) -> Tensor:
    """The probabilities [S, N, C] that the posterior predicts, checked."""
    p = posterior.predict(x, progress=False)
    count = inputs.size(x)
    fair = isinstance(p, Tensor) and p.dtype == torch.float64 and p.ndim == 3 and p.shape[1] == count
    if not fair or p.shape[0] < 1 or p.shape[2] < 2:
        raise ModelError(
            f"expected {type(posterior).__name__}.predict to give probabilities of float64 and shape [S, {count}, C], "
            f"got {describe(p)}"
        )
    if not (bool((p >= 0).all()) and bool(((p.sum(-1) - 1).abs() < 1e-6).all())):
        raise ModelError(
            f"expected {type(posterior).__name__}.predict to give probabilities, which are >= 0 and sum to 1 over the "
            "classes, got others"
        )
    return p


def _of_posterior(posterior: Posterior, x: Inputs, wanted: list[Request]) -> dict[Request, Answer]:
    if strange := [request for request in wanted if request not in (Logits(), Predictions())]:
        raise ModelError(
            f"expected requests that a posterior can answer, Logits() or Predictions(), got {strange[0]!r}; "
            "give the model itself"
        )
    p = _predictions(posterior, x)
    # a probability of 0 has no logarithm; the smallest number stands for it
    answers: dict[Request, Answer] = {
        Predictions(): p,
        Logits(): p.mean(0).clamp(min=torch.finfo(torch.float64).tiny).log(),
    }
    return {request: answers[request] for request in wanted}


def _fitted(request: Predictions, classifier: Classifier) -> Posterior:
    """The posterior that answers the request, which must be one of this model."""
    if request.posterior is None:
        what = "posterior in the place of the model" if request.kind is None else f"fitted '{request.kind}'"
        raise ModelError(f"expected a {what} to answer {request!r}, got the model {classifier.name}")
    own = getattr(request.posterior, "classifiers", ())
    if not any(one.module is classifier.module for one in own):
        raise ModelError(
            f"expected the model that '{request.kind}' was fitted with, got another one, {classifier.name}; fit it anew"
        )
    return request.posterior


def _gradient_norms(
    classifier: Classifier, x: Inputs, requests: list[GradientNorms], chunk: int | None, memory_gb: float | None
) -> dict[Request, NormTable]:
    families: dict[GradientNorms, list[GradientNorms]] = {}
    for request in requests:
        families.setdefault(replace(request, rows="classes"), []).append(request)
    values: dict[Request, NormTable] = {}
    for family, members in families.items():
        tables = trace.gradient_norms(
            classifier, x, family, rows=tuple(m.rows for m in members), chunk=chunk, memory_gb=memory_gb
        )
        values.update({member: tables[member.rows] for member in members})
    return values
