"""Statistics of what the layers of a model give, a tuple with one float64 [N, D] for each depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nescio.quantities.forward_pass import ForwardPass, ForwardRequest
from nescio.types import Depth, ModelError


@dataclass(frozen=True)
class Activations(ForwardRequest):
    """Request the mean and the standard deviation of each channel over the positions, at several depths.

    The answer is a tuple with one float64 ``[N, D]`` for each depth, see `nescio.models.activation_statistics`.

    Args:
        depths: Where to look, as `nescio.models.activation_statistics.depths` finds them.

    Examples:
        >>> request = Activations((Depth("0", 1),))
        >>> model = nescio.Classifier(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 3)))
        >>> nescio.quantities.compute(model, torch.tensor([[-1.0, 2.0]]), [request])[request]
        (tensor([[0., 2.]], dtype=torch.float64),)
    """

    depths: tuple[Depth, ...]

    @property
    def listens_at(self) -> tuple[Depth, ...]:
        """The depths."""
        return self.depths

    def read(self, forward: ForwardPass) -> tuple[Tensor, ...]:
        """Return the statistics of one forward pass."""
        return tuple(_statistics(forward, depth) for depth in self.depths)

    def join(self, answers: Sequence[Any]) -> tuple[Tensor, ...]:
        """Join the answers depth by depth."""
        return tuple(torch.cat(parts) for parts in zip(*answers, strict=True))


def _statistics(forward: ForwardPass, depth: Depth) -> Tensor:
    """The statistics of one depth; a ModelError where the layer did not run, or they are not finite."""
    value, count = forward.statistics.get(depth), len(forward.logits)
    if value is None or len(value) != count:
        got = "did not run" if value is None else f"gave {len(value)} rows"
        raise ModelError(
            f"expected one row for each of {count} inputs from layer '{depth.layer}', but it {got}; the forward pass "
            "has changed, so fit it anew"
        )
    return forward.answer(value, f"activations from '{depth.layer}'")
