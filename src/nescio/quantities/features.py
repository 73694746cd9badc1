"""Features, the last linear layer, statistics of activations and logits of a batch from one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.activations import summaries
from nescio.models.features import listen, pooled
from nescio.modes import predicting
from nescio.quantities.last_layer import weights
from nescio.types import Activations, Depth, Features, LastLayer, Logits, ModelError, Request


def forward(
    classifier: Classifier, x: Inputs, requests: Sequence[Features | Activations | LastLayer], chunk: int | None
) -> dict[Request, Tensor | tuple[Tensor, ...]]:
    """The answer to each request, and beside them the logits, float64 [N, C].

    Features are float64 [N, D]; activations a tuple of float64 [N, D], one for each depth.
    """
    layers: list[str | None] = [request.layer for request in requests if isinstance(request, Features)]
    if LastLayer() in requests and None not in layers:
        layers.append(None)
    last: list[Tensor] = []
    depths = list(dict.fromkeys(d for request in requests if isinstance(request, Activations) for d in request.depths))

    def step(start: int, stop: int) -> list[Tensor]:
        part = inputs.take(x, slice(start, stop))
        with ExitStack() as stack:
            found = stack.enter_context(summaries(classifier, depths, part)) if depths else {}
            logits, heard = listen(classifier, part, layers) if layers else (classifier.logits(part), {})
        features = [pooled(heard[layer], stop - start) for layer in layers]
        if LastLayer() in requests:
            last[:] = [weights(heard[None], features[layers.index(None)], logits)]
        return [logits.to("cpu", torch.float64), *features, *(_checked(found, d, stop - start) for d in depths)]

    with predicting(classifier):
        parts = in_chunks(inputs.size(x), at_once(x, chunk), step)
    columns = [torch.cat(column) for column in zip(*parts, strict=True)]
    by_layer = dict(zip(layers, columns[1:], strict=False))
    by_depth = dict(zip(depths, columns[1 + len(layers) :], strict=True))
    answers: dict[Request, Tensor | tuple[Tensor, ...]] = {Logits(): columns[0]}
    for request in requests:
        if isinstance(request, Features):
            answers[request] = by_layer[request.layer]
        elif isinstance(request, LastLayer):
            answers[request] = last[0]
        else:
            answers[request] = tuple(by_depth[depth] for depth in request.depths)
    return answers


def _checked(found: dict[Depth, Tensor], depth: Depth, count: int) -> Tensor:
    """The statistics of one depth on the CPU; a ModelError where the layer was not called, or they are not finite."""
    value = found.get(depth)
    if value is None or len(value) != count:
        got = "did not run" if value is None else f"gave {len(value)} rows"
        raise ModelError(
            f"expected one row for each of {count} inputs from layer '{depth.layer}', but it {got}; the forward pass "
            "has changed, so fit it anew"
        )
    if not bool(value.isfinite().all()):
        raise ModelError(
            f"expected finite activations from '{depth.layer}', got NaN or infinite ones, though the input is finite; "
            "look for an overflow in the model (float16 ends at 65504)"
        )
    return value.to("cpu", torch.float64)
