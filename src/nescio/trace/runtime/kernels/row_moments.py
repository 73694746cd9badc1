# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
"""Mean and standard deviation of rows, in one pass over memory and with a kernel's own care for digits."""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.trace.runtime.kernels.base import prepared, tl, triton

SHORT = 256
"""Numbers in a row up to which a program takes many rows."""


def moments(x: Tensor) -> Tensor:
    """The means of rows and then their standard deviations, [N, 2·C] in float32, for x [N, C, S] that lies row by row.

    Each lane keeps a mean and a sum of squares about it (Welford), and these are joined in the end (Chan): nothing
    cancels where the mean is large beside the deviation. A row is worked out alike in any batch.
    """
    n, c, s = x.shape
    out = torch.empty((n, 2 * c), dtype=torch.float32, device=x.device)
    long, tall = (64, 32) if s <= SHORT else (1024, 2)
    _moments[(triton.cdiv(n * c, tall),)](x, out, n * c, c, s, tall, long, num_warps=4)
    return out


if triton is not None:

    @prepared
    @triton.jit(do_not_specialize=["rows", "channels"])
    def _moments(x, out, rows, channels, size, tall: tl.constexpr, long: tl.constexpr) -> None:
        row = tl.program_id(0) * tall + tl.arange(0, tall)
        t = tl.arange(0, long)
        start = x + row.to(tl.int64)[:, None] * size
        known = row[:, None] < rows
        mean = tl.zeros([tall, long], dtype=tl.float32)
        square = tl.zeros([tall, long], dtype=tl.float32)
        count = tl.zeros([1, 1], dtype=tl.float32)
        for first in range(0, size, long):
            at = first + t
            inside = known & (at[None, :] < size)
            value = tl.load(start + at[None, :], mask=inside, other=0.0).to(tl.float32)
            count += 1.0
            away = tl.where(inside, value - mean, 0.0)
            mean += away / count
            square += away * tl.where(inside, value - mean, 0.0)
        # of each lane, how many numbers it has seen
        seen = ((size - 1 - t) // long + 1).to(tl.float32)
        seen = tl.where(t < size, seen, 0.0)[None, :]
        whole = tl.sum(mean * seen, axis=1) / size
        apart = mean - whole[:, None]
        variance = (tl.sum(square, axis=1) + tl.sum(apart * apart * seen, axis=1)) / size
        place = out + (row // channels).to(tl.int64) * 2 * channels + row % channels
        tl.store(place, whole, mask=row < rows)
        tl.store(place + channels, tl.sqrt(variance), mask=row < rows)
