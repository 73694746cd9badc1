"""Strangeness: are the features unlike any that the reference has? The mean cosine distance to its nearest ones."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.guard.witnesses.base import FLOOR, Anatomy, Kind, Rows, State, Witness, register
from nescio.quantities import Request

_ELEMENTS = 2**24  # of a table of distances at once: 128 MiB


@register
@dataclass(frozen=True)
class Strangeness(Witness):
    """Say how unlike the features of an input are: 1 − the mean cosine to the nearest ones of the reference.

    Args:
        neighbours: How many of the nearest features count.
        weight: What z counts in the score of the guard.

    Examples:
        >>> witness, features = Strangeness(neighbours=1), torch.tensor([[1.0, 0.0], [1.0, 0.1]])
        >>> state = witness.fit(witness.rows(features))
        >>> witness.measure(state, witness.rows(torch.tensor([[5.0, 0.0], [0.0, -3.0]])))
        tensor([[0.],
                [1.]])
    """

    neighbours: int = 10
    weight: float = 0.5

    name = "strangeness"

    def needs(self, anatomy: Anatomy) -> tuple[Request, ...]:
        return () if anatomy.features is None else (anatomy.features,)

    def rows(self, *answers: Tensor) -> Rows:
        return tuple(h / h.norm(dim=1, keepdim=True).clamp(min=torch.finfo(h.dtype).tiny) for h in answers)

    def fit(self, rows: Rows) -> State:
        return {"features": rows[0]}

    def measure(self, state: State, rows: Rows) -> Tensor:
        known = state["features"]
        k = min(self.neighbours, len(known))
        parts = rows[0].split(max(1, _ELEMENTS // len(known)))
        return torch.cat([1.0 - (part @ known.T).topk(k, dim=1).values.mean(1, keepdim=True) for part in parts])

    def vote(self, z: Tensor) -> Tensor:
        return self.weight * z[:, 0].clamp(min=FLOOR)

    def words(self, kind: Kind) -> str:
        return "What the model sees in it is"
