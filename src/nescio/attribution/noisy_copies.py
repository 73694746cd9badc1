"""Noisy copies for SmoothGrad: x + σ r ε, with r the range of each input and ε the same for all inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nescio.trace.runtime.noise import draws
from nescio.training import spawned


def noisy(share: float, seed: int, copy: int) -> Callable[[Tensor], Tensor]:
    """The copy of that number, with noise of a share of each input's range."""

    def change(value: Tensor) -> Tensor:
        flat = value.flatten(1)
        reach = (flat.amax(1) - flat.amin(1)).view(-1, *[1] * (value.ndim - 1))
        return value + share * reach * draws(value, 1, spawned(seed, copy)).to(value)

    return change


def mean(parts: list[Tensor]) -> Tensor:
    """The mean of tensors of one shape."""
    return torch.stack(parts).mean(0)
