"""Noisy copies of inputs: ``x_0 = x`` and ``x_i = x + σ ε_i``, or pairs ``x ± σ ε_i``; the ε_i are the same for every
input and every call with one seed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nescio import inputs
from nescio.types import InputError


def draws(x: Tensor, samples: int, seed: int) -> Tensor:
    """Standard normal ε [samples, *shape of one input], drawn on the CPU in float32, so that every device and
    precision gets the same.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.randn((samples, *x.shape[1:]), generator=generator, dtype=torch.float32, device="cpu").to(x)


def copies(x: Any, sigma: float, samples: int, seed: int, pairs: bool = False) -> Any:
    """Each input followed by its noisy copies, [N·(samples + 1), ..]; or, in ``pairs``, by ``x ± σε_i`` without the
    input itself, [N·samples, ..].
    """
    if samples == 0:
        return x
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        raise InputError(
            f"noise can only be added to a floating-point tensor, but the input is {inputs.describe(x)}; "
            "switch smoothing off with samples=0"
        )
    if pairs:
        half = sigma * draws(x, samples // 2, seed)
        both = torch.stack([half, -half], 1).flatten(0, 1)
    else:
        noise = sigma * draws(x, samples, seed)
        both = torch.cat([torch.zeros_like(noise[:1]), noise])
    return (x.unsqueeze(1) + both).flatten(0, 1)
