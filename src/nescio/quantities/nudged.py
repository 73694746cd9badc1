"""Logits of inputs that are moved a little towards their own predicted class: x + ε·sign(∂ log p_ŷ/∂x).

p is softmax(z/T). A part of the gradient that is smaller than the round-off of the largest part is taken as 0, and
there the input stays: no step hangs on the sign of round-off. ε is in the units of the tensor that is handed over.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nescio import inputs, trace
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting
from nescio.quantities.draws import loss_direction, need_floating, plus
from nescio.trace.module_gradients import round_off
from nescio.trace.runtime.noise import noisy_names
from nescio.types import NudgedLogits


def nudged_logits(classifier: Classifier, x: Inputs, request: NudgedLogits, chunk: int | None) -> Tensor:
    """The logits of the moved inputs, float64 [N, C]."""
    need_floating(x)

    def step(start: int, stop: int) -> Tensor:
        part = inputs.take(x, slice(start, stop))
        gradients = trace.input_gradients(classifier, part, lambda z: loss_direction(z / request.temperature))
        if not isinstance(part, Tensor):  # masks stay as they are
            gradients = {name: gradients[name] for name in noisy_names(part)}
        moves = inputs.apply(gradients, lambda g: -request.size * _signs(g[0]))
        with predicting(classifier):
            return classifier.logits(plus(part, moves)).to("cpu", torch.float64)

    return torch.cat(in_chunks(inputs.size(x), at_once(x, chunk), step))


def _signs(gradient: Tensor) -> Tensor:
    size = gradient.abs()
    largest = size.flatten(1).amax(1).view(-1, *[1] * (gradient.ndim - 1))
    return gradient.sign() * (size > round_off(gradient) * largest)
