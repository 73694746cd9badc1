"""The plan: which parameters take a rule, which the general path, and the proof that none was missed.

`find_plan` runs three inputs through the model. Autograd's graph shows every use of every parameter (`graph`), so each
parameter is one of

* *fast*: each of its uses has a rule, the batch was found in each operation's output (`models.batch_axis`), and the
  norm that the rules give agrees with autograd's own gradient for each input;
* *general*: anything else that is in the graph;
* *silent*: not in the graph. It has no gradient; `proofs.prove_silent` shows that it has no influence either, by
  changing it and looking at the logits.

A plan holds for every pass that does the same operations, whatever the sizes, so it is found again by the graph's
signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from nescio.models import Classifier
from nescio.models.batch_axis import Layout, find_layout
from nescio.trace import rules
from nescio.trace.backward import per_input
from nescio.trace.norms import Form
from nescio.trace.probe.graph import Graph, Use, summable
from nescio.trace.probe.leaves import leaf
from nescio.trace.probe.parameter_gradients import carried_through, gradient_blocks
from nescio.trace.probe.proofs import prove_steady

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 5e-2}
"""How far a rule may be from autograd, relative to the gradient (and a thousandth of it relative to the largest
gradient).
"""


@dataclass(frozen=True)
class Plan:
    """For each fast parameter the layouts (dimension, major) of its uses; every other parameter of the graph is
    general.
    """

    signature: tuple[object, ...]
    fast: Mapping[str, tuple[tuple[int, bool], ...]]
    activations: float
    """Bytes a forward pass keeps for one input, roughly."""
    gradients: float
    """Bytes of output gradients that are held at a time for one input and one cotangent."""
    follow: bool
    """Whether `vmap` gives the general parameters' gradients."""
    unsure: frozenset[str] = frozenset()
    """Parameters with rules, of which nothing could be told since a gradient was zero."""


def find_plan(classifier: Classifier, x: Any, logits: Tensor, graph: Graph) -> Plan:
    """Find the plan from a forward pass of a few inputs; the truth comes from a plain pass of the model's own."""
    n = len(logits)
    parameters = classifier.parameters()
    hopeful = {name: uses for name, uses in graph.uses.items() if uses and _ruled(graph, uses)}
    nodes = sorted({use.node for uses in hopeful.values() for use in uses})
    edges = [GradientEdge(graph.nodes[i], 0) for i in nodes]
    evidence: list[dict[int, Tensor]] = []
    truth: list[dict[str, float]] = []
    plain = classifier.logits(leaf(x)[0])
    prove_steady(classifier, x, logits, plain)
    generic = _generic(logits)
    for i in range(n if hopeful else 0):
        cotangent = torch.zeros_like(logits)
        cotangent[i] = generic
        deltas = torch.autograd.grad(logits, edges, cotangent, retain_graph=True, allow_unused=True)
        pairs = zip(nodes, deltas, strict=True)
        evidence.append({i: logits.new_zeros(graph.output_shape(i)) if g is None else g for i, g in pairs})
        own = torch.autograd.grad(
            plain, [parameters[name] for name in hopeful], cotangent, retain_graph=True, allow_unused=True
        )
        truth.append({name: _norm(g) for name, g in zip(hopeful, own, strict=True) if g is not None})
    largest = [max(norms.values(), default=0.0) for norms in truth]
    with torch.no_grad():
        fast = {
            name: tuple((layout.dim, layout.major) for layout in layouts)
            for name, uses in hopeful.items()
            if (layouts := _layouts(graph, uses, evidence, n)) is not None
            and (blocks := gradient_blocks(graph, uses, layouts, _stacked(uses, evidence), {})) is not None
            and (blocks := [carried_through(graph, uses, blocks, parameters[name])] if uses[0].through else blocks)
            and _agrees(blocks, [norms.get(name, 0.0) for norms in truth], largest, parameters[name].dtype)
        }
    zero = {node for node in nodes if not all(bool(e[node].any()) for e in evidence)}
    unsure = {name for name, uses in hopeful.items() if name not in fast and any(use.node in zero for use in uses)}
    sizes = [graph.output_bytes(i) for i in range(len(graph.nodes))]
    kept = {use.node for uses in hopeful.values() if len(uses) > 1 for use in uses}
    gradients = max((sizes[i] for i in nodes), default=0.0) + sum(sizes[i] for i in kept)
    return Plan(graph.signature, fast, sum(sizes) / n, gradients / n, True, frozenset(unsure))


def with_vmap_tried(classifier: Classifier, x: Any, logits: Tensor, graph: Graph, plan: Plan) -> Plan:
    """The plan, with whether vmap may be used for what is left to the general path."""
    rest = [name for name in graph.uses if name not in plan.fast]
    if not rest:
        return plan
    vectors = _generic(logits).expand(1, len(logits), -1)
    tolerance = TOLERANCE.get(logits.dtype, 1e-3)
    return replace(plan, follow=len(logits) > 1 and per_input.follows(classifier, x, rest, vectors, tolerance))


def _generic(logits: Tensor) -> Tensor:
    """A cotangent of one input that nothing is orthogonal to by chance."""
    return torch.cos(torch.arange(1, logits.shape[1] + 1, device=logits.device, dtype=logits.dtype))


def _agrees(blocks: Sequence[Form], truth: Sequence[float], largest: Sequence[float], dtype: torch.dtype) -> bool:
    """Whether the rules give autograd's own norm, for each input."""
    ours = torch.stack([block.power(2) for block in blocks]).sum(0).sqrt().diagonal().tolist()
    tolerance = TOLERANCE.get(dtype, 1e-3)
    return all(
        abs(own - norm) <= tolerance * (norm + 1e-3 * most)
        for own, norm, most in zip(ours, truth, largest, strict=True)
    )


def _norm(g: Tensor) -> float:
    return float((g.double() ** 2).sum().sqrt())


def _stacked(uses: Sequence[Use], evidence: Sequence[Mapping[int, Tensor]]) -> dict[int, Tensor]:
    return {use.node: torch.stack([e[use.node] for e in evidence]) for use in uses}


def _ruled(graph: Graph, uses: Sequence[Use]) -> bool:
    if any(u.through for u in uses):
        entries = [rules.find(graph.nodes[u.node].name(), u.slot) for u in uses]
        exact = all(entry is not None and entry.exact for entry in entries)
        return exact and all(u.through and not u.moved for u in uses)
    kinds = {(graph.nodes[use.node].name(), use.slot) for use in uses}
    return (
        len(kinds) == 1 and rules.find(*kinds.pop()) is not None and not any(u.moved for u in uses) and summable(uses)
    )


def _layouts(
    graph: Graph, uses: Sequence[Use], evidence: Sequence[Mapping[int, Tensor]], n: int
) -> list[Layout] | None:
    """A layout for each use; a use whose gradients are all zero follows one of its siblings of equal shape."""
    layouts: dict[int, Layout] = {}
    for i, use in enumerate(uses):
        node = graph.nodes[use.node]
        entry = rules.find(node.name(), use.slot)
        parts = [e[use.node] for e in evidence]
        layout = find_layout(parts, n, entry.batch(node, parts[0].dim())) if entry else None
        if layout is not None:
            layouts[i] = layout
    by_shape: dict[tuple[int, ...], set[Layout]] = {}
    for i, layout in layouts.items():
        by_shape.setdefault(graph.output_shape(uses[i].node), set()).add(layout)
    for i, use in enumerate(uses):
        alike = by_shape.get(graph.output_shape(use.node), set())
        if i not in layouts and len(alike) == 1 and not any(bool(e[use.node].any()) for e in evidence):
            layouts[i] = next(iter(alike))
    return [layouts[i] for i in range(len(uses))] if len(layouts) == len(uses) else None
