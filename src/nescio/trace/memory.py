"""How many inputs and cotangents go through at once: chosen from the memory at hand, halved when it was too much.

A forward pass keeps ``activations`` bytes an input. The gradients of one layer's output, ``gradients`` bytes an input
and cotangent, are there at a time with a few more tensors of their size while they are pulled on and turned into norms.
"""

from __future__ import annotations

import gc
import os

import torch

SHARE = 0.4
"""Share of the free memory that is planned for."""
TENSORS = 6
"""Tensors of the size of a layer's output gradients that are there at a time."""
CUDA_BYTES = 24 << 30
"""More than this at once does not make a GPU faster either, and others may need it."""
CPU_BYTES = 7 << 25
"""More than this at once leaves the caches of a CPU and makes it slower."""
ROWS = {"cpu": 1024, "cuda": 8192}
"""Inputs × cotangents that keep a device busy: more takes memory and makes nothing faster."""


def free_bytes(device: torch.device) -> float:
    """Memory that can still be taken on the device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(free + held)
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        free = 4 << 30
    return min(float(free), CPU_BYTES / SHARE)


def choose(
    device: torch.device, activations: float, gradients: float, rows: int, copies: int = 1, most: float | None = None
) -> tuple[int, int]:
    """(inputs, cotangents) that fit together, in ``most`` bytes where that is given; as many cotangents as possible
    first.
    """
    budget = SHARE * free_bytes(device)
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
    return min(many, max(1, ROWS.get(device.type, 1024) // (at_once * copies))), at_once


def exhausted(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def release(device: torch.device) -> None:
    """Give back what a failed attempt left behind."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
