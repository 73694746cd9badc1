"""The GPU kernels, loaded when a tensor comes that they can take: so Triton is loaded on a GPU only."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import torch
from torch import Tensor

ROOM = "nescio.trace.runtime.kernels"


def kernels(*tensors: Tensor) -> Any:
    """The module of GPU kernels, where it can take these tensors; else None."""
    if tensors[0].is_meta and ROOM in sys.modules:
        return sys.modules[ROOM] if sys.modules[ROOM].ahead.asking() else None
    if not tensors[0].is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return None
    module = importlib.import_module(ROOM)
    return module if module.ready(*tensors) else None


def compiler(device: torch.device) -> Any:
    """What compiles kernels ahead (`kernels.ahead`), where they run on this device and it can; else None."""
    if device.type != "cuda" or kernels(torch.empty(0, device=device)) is None:
        return None
    ahead = sys.modules[ROOM].ahead
    return ahead if ahead.begin(device) else None


def settled() -> None:
    """Wait until no kernel is being compiled."""
    if ROOM in sys.modules:
        sys.modules[ROOM].ahead.finish()
