"""Gradients as `torch.autograd.grad` gives them, from the same engine, without what it loads first.

For its checks of cotangents that function imports the symbolic shapes of the compiler, and sympy with them: one to two
seconds of the first call in a process. The engine checks the cotangents by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_RUN = getattr(torch.autograd.graph, "_engine_run_backward", None)


def engine_gradients(
    outputs: Sequence[Any], wanted: Sequence[Any], cotangents: Sequence[Tensor], retain: bool = False
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``Σ cotangents · outputs`` at each wanted tensor or edge; None: no path.

    Args:
        outputs: Tensors, or edges of autograd's graph.
        wanted: Tensors, or edges.
        cotangents: For each output, in its shape and type.
        retain: Whether the graph is kept for another call.
    """
    if _RUN is None:
        return tuple(torch.autograd.grad(outputs, wanted, cotangents, retain_graph=retain, allow_unused=True))
    return tuple(_RUN(tuple(outputs), tuple(cotangents), retain, False, tuple(wanted), True, accumulate_grad=False))
