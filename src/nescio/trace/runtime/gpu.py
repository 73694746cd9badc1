"""The GPU kernels, loaded when a tensor comes that they can take: so Triton is loaded on a GPU only."""

from __future__ import annotations

import importlib
import os
from typing import Any

from torch import Tensor


def kernels(*tensors: Tensor) -> Any:
    """The module of GPU kernels, where it can take these tensors; else None."""
    if not tensors[0].is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return None
    module = importlib.import_module("nescio.trace.runtime.kernels")
    return module if module.ready(*tensors) else None
