"""The gradient of a parameter from the gradients at the outputs of the operations that use it, by rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from nescio.models.batch_axis import Layout
from nescio.trace import rules
from nescio.trace.backward import per_input
from nescio.trace.norms import Form, Local, join
from nescio.trace.probe.graph import Graph, Use


def gradient_blocks(
    graph: Graph,
    uses: Sequence[Use],
    layouts: Sequence[Layout],
    deltas: Mapping[int, Tensor],
    shared: dict[int, dict[str, Any]],
) -> list[Form] | None:
    """The gradient of one parameter, block by block, from the output gradients ``deltas`` (by node).

    ``shared`` is what rules keep for other parameters of the same node. None where a rule declines. For a parameter
    that goes `through` a part of the network the blocks are the gradients where it comes out (`carried_through`).
    """
    blocks: dict[object, list[Form]] = {}
    for use, layout in zip(uses, layouts, strict=True):
        node = graph.nodes[use.node]
        entry = rules.find(node.name(), use.slot)
        if entry is None:
            return None
        form = entry.rule(rules.Context(node, use.shape, layout, shared.setdefault(use.node, {})), deltas[use.node])
        if form is None:
            return None
        blocks.setdefault((use.node, use.slot) if use.through else use.block, []).append(form)
    return [join(parts) for parts in blocks.values()]


def carried_through(graph: Graph, uses: Sequence[Use], parts: Sequence[Form], parameter: Tensor) -> Local:
    """The gradient of a parameter, from those at the operations where what was made of it meets inputs."""
    edges = [GradientEdge(*graph.nodes[use.node].next_functions[use.slot]) for use in uses]
    local = [part for part in parts if isinstance(part, Local)]
    k, n = local[0].g.shape[:2]
    kinds = [edge.node._input_metadata[edge.output_nr] for edge in edges]
    vectors = [part.g.reshape(k * n, *kind.shape).to(kind.dtype) for part, kind in zip(local, kinds, strict=True)]
    return Local(per_input.pulled_through(edges, parameter, vectors).view(k, n, -1))


def plain_norms(gradients: Sequence[Tensor | None], device: torch.device) -> Tensor:
    """The norms of whole gradients, float64 ``[n]``, in one tensor: a GPU would be waited for each time; None has 0."""
    zero = torch.zeros((), dtype=torch.float64, device=device)
    return torch.stack([zero if g is None else _norm(g).to(device) for g in gradients])


def _norm(g: Tensor) -> Tensor:
    if g.layout != torch.strided:
        return (g.double() ** 2).sum().sqrt()
    return torch.linalg.vector_norm(g, dtype=torch.float64)
