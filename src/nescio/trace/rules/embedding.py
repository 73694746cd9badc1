"""Embedding tables: ``y_t = E[i_t]``, ``∂/∂E[r] = Σ_{t: i_t = r} δ_t``, which is zero but in the rows looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from nescio.trace.norms import Form, Rows
from nescio.trace.rules import Context, full, rule
from nescio.trace.runtime import autograd_names as names


def _leading(node: Any, dims: int) -> Sequence[int]:
    return range(max(1, dims - 1))


@rule((names.EMBEDDING, 0), batch=_leading)
def table(c: Context, delta: Tensor) -> Form | None:
    """Equal indices of one input add up; the padding index gets no gradient."""
    if c.saved("scale_grad_by_freq"):
        return None  # the frequency is counted over the whole batch
    indices = c.layout.front(c.node._saved_indices).flatten(1)
    d = c.layout.front(full(delta), 1).flatten(2, -2)
    padding = int(c.saved("padding_idx"))
    if 0 <= padding < c.shape[0]:
        d = d * (indices != padding).unsqueeze(-1)
    return Rows(indices, d)
