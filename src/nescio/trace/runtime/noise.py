"""Noisy copies of inputs: ``x_0 = x`` and ``x_i = x + σ ε_i``, or pairs ``x ± σ ε_i``; the ε_i are the same for every
input and every call with one seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.types import InputError


def draws(x: Tensor, samples: int, seed: int) -> Tensor:
    """Standard normal ε [samples, *shape of one input], drawn on the CPU in float32, so that every device and
    precision gets the same.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn((samples, *x.shape[1:]), generator=generator, dtype=torch.float32, device="cpu").to(x)


def noisy_names(x: Mapping[str, Tensor]) -> list[str]:
    """The entries of a mapping that noise is added to: floating-point ones that are no masks."""
    return [name for name, value in x.items() if value.is_floating_point() and "mask" not in name]


def takes(x: Inputs) -> bool:
    """Whether there is anything to add noise to; tokens have nothing."""
    return x.is_floating_point() if isinstance(x, Tensor) else bool(noisy_names(x))


def copies(x: Inputs, sigma: float, samples: int, seed: int, pairs: bool = False) -> Any:
    """Each input followed by its noisy copies, [N·(samples + 1), ..]; or, in ``pairs``, by ``x ± σε_i`` without the
    input itself, [N·samples, ..]. Each entry of a mapping has noise of its own, and what takes none is repeated.
    """
    if samples == 0:
        return x
    if not takes(x):
        raise InputError(
            f"noise can only be added to floating-point values, but the input is {inputs.describe(x)}; "
            "switch smoothing off with samples=0"
        )
    if isinstance(x, Tensor):
        return _copies(x, sigma, samples, seed, pairs)
    seeds = {name: seed + i for i, name in enumerate(noisy_names(x))}
    count = samples + (not pairs)
    return {
        name: _copies(value, sigma, samples, seeds[name], pairs)
        if name in seeds
        else value.repeat_interleave(count, dim=0)
        for name, value in x.items()
    }


def _copies(x: Tensor, sigma: float, samples: int, seed: int, pairs: bool) -> Tensor:
    if pairs:
        half = sigma * draws(x, samples // 2, seed)
        both = torch.stack([half, -half], 1).flatten(0, 1)
    else:
        noise = sigma * draws(x, samples, seed)
        both = torch.cat([torch.zeros_like(noise[:1]), noise])
    return (x.unsqueeze(1) + both).flatten(0, 1)
