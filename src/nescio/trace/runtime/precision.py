"""Number types: what round-off leaves, and a classifier seen through copies of its parameters in half the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier


def round_off(gradient: Tensor) -> float:
    """What round-off may leave of a gradient that is zero, relative to those beside it that are not."""
    return 64 * min(torch.finfo(gradient.dtype).eps, torch.finfo(torch.float32).eps)


class Lowered(Classifier):
    """The classifier with every floating-point tensor of it, and its inputs, in ``dtype``. The model keeps its own."""

    def __init__(self, classifier: Classifier, dtype: torch.dtype) -> None:
        vars(self).update(vars(classifier))
        self.lower = dtype
        self.cast = {name: p.detach().to(dtype).requires_grad_() for name, p in classifier.parameters().items()}

    def parameters(self) -> dict[str, Tensor]:
        """The copies."""
        return self.cast

    def logits(self, x: Inputs, look: bool = True) -> Tensor:
        """Logits from the copies; their values are not looked at."""
        return self.functional({}, x)

    def functional(self, params: Mapping[str, Tensor], x: Inputs) -> Tensor:
        """Logits from the copies and these parameters."""
        with _buffers(self.module, self.lower):
            return super().functional({**self.cast, **params}, lowered(x, self.lower))


def lowered(x: Inputs, dtype: torch.dtype) -> Inputs:
    """The floating-point tensors of a batch in another type."""
    return inputs.apply(x, lambda t: t.to(dtype) if t.is_floating_point() else t)


class _buffers:
    """Floating-point buffers in another type for a while."""

    def __init__(self, module: nn.Module | None, dtype: torch.dtype) -> None:
        self.places: list[tuple[dict[str, Any], str, Tensor]] = [
            (part._buffers, name, b)
            for part in (module.modules() if module is not None else ())
            for name, b in part._buffers.items()
            if b is not None and b.is_floating_point()
        ]
        self.dtype = dtype

    def __enter__(self) -> None:
        for held, name, buffer in self.places:
            held[name] = buffer.to(self.dtype)

    def __exit__(self, *_: object) -> None:
        for held, name, buffer in self.places:
            held[name] = buffer
