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
_CACHED = 2**17  # elements of input whose activations stay in the caches of a CPU, where more at once is slower
_BYTES = 1600  # for an element of input and its activations


def at_once(x: Inputs, chunk: int | None) -> int:
    """How many rows like those of x go into one forward pass; `chunk` where it is given."""
    if chunk is not None:
        return chunk
    tensors = inputs.tensors(x)
    each = max(1, sum(tensor[:1].numel() for tensor in tensors))
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
    if device is not None:  # many rows, for between two passes a GPU waits for the host
        return max(1, min(8192, 4 * _ELEMENTS // each, int(memory.SHARE * memory.free_bytes(device) / _BYTES / each)))
    return max(1, min(256, _ELEMENTS // each, max(4, _CACHED // each)))


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
