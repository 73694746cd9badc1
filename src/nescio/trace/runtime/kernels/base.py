"""Where the kernels can run, and how precisely they multiply."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
from torch import Tensor

from nescio.modes import tf32_products
from nescio.trace.runtime.kernels.ahead import Kernel

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of PyTorch, or a system that Triton does not know
    triton = tl = None

__all__ = ["INTERPRETED", "precision", "prepared", "ready", "tl", "triton"]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Triton's interpreter runs the kernels on CPU tensors: slow, for tests."""
_KINDS = (torch.float32, torch.float16, torch.bfloat16)


def prepared(jitted: Any) -> Any:
    """A kernel that can be compiled ahead (`ahead`); in the interpreter nothing is compiled."""
    return jitted if INTERPRETED else Kernel(jitted)


def ready(*tensors: Tensor) -> bool:
    """Whether the kernels can take these tensors."""
    return (
        triton is not None
        and all(t.dtype in _KINDS and (t.is_cuda or INTERPRETED) for t in tensors)
        and (INTERPRETED or _capable(tensors[0].device.index))
    )


@functools.cache
def _capable(device: int) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


def precision(like: Tensor) -> str:
    """That of products in a kernel."""
    return "ieee" if like.dtype != torch.float32 else "tf32" if tf32_products() else "tf32x3"
