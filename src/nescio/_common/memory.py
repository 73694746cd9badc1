"""Ask how much memory is free, recognise that it ran out, and give it back."""

from __future__ import annotations

import gc
import os

import torch

SHARE = 0.4
"""Share of the free memory that work is planned for."""
CPU_BYTES = 7 << 25
"""More than this at once leaves the caches of a CPU and makes it slower."""


def free_bytes(device: torch.device, most: float = CPU_BYTES) -> float:
    """Return how many bytes can still be used on a device.

    On a CPU this is at most ``most / SHARE``, because larger pieces of work are slower there. On a GPU it is at most
    what ``torch.cuda.set_per_process_memory_fraction`` leaves to this process, so that several can share the GPU.

    Args:
        device: The device, a CPU or a GPU.
        most: Bytes that work may be planned for on a CPU.

    Returns:
        The number of bytes.

    Examples:
        >>> free_bytes(torch.device("cpu")) > 0
        True
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_stats_as_nested_dict(device)  # asked once; empty before the first allocation
        reserved, used = (held[name]["all"]["current"] if held else 0 for name in ("reserved_bytes", "allocated_bytes"))
        share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)  # PyTorch 2.8
        return float(max(min(free, share * total - reserved) + reserved - used, 0))
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        free = 4 << 30
    return min(float(free), most / SHARE)


def exhausted(error: BaseException) -> bool:
    """Return whether an error says that memory ran out.

    Args:
        error: What was raised.

    Returns:
        True for the errors of PyTorch (CPU and CUDA) and of Python itself.

    Examples:
        >>> exhausted(RuntimeError("CUDA error: out of memory")), exhausted(ValueError("out of memory"))
        (True, False)
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("can't allocate memory" in text or "out of memory" in text)


def release(device: torch.device) -> None:
    """Give back what a failed attempt left behind.

    Args:
        device: The device that ran out of memory.

    Examples:
        >>> release(torch.device("cpu"))
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
