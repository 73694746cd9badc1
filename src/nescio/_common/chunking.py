"""Work in chunks: as many rows at once as memory is likely to hold, and half as many whenever it runs out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from nescio._common import memory

T = TypeVar("T")

_ELEMENTS = 2**22  # of input at once: 16 MiB in float32; a network's activations take some hundred times as much
_CACHED = 2**17  # elements of input whose activations stay in the caches of a CPU, where more at once is slower
_BYTES = 1600  # for an element of input and its activations
_BYTES_PASSING = 400  # where activations are let go of at once


def at_once(x: Tensor | Mapping[str, Tensor], chunk: int | None, passing: bool = False) -> int:
    """Return how many rows like those of a batch go into one forward pass.

    Args:
        x: The batch, a tensor ``[N, ...]`` or a mapping of names to such tensors.
        chunk: The user's own choice, which wins; None to choose from the size of a row and the free memory.
        passing: Whether the pass keeps nothing of what is inside of the network, and so takes less memory.

    Returns:
        The number of rows, at least 1.

    Examples:
        >>> at_once(torch.empty(1000, 3, 32, 32), None), at_once(torch.empty(1000, 3, 32, 32), 7)
        (42, 7)
    """
    if chunk is not None:
        return chunk
    tensors = [x] if isinstance(x, Tensor) else list(x.values())
    elements = max(1, sum(tensor[:1].numel() for tensor in tensors))
    device = next((tensor.device for tensor in tensors if tensor.is_cuda), None)
    if device is not None:  # many rows, for between two passes a GPU waits for the host
        bytes_each = _BYTES_PASSING if passing else _BYTES
        fitting = int(memory.SHARE * memory.free_bytes(device) / bytes_each / elements)
        return max(1, min(8192, 32 * _ELEMENTS // elements, fitting))
    return max(1, min(256, _ELEMENTS // elements, max(4, _CACHED // elements)))


def in_chunks(total: int, size: int, step: Callable[[int, int], T]) -> list[T]:
    """Call a function on one range of rows after another, on half as many rows whenever memory runs out.

    Args:
        total: The number of rows.
        size: How many rows a chunk has at first.
        step: Called with the first row of a chunk and the row after its last. After running out of memory it is
            called again for the same first row, so it must not leave half of its work behind.

    Returns:
        What `step` returned, chunk by chunk.

    Raises:
        RuntimeError, MemoryError: Where even one row does not fit; any other error of `step` at once.

    Examples:
        >>> in_chunks(7, 3, lambda start, stop: (start, stop))
        [(0, 3), (3, 6), (6, 7)]
    """
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
