"""What a report says of a model that answers at every position: one number for each input, and its maps."""

from __future__ import annotations

from torch import Tensor

from nescio.dense import RegionGuard
from nescio.inputs import Inputs

WORDS = (
    "The model answers at every position. Of an input, classes, probabilities and scores are means over its positions."
)
FOREIGNNESS = "foreignness"


def foreignness(guard: object, x: Inputs) -> Tensor | None:
    """Return −log₁₀ p of the regions of one picture, ``[h, w]``; None where no guard judges regions."""
    if not isinstance(guard, RegionGuard):
        return None
    verdict = guard.check(x)
    return -verdict.p_value[0].log10()
