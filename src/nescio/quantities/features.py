"""Features and logits of a batch from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.features import listen, pooled
from nescio.modes import predicting
from nescio.trace.chunks import at_once, in_chunks
from nescio.types import Features, Logits, NormTable, Request


def features(
    classifier: Classifier, x: Inputs, requests: Sequence[Features], chunk: int | None
) -> dict[Request, Tensor | NormTable]:
    """The features of each request, float64 [N, D], and beside them the logits, float64 [N, C]."""
    layers = [request.layer for request in requests]

    def step(start: int, stop: int) -> list[Tensor]:
        part = inputs.take(x, slice(start, stop))
        if not requests:
            return [classifier.logits(part).to("cpu", torch.float64)]
        logits, heard = listen(classifier, part, layers)
        return [logits.to("cpu", torch.float64), *(pooled(heard[layer], stop - start) for layer in layers)]

    with predicting(classifier):
        parts = in_chunks(inputs.size(x), at_once(x, chunk), step)
    logits, *found = (torch.cat(column) for column in zip(*parts, strict=True))
    return {Logits(): logits, **dict(zip(requests, found, strict=True))}
