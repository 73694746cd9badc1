"""Doubt: is the answer itself unsure? Any registered score can be used; the default is GEN, from the forward pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nescio import scores
from nescio.guard.witnesses.base import FLOOR, Anatomy, Kind, Rows, State, Witness, register
from nescio.quantities import Predictions, Request
from nescio.scores import Method
from nescio.types import InputError, NormTable


@register
@dataclass(frozen=True)
class Doubt(Witness):
    """Say how unsure the model is of its own answer.

    Args:
        score: A score that needs neither training data nor a posterior.

    Examples:
        >>> witness = Doubt(nescio.scores.get("entropy"))
        >>> witness.rows(torch.zeros(1, 2, dtype=torch.float64))
        (tensor([[0.6931]], dtype=torch.float64),)
    """

    score: Method = field(default_factory=lambda: scores.get("gen"))

    name = "doubt"

    def __post_init__(self) -> None:
        if getattr(self.score, "needs_training_data", False) or Predictions() in self.score.needs:
            raise InputError(
                f"expected a score that needs neither training data nor a posterior as doubt=, got "
                f"'{self.score.name}'; use gen, entropy, energy, regrad or evengrad"
            )

    def needs(self, anatomy: Anatomy) -> tuple[Request, ...]:
        return self.score.needs

    def rows(self, *answers: Any) -> Rows:
        if any(isinstance(one, NormTable) for one in answers) or len({one.device for one in answers}) > 1:
            answers = tuple(one.cpu() for one in answers)
        return (self.score(*answers).unsqueeze(1),)

    def fit(self, rows: Rows) -> State:
        return {}

    def measure(self, state: State, rows: Rows) -> Tensor:
        return rows[0].to(torch.float64)

    def vote(self, z: Tensor) -> Tensor:
        return z[:, 0].clamp(min=FLOOR)

    def words(self, kind: Kind) -> str:
        return "The model's doubt of its own answer is"
