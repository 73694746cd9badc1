"""One scale for things that cannot be compared: a value becomes the normal quantile of its rank in a sample.

    z(v) = Φ⁻¹(rank of v among n values)          interpolated between the values, so it has no steps
    z(v) = z(largest) + log((v − median) / (largest − median))          beyond the largest, and likewise below

So z is about 0 for a usual value, 2 for one that one in forty reaches, and grows slowly, but without end, further out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nescio.guard.promise import positions


@dataclass(frozen=True)
class Scale:
    """The scales of M quantities, each sorted with every value once: values and their z, float64 ``[M, K]``.

    A quantity with fewer than K different values repeats its last one.
    """

    values: Tensor
    z: Tensor

    @classmethod
    def of(cls, sample: Tensor) -> Scale:
        """Return the scales that a sample float64 ``[n, M]`` gives, n ≥ 1."""
        pairs = [_quantiles(column) for column in sample.to(torch.float64).unbind(1)]
        return cls(_padded([values for values, _ in pairs]), _padded([z for _, z in pairs]))

    def __call__(self, v: Tensor) -> Tensor:
        """Return the z of each value, float64 ``[N, M]`` as v."""
        values, z, v = self.values, self.z, v.T.contiguous()
        if values.shape[1] > 1:
            right = torch.stack([positions(*pair) for pair in zip(values, v, strict=True)])
            right = right.clamp(1, values.shape[1] - 1)
            low, high = values.gather(1, right - 1), values.gather(1, right)
            share = ((v - low) / (high - low).clamp(min=1e-300)).clamp(0.0, 1.0)
            left = z.gather(1, right - 1)
            inside = left + share * (z.gather(1, right) - left)
        else:
            inside = z.expand_as(v)
        first, last, up, down = self._ends
        above = ((v - last) / up).clamp(min=0.0)
        below = ((first - v) / down).clamp(min=0.0)
        return (inside + above.log1p() - below.log1p()).T

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The least and the largest value, and how far they lie from the middle one, each ``[M, 1]``."""
        first, last = self.values[:, :1], self.values[:, -1:]
        middle = self.values.gather(1, (self.values < last).sum(1, keepdim=True) // 2)
        tiny = (1e-9 * self.values.abs().amax(1, keepdim=True)).clamp(min=1e-300)  # where all values are the same
        return first, last, torch.maximum(last - middle, tiny), torch.maximum(middle - first, tiny)


def _quantiles(column: Tensor) -> tuple[Tensor, Tensor]:
    """The different values of a sample ``[n]`` in order, and the normal quantile of the middle of each one's ranks."""
    values, counts = column.unique(return_counts=True)
    counts = counts.to(torch.float64)
    middle = counts.cumsum(0) - counts / 2
    return values, torch.special.ndtri(middle / len(column))


def _padded(columns: Sequence[Tensor]) -> Tensor:
    """Columns of different lengths as rows ``[M, K]``; the short ones repeat their last value."""
    table = pad_sequence(list(columns), batch_first=True)
    lengths = torch.tensor([len(column) for column in columns])[:, None]
    last = table.gather(1, lengths - 1)
    return torch.where(torch.arange(table.shape[1]) < lengths, table, last)
