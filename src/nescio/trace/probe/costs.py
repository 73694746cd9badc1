"""What layers cost, in work and in memory, read from the graph of one pass."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from nescio.trace.probe.graph import Graph
from nescio.trace.probe.layers import Layers

MOVED = 256
"""Multiplications that take as long as one number of an operation's output, which is moved several times."""


def layer_costs(graph: Graph, table: Layers) -> tuple[float, ...]:
    """What it takes to come from the next layer to each layer and its norm, in multiplications, roughly.

    A gradient is pulled back through the next layer's weights, which are used at so many positions; and what comes out
    is moved.
    """

    def products(name: str) -> float:
        total = 0.0
        for use in graph.uses.get(name, ()):
            out = graph.output_shape(use.node)
            if len(use.shape) > 1 and len(out) > 1:
                total += math.prod(use.shape) * math.prod(out) / max(1, out[1] if len(use.shape) > 2 else out[-1])
        return total

    def moved(members: Sequence[str]) -> float:
        nodes = {use.node for name in members for use in graph.uses.get(name, ())}
        return float(sum(math.prod(graph.output_shape(node)) for node in nodes))

    through = [sum(products(name) for name in members) for members in (*table.members[1:], ())]
    return tuple(1.0 + one + MOVED * moved(members) for one, members in zip(through, table.members, strict=True))


def memory_shares(graph: Graph, table: Layers) -> tuple[tuple[float, float], ...]:
    """What is kept of a pass's memory, and of its largest part, when it is followed from each layer on."""
    starts = [
        min((graph.order(name) for name in members if name in graph.uses), default=0) for members in table.members
    ]
    sizes = sorted(((node._sequence_nr(), graph.output_bytes(i)) for i, node in enumerate(graph.nodes)), reverse=True)
    numbers = [-number for number, _ in sizes]
    totals = [0.0, *accumulate(size for _, size in sizes)]
    most = [0.0, *accumulate((size for _, size in sizes), max)]
    ends = [bisect_right(numbers, -start) for start in starts]  # from each on; the whole is from the first on
    whole = bisect_right(numbers, 0)
    return tuple((totals[end] / max(totals[whole], 1.0), most[end] / max(most[whole], 1.0)) for end in ends)
