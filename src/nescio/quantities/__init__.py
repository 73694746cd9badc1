"""What a set of scores needs, computed once: logits, norms of gradients by layer, logits of perturbed predictions.

`compute` answers a list of requests (`Logits`, `GradientNorms`, `SampledLogits` of `nescio.types`) for one batch.
Equal requests are answered once, and requests for gradient norms that differ in their rows only share their forward
and backward passes. The model and the random generators are left as they were, also when something goes wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from nescio import inputs, trace
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting, preserved
from nescio.quantities.chunks import at_once, in_chunks
from nescio.quantities.draws import sampled_logits
from nescio.types import GradientNorms, InputError, Logits, NormTable, Request, SampledLogits

__all__ = ["compute"]


def compute(
    classifier: Classifier,
    x: Inputs,
    requests: Iterable[Request],
    chunk: int | None = None,
    memory_gb: float | None = None,
) -> dict[Request, Tensor | NormTable]:
    """The value of each request for the batch x.

    `chunk` bounds how many inputs or noisy copies are handled at once, `memory_gb` the memory that gradients take.
    """
    wanted = list(dict.fromkeys(requests))
    if strange := [request for request in wanted if not isinstance(request, Request)]:
        kinds = "Logits, GradientNorms or SampledLogits of nescio.types"
        raise InputError(f"expected requests to be {kinds}, got {strange[0]!r}; mend the method's `needs`")
    x = classifier.prepare(x)
    if inputs.size(x) == 0:
        raise InputError("expected a batch of at least one input, got none; leave empty batches out")
    values: dict[Request, Tensor | NormTable] = {}
    with preserved(classifier, again=False):
        for request in wanted:
            if isinstance(request, Logits):
                values[request] = _logits(classifier, x, chunk)
            elif isinstance(request, SampledLogits):
                values[request] = sampled_logits(classifier, x, request, chunk)
        norms = [r for r in wanted if isinstance(r, GradientNorms)]
        values.update(_gradient_norms(classifier, x, norms, chunk, memory_gb))
    return values


def _logits(classifier: Classifier, x: Inputs, chunk: int | None) -> Tensor:
    def step(start: int, stop: int) -> Tensor:
        return classifier.logits(inputs.take(x, slice(start, stop))).to("cpu", torch.float64)

    with predicting(classifier):
        return torch.cat(in_chunks(inputs.size(x), at_once(x, chunk), step))


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
