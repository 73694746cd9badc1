"""Inputs as leaves of the graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nescio.inputs import Inputs


def detached(x: Tensor) -> Tensor:
    """The tensor without its history; what inference mode made is copied, for it can have no gradient."""
    return x.clone() if x.is_inference() else x.detach()


def leaf(x: Inputs) -> tuple[Any, tuple[Tensor, ...]]:
    """The input as part of the graph (a copy, so that in-place operations of the model may write to it), and its
    leaves.
    """
    if isinstance(x, torch.Tensor):
        if not x.is_floating_point():
            return x, ()
        root = detached(x).requires_grad_()
        return root.clone(), (root,)
    pairs = {name: leaf(t) for name, t in x.items()}
    return {name: t for name, (t, _) in pairs.items()}, tuple(r for _, roots in pairs.values() for r in roots)
