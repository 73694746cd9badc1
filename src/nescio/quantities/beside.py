"""What a pass over data finds besides its scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.quantities.base import Request
from nescio.quantities.logits import Logits


class Beside:
    """In the list of methods of `nescio.score`, keep the logits, and what a guard looks at."""

    name = "beside"

    def __init__(self, requests: Sequence[Request] = ()) -> None:
        self.needs = tuple(dict.fromkeys((Logits(), *requests)))
        self.parts: list[dict[Request, Any]] = []

    def __call__(self, *values: Any) -> Tensor:
        self.parts.append(dict(zip(self.needs, values, strict=True)))
        return torch.zeros(len(values[0]), dtype=torch.float64)

    @property
    def logits(self) -> Tensor:
        """Those of the whole pass."""
        return torch.cat([part[Logits()] for part in self.parts])
