"""The last linear layer in closed form: norms of all classes' gradients without a backward pass.

Where the logits are ``z = W h + b``, the gradient of ``log p_c`` at the logits is ``e_c − p``. So it is
``(e_c − p) hᵀ`` for W, ``e_c − p`` for b, and ``w_c − Σ_k p_k w_k`` for the features h, which is all that goes on to
the layers below. For the likeliest class both differences are sums over the *other* classes, so that no digit is lost.

What the layers below make of a gradient g at the features is ``gᵀA g`` for a matrix A that all classes of an input
share. Most of it is said by three numbers: ``‖g‖²``, ``Σ_j |h_j| g_j²`` (a feature that is large has more positions
behind it where a ReLU lets gradients through) and ``(g·h)²`` (all of those positions together).

Of noisy copies k of an input, with shares s_k in the mean, the gradient for W is ``Σ_k s_k (e_c − p_k) h_kᵀ``, so its
square is ``Σ_kl s_k s_l ⟨e_c − p_k, e_c − p_l⟩ ⟨h_k, h_l⟩``. Copies differ little in what lies below the head, so that
there g is the mean of what goes on to the features in each.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import torch
from torch import Tensor

from nescio.trace.backward import cotangents
from nescio.trace.backward.cotangents import Smoothing
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
        How many of the last layers `Head` knows; 0 where the logits come from anything else, or no layer below
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


class Head:
    """The head of one pass, in closed form.

    Args:
        graph: of the pass.
        logits: of the pass, [N·copies, C].
        z: the logits that probabilities are taken from: these, or more precise ones.
        copies: of each input, whose gradients are averaged as `smoothing` says (`backward.cotangents`).
        smoothing: "log" or "mean".
    """

    def __init__(self, graph: Graph, logits: Tensor, z: Tensor, copies: int = 1, smoothing: Smoothing = "log") -> None:
        node: Any = logits.grad_fn  # autograd's saved operands have no types
        self.graph, self.slots = graph, _SLOTS[node.name()]
        kept = {names.ADDMM: ("mat1", "mat2"), names.MM: ("self", "mat2"), names.LINEAR: ("input", "weight")}
        h, w = (getattr(node, f"_saved_{name}").detach().double() for name in kept[node.name()])
        self.h = h.unflatten(0, (-1, copies))  # [N, copies, D]
        self.w = w if node.name() == names.LINEAR else w.mT  # [C, D]
        self.p = z.double().softmax(1).unflatten(0, (-1, copies))  # [N, copies, C]
        self.shares = cotangents.shares(z, copies, smoothing)

    def norms(self, table: Layers) -> Tensor:
        """Norms [C, N, layers] of the gradients of the head's layers, as `head_layers` counts them, for every class."""
        p, shares = self.p, self.shares
        likeliest = p.argmax(2, keepdim=True)
        rest = (1 - p).scatter(2, likeliest, p.scatter(2, likeliest, 0.0).sum(2, keepdim=True))
        own, off, between = shares * rest, shares * p, p @ p.mT
        alike = {"weight": self.h @ self.h.mT, "bias": torch.ones_like(between)}
        squares = {
            slot: _quadratic(own, a) - _quadratic(off, a) + _quadratic(shares, between * a) for slot, a in alike.items()
        }
        for c, share, others, left in _most(p, shares, likeliest):
            both = left.unsqueeze(2) * left.unsqueeze(1) + others @ others.mT
            exact = {slot: _quadratic(share.unsqueeze(2), both * a) for slot, a in alike.items()}
            squares = {slot: found.scatter(1, c, exact[slot]) for slot, found in squares.items()}
        columns = []
        for members in table.members:
            own_slots = {self.graph.uses[name][0].slot for name in members}
            parts = [found for slot, found in squares.items() if self.slots.get(slot) in own_slots]
            columns.append(torch.stack(parts).sum(0).clamp(min=0).sqrt())
        return torch.stack(columns, 2).transpose(0, 1)

    def below(self) -> tuple[Tensor, Tensor]:
        """What goes on to the features h: squared norms [C, N] of the mean gradients g there; and how g lies to h,
        ``Σ_j |h_j| g_j²`` and ``(g·h)²`` relative to that, [2, C, N].
        """
        w, h, large = self.w, self.h.mean(1), self.h.abs().mean(1)
        p, shares = self.p, self.shares
        if shares.shape[2] == 1:  # the same for every class: copies are one distribution
            p = (shares * p).sum(1, keepdim=True)
            shares = torch.ones_like(shares[:, :1])
        mean, squares = p @ w, w.square()  # [N, copies, D]
        at_features = squares.sum(1) - 2 * _along(shares, mean @ w.T) + _quadratic(shares, mean @ mean.mT)
        heavy = large.unsqueeze(1) * mean
        at_large = large @ squares.T - 2 * _along(shares, heavy @ w.T) + _quadratic(shares, heavy @ mean.mT)
        along = h @ w.T - _along(shares, mean @ h.unsqueeze(2))
        at_features = at_features.clamp(min=0)
        for c, share, others, left in _most(p, shares, p.argmax(2, keepdim=True)):
            own = (share.unsqueeze(2) * others).sum(1) @ w - (share * left).sum(1, keepdim=True) * w[c.squeeze(1)]
            at_features = at_features.scatter(1, c, own.square().sum(1, keepdim=True))
            at_large = at_large.scatter(1, c, (large * own.square()).sum(1, keepdim=True))
            along = along.scatter(1, c, (h * own).sum(1, keepdim=True))
        lying = torch.stack([at_large.T, along.square().T]) / at_features.T.clamp(min=1e-300)
        return at_features.T, lying


def _only_there(graph: Graph, name: str, node: object, slots: dict[str, int]) -> bool:
    """Whether a parameter is used once, as the weight or the bias of this operation, and as it is."""
    uses = graph.uses.get(name, ())
    if len(uses) != 1 or graph.nodes[uses[0].node] is not node or uses[0].moved or uses[0].through:
        return False
    if uses[0].slot not in slots.values() or not {step for step, _, _ in uses[0].chain} <= names.TURNS:
        return False
    return graph.parameters[name].dim() == (2 if uses[0].slot == slots["weight"] else 1)


def _most(p: Tensor, shares: Tensor, likeliest: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """For the likeliest class [N, 1] of every copy: shares [N, copies] of the copies in its gradient, what all copies
    give to the other classes [N, copies, C], and the sum of that [N, copies].
    """
    for i in range(p.shape[1]):
        at = likeliest[:, i : i + 1].expand(-1, p.shape[1], -1)
        others = p.scatter(2, at, 0.0)
        yield likeliest[:, i], shares.expand_as(p).gather(2, at).squeeze(2), others, others.sum(2)


def _quadratic(a: Tensor, products: Tensor) -> Tensor:
    """``Σ_kl a_kc a_lc M_kl`` for a [N, copies, C] and M [N, copies, copies]."""
    return (a * (products @ a)).sum(1)


def _along(shares: Tensor, values: Tensor) -> Tensor:
    """``Σ_k s_kc v_kc``."""
    return (shares * values).sum(1)
