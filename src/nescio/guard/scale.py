"""One scale for things that cannot be compared: a value becomes the normal quantile of its rank in a sample.

    z(v) = Φ⁻¹(rank of v among n values)          interpolated between the values, so it has no steps
    z(v) = z(largest) + log((v − median) / (largest − median))          beyond the largest, and likewise below

So z is about 0 for a usual value, 2 for one that one in forty reaches, and grows slowly, but without end, further out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scale:
    """The scale of one quantity: sorted values float64 ``[K]``, each once, and the z of each."""

    values: Tensor
    z: Tensor

    @classmethod
    def of(cls, sample: Tensor) -> Scale:
        """The scale that a sample float64 ``[n]`` gives, n ≥ 1."""
        values, counts = sample.to(torch.float64).unique(return_counts=True)
        counts = counts.to(torch.float64)
        middle = counts.cumsum(0) - counts / 2
        return cls(values, torch.special.ndtri(middle / len(sample)))

    def __call__(self, v: Tensor) -> Tensor:
        """Z of each value, in the shape of v."""
        values, z = self.values, self.z
        if len(values) > 1:
            right = torch.searchsorted(values, v.contiguous()).clamp(1, len(values) - 1)
            low, high = values[right - 1], values[right]
            share = ((v - low) / (high - low)).clamp(0.0, 1.0)
            inside = z[right - 1] + share * (z[right] - z[right - 1])
        else:
            inside = z[0].expand_as(v)
        centre = values[(len(values) - 1) // 2]
        tiny = max(1e-9 * float(values.abs().amax()), 1e-300)  # where all values are the same
        above = ((v - values[-1]) / (values[-1] - centre).clamp(min=tiny)).clamp(min=0.0)
        below = ((values[0] - v) / (centre - values[0]).clamp(min=tiny)).clamp(min=0.0)
        return inside + above.log1p() - below.log1p()
