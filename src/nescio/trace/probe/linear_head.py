"""The last linear layer in closed form: norms of all classes' gradients without a backward pass.

Where the logits are ``z = W h + b``, the gradient of ``log p_c`` at the logits is ``e_c − p``. So it is
``(e_c − p) hᵀ`` for W, ``e_c − p`` for b, and ``w_c − Σ_k p_k w_k`` for the features h, which is all that goes on to
the layers below. For the likeliest class both differences are sums over the *other* classes, so that no digit is lost.

What the layers below make of a gradient g at the features is ``gᵀA g`` for a matrix A that all classes of an input
share. Most of it is said by three numbers: ``‖g‖²``, ``Σ_j |h_j| g_j²`` (a feature that is large has more positions
behind it where a ReLU lets gradients through) and ``(g·h)²`` (all of those positions together).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
from torch import Tensor

from nescio.trace.probe.graph import Graph
from nescio.trace.probe.layers import Layers
from nescio.trace.runtime import autograd_names as names

_SLOTS = {
    names.ADDMM: {"weight": 2, "bias": 0},
    names.MM: {"weight": 1},
    names.LINEAR: {"weight": 1, "bias": 2},
}


def head_layers(graph: Graph, logits: Tensor, table: Layers, fast: Container[str]) -> int:
    """Count the last layers that are the linear operation which gives the logits, and nothing else.

    Args:
        graph: of a forward pass.
        logits: what that pass gave, [N, C].
        table: the layers.
        fast: the parameters whose rules were found to be right; those of a model that computes its activations anew in
            the backward pass are not among them, since what they keep can be read once.

    Returns:
        How many of the last layers `head_norms` knows; 0 where the logits come from anything else, or no layer below
        is used.
    """
    node: Any = logits.grad_fn
    slots = _SLOTS.get("" if node is None else node.name(), {})
    if not slots or (node.name() == names.ADDMM and not node._saved_alpha == node._saved_beta == 1):
        return 0
    count = 0
    for members in reversed(table.members):
        if not all(name in fast and _only_there(graph, name, node, slots) for name in members):
            break
        count += 1
    below = table.part(0, len(table.names) - count).parameters
    return count if any(name in graph.uses for name in below) else 0  # otherwise the pass does not keep W


def head_norms(graph: Graph, logits: Tensor, table: Layers, p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the norms of the head's layers, and what goes on to the features, for every class.

    Args:
        graph: of the pass.
        logits: of the pass, [N, C].
        table: the head's layers alone, as `head_layers` counts them.
        p: probabilities [N, C], float64.

    Returns:
        Norms [C, N, layers] of the layers' gradients; squared norms [C, N] of the gradients g at the features h; and
        how g lies to h, ``Σ_j |h_j| g_j²`` and ``(g·h)²`` relative to that, [2, C, N].
    """
    node: Any = logits.grad_fn  # autograd's saved operands have no types
    kept = {names.ADDMM: ("mat1", "mat2"), names.MM: ("self", "mat2"), names.LINEAR: ("input", "weight")}[node.name()]
    h, w = (getattr(node, f"_saved_{name}").detach().double() for name in kept)  # [N, D], [C, D]
    if node.name() != names.LINEAR:
        w = w.mT
    likeliest = p.argmax(1, keepdim=True)
    others = p.scatter(1, likeliest, 0.0)
    rest = others.sum(1)
    at_logits = (1 - p).square() + (p.square().sum(1, keepdim=True) - p.square())
    at_logits = at_logits.scatter(1, likeliest, (rest.square() + others.square().sum(1)).unsqueeze(1))
    mean = p @ w
    squares, large = w.square(), h.abs()
    at_features = (squares.sum(1) - 2 * mean @ w.T + mean.square().sum(1, keepdim=True)).clamp(min=0)
    at_large = large @ squares.T - 2 * (large * mean) @ w.T + (large * mean.square()).sum(1, keepdim=True)
    along = h @ w.T - (h * mean).sum(1, keepdim=True)
    own = others @ w - rest.unsqueeze(1) * w[likeliest.squeeze(1)]
    at_features = at_features.scatter(1, likeliest, own.square().sum(1, keepdim=True))
    at_large = at_large.scatter(1, likeliest, (large * own.square()).sum(1, keepdim=True))
    along = along.scatter(1, likeliest, (h * own).sum(1, keepdim=True))
    lying = torch.stack([at_large.T, along.square().T]) / at_features.T.clamp(min=1e-300)
    slots = _SLOTS[node.name()]
    sizes = []
    for members in table.members:
        weight = any(graph.uses[name][0].slot == slots["weight"] for name in members)
        bias = any(graph.uses[name][0].slot == slots.get("bias", -1) for name in members)
        sizes.append(weight * h.square().sum(1, keepdim=True) + float(bias))
    norms = torch.stack([(at_logits * size).sqrt() for size in sizes], 2)
    return norms.transpose(0, 1), at_features.T, lying


def _only_there(graph: Graph, name: str, node: object, slots: dict[str, int]) -> bool:
    """Whether a parameter is used once, as the weight or the bias of this operation, and as it is."""
    uses = graph.uses.get(name, ())
    if len(uses) != 1 or graph.nodes[uses[0].node] is not node or uses[0].moved or uses[0].through:
        return False
    if uses[0].slot not in slots.values() or not {step for step, _, _ in uses[0].chain} <= names.TURNS:
        return False
    return graph.parameters[name].dim() == (2 if uses[0].slot == slots["weight"] else 1)
