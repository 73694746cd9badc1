"""Does the guard's promise hold: P(p ≤ α) ≤ α for inputs like the reference? A part of `promises.py`.

Each repetition draws a small network with random weights, a reference and new inputs from the same source: a mixture of
three clusters, one of them with heavy tails. Below 400 inputs the ranks are crossed, which is proved up to a factor of
two alone; from 400 on half of the reference fits, which is proved. *harmless changes*: with changed copies of it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nescio import Guard
from nescio.guard.split import FEW

SIZES = (40, 100, 200, 399, 400, 1000)
LEVELS = (0.01, 0.02, 0.05, 0.1)
WIDTH = 5


def network(generator: torch.Generator) -> nn.Module:
    """Two hidden layers, drawn anew."""
    net = nn.Sequential(nn.Linear(WIDTH, 12), nn.ReLU(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4))
    for parameter in net.parameters():
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / math.sqrt(parameter.shape[-1]))
    return net


def inputs(count: int, generator: torch.Generator, centres: Tensor) -> Tensor:
    """Of a mixture of clusters around the centres, the last with heavy tails."""
    x = torch.randn(count, WIDTH, generator=generator)
    cluster = torch.randint(0, len(centres), (count,), generator=generator)
    tail = torch.randn(count, 1, generator=generator).abs() + 0.1
    return centres[cluster] + torch.where((cluster == len(centres) - 1)[:, None], x / tail, x)


def changed(x: Tensor) -> Tensor:
    """A change that does not matter."""
    return 1.02 * x


def guard_rows(n: int, repetitions: int, harmless: bool = False, new: int = 100) -> list[dict[str, Any]]:
    """For a reference of n inputs and each level: how large a share of known inputs is not flagged."""
    shares: dict[float, list[float]] = {level: [] for level in LEVELS}
    for repetition in range(repetitions):
        generator = torch.Generator().manual_seed(10_000 * n + 2 * repetition + harmless)
        centres = 3 * torch.randn(3, WIDTH, generator=generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the reference is small
            guard = Guard(network(generator)).fit(
                inputs(n, generator, centres), nuisances=[changed] if harmless else None, progress=False
            )
        p = guard.check(inputs(new, generator, centres), progress=False).p_value
        for level, found in shares.items():
            found.append(float((p > level).double().mean()))
    how = "cross ranks" if n < FEW else "split"
    return [
        {
            "part": "guard",
            "case": f"{how}, harmless changes" if harmless else how,
            "n": n,
            "promised": 1 - level,
            "held": float(np.mean(found)),
            "error": float(np.std(found, ddof=1) / math.sqrt(len(found))),
            "repetitions": repetitions,
        }
        for level, found in shares.items()
    ]


def rows(repetitions: int) -> Iterator[dict[str, Any]]:
    """Every case, one after another."""
    for n in SIZES:
        yield from guard_rows(n, repetitions)
    for n in (100, 400):
        yield from guard_rows(n, repetitions, harmless=True)
