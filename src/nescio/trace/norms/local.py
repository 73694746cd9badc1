"""Gradients that are small enough to be written down: biases, affine parameters of norms, single numbers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nescio.trace.norms.power_sum import power_sum


@dataclass(frozen=True)
class Local:
    """Hold a gradient that is written down.

    Args:
        g: The gradient for each cotangent and input, [K, N, F].

    Examples:
        >>> Local(torch.full((1, 1, 3), 2.0)).power(2)
        tensor([[12.]])
    """

    g: Tensor

    def power(self, p: int) -> Tensor:
        """Compute ``Σ|g|^p``.

        Args:
            p: 1 or 2.

        Returns:
            The sums for each cotangent and input, ``[K, N]``.
        """
        return power_sum(self.g, p)

    def merge(self, copies: int) -> Local:
        """Sum the gradients of ``copies`` adjacent inputs.

        Args:
            copies: How many inputs belong together.

        Returns:
            The sums.
        """
        return self if copies == 1 else Local(self.g.unflatten(1, (-1, copies)).sum(2))
