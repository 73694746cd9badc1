"""How many inputs and cotangents go through at once: chosen from the memory at hand, halved when it was too much.

A forward pass keeps ``activations`` bytes an input. The gradients of one layer's output, ``gradients`` bytes an input
and cotangent, are there at a time with a few more tensors of their size while they are pulled on and turned into norms.
"""

from __future__ import annotations

import torch

from nescio._common import memory

TENSORS = 6
"""Tensors of the size of a layer's output gradients that are there at a time."""
CUDA_BYTES = 24 << 30
"""More than this at once does not make a GPU faster either, and others may need it."""
ROWS = {"cpu": 1024, "cuda": 8192}
"""Inputs × cotangents that keep a device busy: more takes memory and makes nothing faster."""
PAIR_BYTES = 2 << 30
"""Memory up to which a CPU takes two inputs at once, which are a fifth faster than one after the other even where they
leave its caches: oneDNN wants rows, and Python is paid for once.
"""


def choose(
    device: torch.device, activations: float, gradients: float, rows: int, copies: int = 1, most: float | None = None
) -> tuple[int, int]:
    """(inputs, cotangents) that fit together, in ``most`` bytes where that is given; as many cotangents as possible
    first.
    """
    budget = memory.SHARE * memory.free_bytes(device)
    if device.type != "cpu":
        budget = min(budget, CUDA_BYTES)
    budget = budget if most is None else min(budget, most)
    at_once = rows if device.type != "cpu" else min(rows, 64)
    one = copies * (1.5 * activations + TENSORS * at_once * gradients)
    if one > budget and at_once > 1:
        spare = budget / copies - 1.5 * activations
        at_once = max(1, min(at_once, int(spare / (TENSORS * gradients)))) if gradients and spare > 0 else 1
        one = copies * (1.5 * activations + TENSORS * at_once * gradients)
    many = max(1, int(budget / max(one, 1.0)))
    if many == 1 and device.type == "cpu" and most is None:
        many += 2 * one <= memory.SHARE * memory.free_bytes(device, PAIR_BYTES)
    return min(many, max(1, ROWS.get(device.type, 1024) // (at_once * copies))), at_once
