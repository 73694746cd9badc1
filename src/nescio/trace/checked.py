"""What estimates promise is checked: a random share of the inputs is computed exactly too, and compared."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from nescio.types import GradientNorms, NormTable

CHECKED = 64
"""One input in so many is scored exactly too where layers are estimated."""


def some(count: int, seed: int) -> Tensor:
    """Positions of a random share of the inputs; of half as many as `CHECKED` or more at least one."""
    generator = torch.Generator("cpu").manual_seed(seed)
    drawn = torch.rand(count, generator=generator, device="cpu")
    chosen = (drawn < 1 / CHECKED).nonzero().flatten()
    return drawn.argmin().unsqueeze(0) if not len(chosen) and 2 * count >= CHECKED else chosen


def apart(tables: dict[str, NormTable], truth: dict[str, NormTable], chosen: Tensor, request: GradientNorms) -> float:
    """The largest relative error of ``Σ_c √p_c Σ_l a_l n²`` at the chosen inputs."""

    def total(table: NormTable) -> Tensor:
        steps = torch.arange(1 - table.norms.shape[2], 1, dtype=torch.float64, device=table.norms.device)
        weights = (request.decay * steps).exp()
        share = table.probabilities.sqrt().unsqueeze(2) if table.norms.shape[1] > 1 else 1.0
        return (share * table.norms**request.norm * weights).sum((1, 2))

    errors = []
    for row, table in tables.items():
        own = replace(table, norms=table.norms[chosen], probabilities=table.probabilities[chosen])
        errors.append((total(own) / total(truth[row]) - 1).abs().max())
    return float(torch.stack(errors).max())
