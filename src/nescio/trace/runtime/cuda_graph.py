"""Kernels recorded once as a CUDA graph, to be launched again together and not one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from nescio.trace.runtime.gpu import settled

T = TypeVar("T")


def record(
    work: Callable[[], T],
    device: torch.device,
    errors: type[Exception] | tuple[type[Exception], ...] = (RuntimeError, NotImplementedError),
    capture_error_mode: str = "global",
) -> tuple[Any, T] | None:
    """Record what ``work`` does on the device.

    Args:
        work: must do the same each time, on the same tensors, without the host in between; it is called twice.
        device: a GPU.
        errors: those that say that the work cannot be recorded; others are raised.
        capture_error_mode: as `torch.cuda.graph` takes it: "thread_local" lets other threads go on with the GPU.

    Returns:
        The graph, whose ``replay()`` does the work again, and the result, which each replay fills anew; None where the
        work cannot be recorded, since it needs the host in between, or memory.
    """
    settled()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
    try:
        with torch.cuda.device(device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # libraries set themselves up on a stream before they can be recorded there
                work()
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, capture_error_mode=capture_error_mode):
                result = work()
    except errors:
        torch.cuda.set_stream(stream)
        torch.cuda.synchronize(device)
        _let_go(graph, device)
        return None
    return graph, result


def _let_go(graph: Any, device: torch.device) -> None:
    """Give back the memory of a recording that failed: PyTorch keeps it, and goes on to take from it."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with contextlib.suppress(AttributeError, RuntimeError):  # an error where the recording was ended after all
        torch._C._cuda_endAllocateToPool(index, graph.pool())
        torch._C._cuda_releasePool(index, graph.pool())
