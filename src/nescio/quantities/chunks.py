"""Work in chunks: as many rows at once as memory is likely to hold, and half as many whenever it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from nescio import inputs
from nescio.inputs import Inputs
from nescio.trace import memory

T = TypeVar("T")

_ELEMENTS = 2**22  # of input at once: 16 MiB in float32; a network's activations take some hundred times as much


def at_once(x: Inputs, chunk: int | None) -> int:
    """How many rows like those of x go into one forward pass; `chunk` where it is given."""
    if chunk is not None:
        return chunk
    tensors = inputs.tensors(x)
    each = sum(tensor[:1].numel() for tensor in tensors)
    most = 1024 if any(tensor.is_cuda for tensor in tensors) else 256
    return max(1, min(most, _ELEMENTS // max(1, each)))


def in_chunks(total: int, size: int, step: Callable[[int, int], T]) -> list[T]:
    """step(start, stop) over 0 … total in chunks of `size`, which is halved, not fatal, when memory runs out."""
    device = torch.device("cuda" if torch.cuda.is_initialized() else "cpu")
    results: list[T] = []
    start = 0
    while start < total:
        stop = min(start + size, total)
        try:
            results.append(step(start, stop))
        except (RuntimeError, MemoryError) as error:
            if stop - start == 1 or not memory.exhausted(error):
                raise
            size = (stop - start) // 2
        else:
            start = stop
            continue
        memory.release(device)  # only here is the exception gone, and with it what its frames held
    return results
