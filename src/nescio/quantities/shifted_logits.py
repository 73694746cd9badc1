"""Logits of shifted copies of pictures: by 0 and ±p pixels along both sides, reflected at the border.

p="auto" is a sixteenth of the shorter side (2 pixels of 32), but 1 at least and 4 at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Literal

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import predicting
from nescio.quantities.base import Budget, Request
from nescio.types import InputError


@dataclass(frozen=True)
class ShiftedLogits(Request):
    """Request the logits of nine copies of each picture, float64 ``[9, N, C]``.

    The copies are shifted by 0 and ±`pixels` along both sides of the picture, which is reflected at its border.

    Args:
        pixels: The size of a shift; "auto" is a sixteenth of the shorter side, but at least 1 and at most 4.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        >>> classifier = nescio.Classifier(model)
        >>> nescio.quantities.compute(classifier, torch.ones(4, 1, 8, 8), [ShiftedLogits()])[ShiftedLogits()].shape
        torch.Size([9, 4, 3])
    """

    pixels: int | Literal["auto"] = "auto"

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Tensor:
        """Compute the logits of every copy."""
        self._check_pictures(x)
        shifts = [partial(self._shifted, down, right) for down, right in product((0, -1, 1), repeat=2)]

        def step(start: int, stop: int) -> Tensor:
            part = inputs.take(x, slice(start, stop))
            copies = [classifier.logits(inputs.apply(part, shift)) for shift in shifts]
            return torch.stack(copies).to("cpu", torch.float64)

        with predicting(classifier):
            return torch.cat(in_chunks(inputs.size(x), at_once(x, budget.chunk), step), dim=1)

    def _shift(self, pictures: Tensor) -> int:
        if self.pixels != "auto":
            return self.pixels
        return min(4, max(1, round(min(pictures.shape[2:]) / 16)))

    def _shifted(self, down: int, right: int, value: Tensor) -> Tensor:
        """Pictures [N, C, H, W], shifted; what is no picture stays."""
        if value.ndim != 4:
            return value
        for dim, steps in ((2, down), (3, right)):
            last = value.shape[dim] - 1
            index = (torch.arange(last + 1, device=value.device) - steps * self._shift(value)).abs()
            value = value.index_select(dim, last - (last - index).abs())
        return value

    def _check_pictures(self, x: Inputs) -> None:
        pictures = [value for value in inputs.tensors(x) if value.ndim == 4]
        if not pictures:
            raise InputError(
                f"expected pictures [N, channels, height, width], which can be shifted, got {inputs.describe(x)}; "
                "use a score for any kind of input, such as entropy"
            )
        for value in pictures:
            if min(value.shape[2:]) <= (pixels := self._shift(value)):
                raise InputError(
                    f"expected pictures larger than the shift of {pixels} pixels, got {inputs.describe(x)}; "
                    "give a smaller pixels=, or larger pictures"
                )
