"""Gradients of tables: zero but in the rows that an input looked up."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.trace.norms.power_sum import power_sum


@dataclass(frozen=True)
class Rows:
    """Hold the gradient of a table, which is zero but in the rows that were looked up; equal rows add up.

    Args:
        at: Which row was looked up at each position, [N, T].
        d: What arrives there from the cotangents, [K, N, T, O].

    Examples:
        >>> Rows(torch.tensor([[5, 5]]), torch.ones(1, 1, 2, 3)).power(2)  # 3 entries, each 2
        tensor([[12.]])
    """

    at: Tensor
    d: Tensor

    def power(self, p: int) -> Tensor:
        """Compute ``Σ|g|^p``.

        Args:
            p: 1 or 2.

        Returns:
            The sums for each cotangent and input, ``[K, N]``.
        """
        order = self.at.argsort(1)
        ranked = self.at.gather(1, order)
        number = torch.zeros_like(ranked)  # of the row among the input's different rows
        number[:, 1:] = (ranked[:, 1:] != ranked[:, :-1]).cumsum(1)
        place = torch.zeros_like(number).scatter(1, order, number)
        g = torch.zeros_like(self.d).scatter_add(2, place.unsqueeze(-1).expand_as(self.d), self.d)
        return power_sum(g, p)

    def merge(self, copies: int) -> Rows:
        """Sum the gradients of ``copies`` adjacent inputs.

        Args:
            copies: How many inputs belong together.

        Returns:
            The sums.
        """
        if copies == 1:
            return self
        return Rows(self.at.unflatten(0, (-1, copies)).flatten(1, 2), self.d.unflatten(1, (-1, copies)).flatten(2, 3))
