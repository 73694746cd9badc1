"""The plan: which parameters take a rule, which the general path, and the proof that none was missed.

`find_plan` runs three inputs through the model. Autograd's graph shows every use of every parameter (`graph`), so each
parameter is one of

* *fast*: each of its uses has a rule, the batch was found in each operation's output (`models.batch_axis`), and the
  norm that the rules give agrees with autograd's own gradient for each input (or differs by no more than that one does
  when the parameters move by their last digits);
* *general*: anything else that is in the graph;
* *silent*: not in the graph. It has no gradient; `proofs.prove_silent` shows that it has no influence either, by
  changing it and looking at the logits.

A plan holds for every pass that does the same operations, whatever the sizes, so it is found again by the graph's
signature.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.batch_axis import Layout, find_layout
from nescio.trace import rules
from nescio.trace.backward import per_input
from nescio.trace.probe.graph import Graph, Use, summable
from nescio.trace.probe.parameter_gradients import carried_through, gradient_blocks, plain_norms
from nescio.trace.probe.proofs import prove_steady
from nescio.trace.probe.round_off import round_off
from nescio.trace.runtime import autograd_names as names
from nescio.trace.runtime import cudnn
from nescio.trace.runtime.engine_gradients import engine_gradients

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
    kinds: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """For each fast parameter how it is used (`part_of`)."""


def find_plan(classifier: Classifier, x: Inputs, logits: Tensor, graph: Graph) -> Plan:
    """Find the plan from a forward pass of a few inputs; the truth comes from plain passes of the model's own."""
    n = len(logits)
    parameters = classifier.parameters()
    hopeful = {name: uses for name, uses in graph.uses.items() if uses and _ruled(graph, uses)}
    nodes = sorted({use.node for uses in hopeful.values() for use in uses})
    truth = _truth(classifier, x, logits, {name: parameters[name] for name in hopeful})
    evidence = _evidence(logits, graph, nodes)
    with torch.no_grad():
        seen: dict[tuple[int, tuple[int, ...]], Layout | None] = {}
        layouts = {name: each for name, uses in hopeful.items() if (each := _layouts(graph, uses, evidence, n, seen))}
        told = {node for (node, _), layout in seen.items() if layout is not None and n > 1}  # by a gradient of each
        zero = _without_gradient({node: evidence[node] for node in nodes if node not in told}, logits.device)
        # each has its own rows, so that all inputs go through the rules together
        together = {node: functools.reduce(torch.add, evidence.pop(node)).unsqueeze(0) for node in nodes}
        ours = {
            name: torch.stack([block.power(2) for block in blocks]).sum(0).sqrt()[0]
            for name in layouts
            if (blocks := gradient_blocks(graph, hopeful[name], layouts[name], together, {})) is not None
            and (
                blocks := [carried_through(graph, hopeful[name], blocks, parameters[name])]
                if hopeful[name][0].through
                else blocks
            )
        }
        measured = torch.stack([norms.to(logits.device) for norms in ours.values()]).tolist() if ours else ()
    largest = [max(norms) for norms in zip(*truth.values(), strict=True)]
    norms_by_name = dict(zip(ours, measured, strict=True))

    def agrees(name: str, shares: Sequence[float] | None = None) -> list[bool]:
        return _agrees(norms_by_name[name], truth[name], largest, parameters[name].dtype, shares)

    agree = {name: agrees(name) for name in ours}
    doubtful = {name: truth[name] for name, each in agree.items() if not all(each)}
    places = [i for i in range(n) if not all(agree[name][i] for name in doubtful)]
    with _plain_convolutions(classifier, logits):
        shares = round_off(classifier, x, _generic(logits), doubtful, places) if doubtful else {}
    agree |= {name: agrees(name, own) for name, own in shares.items()}
    fast = {
        name: tuple((layout.dim, layout.major) for layout in layouts[name]) for name, each in agree.items() if all(each)
    }
    unsure = {name for name, uses in hopeful.items() if name not in fast and any(use.node in zero for use in uses)}
    sizes = [graph.output_bytes(i) for i in range(len(graph.nodes))]
    new = [size for size, node in zip(sizes, graph.nodes, strict=True) if node.name() not in names.VIEWS]
    kept = {use.node for uses in hopeful.values() if len(uses) > 1 for use in uses}
    gradients = max((sizes[i] for i in nodes), default=0.0) + sum(sizes[i] for i in kept)
    kinds = {name: _kinds(graph, hopeful[name]) for name in fast}
    return Plan(graph.signature, fast, sum(new) / n, gradients / n, True, frozenset(unsure), kinds)


def _truth(
    classifier: Classifier, x: Inputs, logits: Tensor, parameters: Mapping[str, Tensor]
) -> dict[str, list[float]]:
    """The norms [n] of the parameters' gradients, from a plain pass of each input alone.

    Numbers come to the host all at once: a GPU would be waited for each time.
    """
    generic = _generic(logits)
    norms: dict[int, Tensor] = {}
    with _plain_convolutions(classifier, logits):
        for i, alone in prove_steady(classifier, x, logits):
            if parameters:
                own = engine_gradients([alone], list(parameters.values()), [generic.unsqueeze(0)])
                norms[i] = plain_norms(own, logits.device)
    rows = torch.stack([norms[i] for i in sorted(norms)], 1).tolist() if norms else ()
    return dict(zip(parameters, rows, strict=True))


def _plain_convolutions(classifier: Classifier, logits: Tensor) -> AbstractContextManager[None]:
    """Inside, a GPU's convolutions are PyTorch's own: single inputs are passes of a size that does not come again."""
    return cudnn.spared(logits.dtype, cudnn.most_groups(classifier.module), always=logits.is_cuda)


def _evidence(logits: Tensor, graph: Graph, nodes: Sequence[int]) -> dict[int, list[Tensor]]:
    """For a cotangent of each input alone, the gradients [*shape] at the output of each node."""
    generic = _generic(logits)
    edges = [GradientEdge(graph.nodes[i], 0) for i in nodes]
    evidence: dict[int, list[Tensor]] = {node: [] for node in nodes}
    for i in range(len(logits) if nodes else 0):
        cotangent = torch.zeros_like(logits)
        cotangent[i] = generic
        deltas = engine_gradients([logits], edges, [cotangent], retain=True)
        for node, g in zip(nodes, deltas, strict=True):
            evidence[node].append(logits.new_zeros(graph.output_shape(node)) if g is None else g)
    return evidence


def _without_gradient(evidence: Mapping[int, Sequence[Tensor]], device: torch.device) -> set[int]:
    """The nodes at which the gradient of some input is zero."""
    some = [torch.stack([part.any() for part in parts]).all().to(device) for parts in evidence.values()]
    return {node for node, alive in zip(evidence, torch.stack(some).tolist() if some else (), strict=True) if not alive}


def part_of(plan: Plan, graph: Graph) -> Plan | None:
    """The plan for a pass that is followed from later operations on, from that of a pass which is followed further;
    None: it is no part of that one, or uses a parameter in another way.
    """
    fast = {name: where for name, where in plan.fast.items() if name in graph.uses}
    same = all(_kinds(graph, graph.uses[name]) == plan.kinds[name] for name in fast)
    if not same or not _embedded(graph.signature, plan.signature):
        return None
    return replace(plan, signature=graph.signature, fast=fast)


def _embedded(part: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Whether a graph is another one without what lies below some of its operations; both as `Graph.signature`."""
    partner: dict[int, int] = {}
    todo = [(len(part) - 1, len(whole) - 1)] if part and whole else []
    while todo:
        i, j = todo.pop()
        if partner.setdefault(i, j) != j or (part[i][0], part[i][2]) != (whole[j][0], whole[j][2]):
            return False
        below = list(zip(part[i][1], whole[j][1], strict=False))
        if len(part[i][1]) != len(whole[j][1]) or any(b < 0 <= a for a, b in below):
            return False
        todo += [(a, b) for a, b in below if a >= 0 and a not in partner]
    return bool(partner)


def _kinds(graph: Graph, uses: Sequence[Use]) -> tuple[object, ...]:
    """How a parameter is used: by which operations, in which slots, after which steps."""
    return tuple((graph.nodes[use.node].name(), use.slot, use.block, use.through) for use in uses)


def with_vmap_tried(classifier: Classifier, x: Inputs, logits: Tensor, graph: Graph, plan: Plan) -> Plan:
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


def _agrees(
    ours: Sequence[float],
    truth: Sequence[float],
    largest: Sequence[float],
    dtype: torch.dtype,
    round_off: Sequence[float] | None = None,
) -> list[bool]:
    """For each input, whether the rules give autograd's own norm; within its share of round-off, where it is known."""
    tolerance = TOLERANCE.get(dtype, 1e-3)
    return [
        abs(own - norm) <= max(tolerance * (norm + 1e-3 * most), share * norm)
        for own, norm, most, share in zip(ours, truth, largest, round_off or [0.0] * len(ours), strict=True)
    ]


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
    graph: Graph,
    uses: Sequence[Use],
    evidence: Mapping[int, Sequence[Tensor]],
    n: int,
    seen: dict[tuple[int, tuple[int, ...]], Layout | None],
) -> list[Layout] | None:
    """A layout for each use; a use whose gradients are all zero follows one of its siblings of equal shape.

    ``seen`` keeps what was found for a node and the dimensions that a rule takes.
    """
    layouts: dict[int, Layout] = {}
    for i, use in enumerate(uses):
        node = graph.nodes[use.node]
        entry = rules.find(node.name(), use.slot)
        parts = evidence[use.node]
        dims = tuple(entry.batch(node, parts[0].dim())) if entry else ()
        if entry and (use.node, dims) not in seen:
            seen[use.node, dims] = find_layout(parts, n, dims)
        layout = seen.get((use.node, dims))
        if layout is not None:
            layouts[i] = layout
    by_shape: dict[tuple[int, ...], set[Layout]] = {}
    for i, layout in layouts.items():
        by_shape.setdefault(graph.output_shape(uses[i].node), set()).add(layout)
    for i, use in enumerate(uses):
        alike = by_shape.get(graph.output_shape(use.node), set())
        if i not in layouts and len(alike) == 1 and not any(bool(part.any()) for part in evidence[use.node]):
            layouts[i] = next(iter(alike))
    return [layouts[i] for i in range(len(uses))] if len(layouts) == len(uses) else None
