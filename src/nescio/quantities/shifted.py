"""Logits of shifted copies of pictures: by 0 and ±p pixels along both sides, reflected at the border.

p="auto" is a sixteenth of the shorter side (2 pixels of 32), but 1 at least and 4 at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting
from nescio.types import InputError, ShiftedLogits


def shifted_logits(classifier: Classifier, x: Inputs, request: ShiftedLogits, chunk: int | None) -> Tensor:
    """The logits of every copy, float64 [9, N, C]."""
    _check_pictures(x, request)
    moves = [partial(_moved, request, down, right) for down, right in product((0, -1, 1), repeat=2)]

    def step(start: int, stop: int) -> Tensor:
        part = inputs.take(x, slice(start, stop))
        copies = [classifier.logits(inputs.apply(part, move)) for move in moves]
        return torch.stack(copies).to("cpu", torch.float64)

    with predicting(classifier):
        return torch.cat(in_chunks(inputs.size(x), at_once(x, chunk), step), dim=1)


def _pixels(request: ShiftedLogits, value: Tensor) -> int:
    if request.pixels != "auto":
        return request.pixels
    return min(4, max(1, round(min(value.shape[2:]) / 16)))


def _moved(request: ShiftedLogits, down: int, right: int, value: Tensor) -> Tensor:
    """A picture [N, C, H, W], moved; what is none stays."""
    if value.ndim != 4:
        return value
    for dim, steps in ((2, down), (3, right)):
        last = value.shape[dim] - 1
        place = (torch.arange(last + 1, device=value.device) - steps * _pixels(request, value)).abs()
        value = value.index_select(dim, last - (last - place).abs())
    return value


def _check_pictures(x: Inputs, request: ShiftedLogits) -> None:
    pictures = [value for value in (x.values() if isinstance(x, Mapping) else [x]) if value.ndim == 4]
    if not pictures:
        raise InputError(
            f"expected pictures [N, channels, height, width], which can be shifted, got {inputs.describe(x)}; "
            "use a score for any kind of input, such as entropy"
        )
    for value in pictures:
        if min(value.shape[2:]) <= (pixels := _pixels(request, value)):
            raise InputError(
                f"expected pictures larger than the shift of {pixels} pixels, got {inputs.describe(x)}; "
                "give a smaller pixels=, or larger pictures"
            )
