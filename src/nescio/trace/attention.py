"""Short attention as plain matrix products.

`vmap` has no rule for the backward of fused attention kernels and loops over the cotangents there. For short
sequences the same function as products and a softmax folds like everything else; for long ones its T² memory would
cost more than the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.nn.attention import SDPBackend, sdpa_kernel

from nescio.trace.graph import Graph

LONGEST = 512
"""Longest sequence that is taken apart."""


def short(graph: Graph) -> bool:
    """Whether a pass used fused attention, on short sequences only."""
    fused = [n for n in graph.nodes if n.name().startswith("ScaledDotProduct")]
    return bool(fused) and all(max(n._saved_query.shape[-2], n._saved_key.shape[-2]) <= LONGEST for n in fused)


@contextmanager
def plain(wanted: bool) -> Iterator[None]:
    """Inside, attention is products and a softmax where that is wanted."""
    if not wanted:
        yield
        return
    with sdpa_kernel(SDPBackend.MATH):
        yield
