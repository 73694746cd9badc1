"""What every method that makes maps says of itself and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from nescio.attribution.problem import Problem


class Several(NamedTuple):
    """What each member gives for some kinds of uncertainty.

    maps: float64 [U, members, N, *places], which add up to the maps. error: what share of the doubt lies elsewhere
    than with all logits, about, [U, N]; None where all were taken. drawn: how many were, of each input; 0: all.
    """

    maps: Tensor
    error: Tensor | None
    drawn: int


@dataclass(frozen=True)
class MapMethod:
    """The base of the methods: each has a name, and makes maps of a problem."""

    name: ClassVar[str]

    @property
    def words(self) -> str:
        """The method and its settings, in words."""
        raise NotImplementedError

    def attribute(self, problem: Problem) -> Tensor:
        """Compute the maps.

        Args:
            problem: The members, the inputs and the kind of uncertainty.

        Returns:
            Maps, float64 ``[1, N, *places]``.
        """
        raise NotImplementedError

    def several(self, problem: Problem, kinds: Sequence[str]) -> Several:
        """Compute the maps of several kinds of uncertainty, one after the other unless a method knows better.

        Args:
            problem: The members and the inputs.
            kinds: The kinds of uncertainty.

        Returns:
            The maps of each kind, and how far they may be off.
        """
        return Several(torch.stack([self.attribute(replace(problem, of=kind)) for kind in kinds]), None, 0)
