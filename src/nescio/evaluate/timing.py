"""Seconds per map: what an explanation costs, with what happens only on the first call left out.

    seconds = median over the runs of (time of all batches of one run) / inputs

Work on a GPU goes on after the call that started it has returned, so the devices are waited for before each reading of
the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio.evaluate.metric_inputs import Floats
from nescio.types import InputError


@dataclass(frozen=True)
class MapTime:
    """Hold how long an explanation takes for one input, in seconds.

    Attributes:
        seconds: The median over the runs.
        runs: The time of each run.
        inputs: How many inputs a run explained.

    Examples:
        >>> nescio.evaluate.time_per_map(torch.sin, torch.zeros(10, 3), repeats=5).runs.shape
        (5,)
    """

    seconds: float
    runs: Floats
    inputs: int


def time_per_map(
    explain: Callable[[Tensor], object],
    x: Tensor,
    *,
    batch: int | None = None,
    warm_up: int = 1,
    repeats: int = 3,
) -> MapTime:
    """Measure the time that an explanation takes for one input.

    Args:
        explain: The function to measure, such as ``lambda x: nescio.explain(posterior, x)``.
        x: Inputs ``[N, ...]``.
        batch: How many inputs it is given at a time; None gives it all at once.
        warm_up: How often all of x goes through before the clock is started. Caches fill and kernels are chosen then.
        repeats: How many runs are measured.

    Returns:
        The median over the runs, in seconds for one input, and each run's own.

    Examples:
        >>> nescio.evaluate.time_per_map(torch.sin, torch.zeros(10, 3)).inputs
        10
    """
    if not isinstance(x, Tensor) or x.ndim < 1 or len(x) == 0:
        came = f"one of shape {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x: expected a tensor of at least one input, [N, ...], but got {came}")
    parts = x.split(len(x) if batch is None else integer("batch", batch, at_least=1))
    integer("warm_up", warm_up, at_least=0)
    taken = [_seconds(explain, parts) for _ in range(warm_up + integer("repeats", repeats, at_least=1))]
    runs = np.array(taken[warm_up:]) / len(x)
    return MapTime(float(np.median(runs)), runs, len(x))


def _seconds(explain: Callable[[Tensor], object], parts: tuple[Tensor, ...]) -> float:
    _wait()
    start = time.perf_counter()
    for part in parts:
        explain(part)
    _wait()
    return time.perf_counter() - start


def _wait() -> None:
    """Wait until every GPU that this process has used is done."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)
