"""Convolutions without cuDNN, for the few inputs that are looked at before the work.

cuDNN sets itself up for each shape of a convolution: some milliseconds, or up to a second where it compiles a kernel.
That is worth its time for shapes that come again. PyTorch's own kernels need no setting up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

KINDS = (torch.float32, torch.float64)
"""Number types that PyTorch's own kernels are asked for."""
MOST_GROUPS = 32
"""Groups of a convolution that PyTorch takes one by one without cuDNN."""
_looking = [0]  # not by thread: autograd has its own


def most_groups(module: nn.Module | None) -> int:
    """The most groups that a convolution of the model has, beside those by channel, for which there are kernels."""
    parts = [part for part in (module.modules() if module is not None else ()) if isinstance(part, _ConvNd)]
    return max((part.groups for part in parts if part.transposed or part.groups < part.in_channels), default=1)


@contextmanager
def looking() -> Iterator[None]:
    """Within the block convolutions of the engine's own go without cuDNN (`spared`)."""
    _looking[0] += 1
    try:
        yield
    finally:
        _looking[0] -= 1


def is_looking(dtype: torch.dtype) -> bool:
    """Whether the model is being looked at, and PyTorch's own kernels take this type: none of ours is waited for."""
    return _looking[0] > 0 and dtype in KINDS


@contextmanager
def spared(dtype: torch.dtype, groups: int = 1, always: bool = False) -> Iterator[None]:
    """Inside, cuDNN is off: while the model is being looked at, or ``always``, where PyTorch's own kernels will do."""
    before = torch.backends.cudnn.enabled
    if not (before and (always or _looking[0]) and dtype in KINDS and groups <= MOST_GROUPS):
        yield
        return
    torch.backends.cudnn.enabled = False
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before
