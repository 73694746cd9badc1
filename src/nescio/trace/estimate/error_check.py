"""What estimates promise is checked: some inputs are computed exactly too, and compared.

In every call it is the input with the largest estimated error that is within the tolerance, and of many inputs some at
random. Where an error turns out larger than it was estimated to be, those of all inputs count as so many times larger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from nescio.types import Check, NormSettings, NormTable

CHECKED = 64
"""One input in so many is computed exactly too."""


def enforced(table: NormTable, request: NormSettings, exact: Callable[[Tensor], Tensor]) -> NormTable:
    """The table with exact norms for the inputs whose error is, or may be, larger than the tolerance.

    ``exact`` gives the norms of the inputs at some positions.
    """
    assert table.spread is not None
    total, limit = _total(table, table.norms, request), request.tolerance
    estimated = _apart(_total(table, table.norms + table.spread, request), total)
    chosen = inputs_to_check(estimated, limit, request.seed)
    actual = estimated[:0]
    if len(chosen):
        actual = _apart(total[chosen], _total(table, exact(chosen), request, chosen))
    factor = error_factor(actual, estimated[chosen], limit)
    wrong = (estimated * factor > limit).nonzero().flatten()
    norms, spread = table.norms, table.spread * factor
    if len(wrong):
        norms, spread = norms.index_copy(0, wrong, exact(wrong)), spread.index_fill(0, wrong, 0.0)
    check = Check(len(chosen), float(actual.max()) if len(actual) else 0.0, len(wrong))
    return replace(table, norms=norms, spread=spread, check=check)


def inputs_to_check(error: Tensor, tolerance: float, seed: int) -> Tensor:
    """Positions of the inputs to check, of those whose estimated error is within the tolerance."""
    within = (error <= tolerance).nonzero().flatten()
    if not len(within):
        return within
    first = error[within].argmax()
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = torch.randperm(len(within), generator=generator, device="cpu").to(within.device)
    count = round(len(error) / CHECKED)
    return within[torch.cat([first.unsqueeze(0), drawn[drawn != first][: max(0, count - 1)]])]


def error_factor(actual: Tensor, estimated: Tensor, tolerance: float) -> float:
    """How many times larger than estimated the actual errors are, where that matters; 1 at least."""
    return max(1.0, float((actual / estimated.clamp(min=tolerance / 10)).max())) if len(actual) else 1.0


def _total(table: NormTable, norms: Tensor, request: NormSettings, chosen: Tensor | None = None) -> Tensor:
    """``Σ_c √p_c Σ_l a_l n²`` of each input, or of the chosen ones."""
    p = table.probabilities if chosen is None else table.probabilities[chosen]
    steps = torch.arange(1 - norms.shape[2], 1, dtype=torch.float64, device=norms.device)
    return (p.sqrt().unsqueeze(2) * norms**request.norm * (request.decay * steps).exp()).sum((1, 2))


def _apart(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a == b, 0.0, a / b - 1).abs()
