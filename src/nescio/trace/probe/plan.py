"""The plan: which parameters take a rule, which the general path, and the proof that none was missed.

`probe` runs three inputs through the model. Autograd's graph shows every use of every parameter (`graph`), so each
parameter is one of

* *fast*: each of its uses has a rule, the batch was found in each operation's output (`layout`), and the norm that
  the rules give agrees with autograd's own gradient for each input;
* *general*: anything else that is in the graph;
* *silent*: not in the graph. It has no gradient; `prove_silent` shows that it has no influence either, by changing
  it and looking at the logits.

A plan holds for every pass that does the same operations, whatever the sizes, so it is found again by the graph's
signature.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from nescio.models import Classifier
from nescio.trace import rules
from nescio.trace.backward import per_input as general
from nescio.trace.norms.forms import Form, Local, join
from nescio.trace.probe.graph import Graph, Use, summable
from nescio.trace.probe.proofs import prove_steady
from nescio.trace.rules import layout
from nescio.types import ModelError

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 5e-2}
"""How far a rule may be from autograd, relative to the gradient (and a thousandth of it relative to the largest
gradient).
"""


SILENT = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""A change of the logits, relative to the largest, that is no more than kernels which add up in another order make."""


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


def detached(x: Tensor) -> Tensor:
    """The tensor without its history; what inference mode made is copied, for it can have no gradient."""
    return x.clone() if x.is_inference() else x.detach()


def leaf(x: Any) -> tuple[Any, tuple[Tensor, ...]]:
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


def forms(
    graph: Graph,
    uses: Sequence[Use],
    layouts: Sequence[layout.Layout],
    deltas: Mapping[int, Tensor],
    shared: dict[int, dict[str, Any]],
) -> list[Form] | None:
    """The gradient of one parameter, block by block, from the output gradients ``deltas`` (by node).

    ``shared`` is what rules keep for other parameters of the same node. None where a rule declines. A parameter that
    goes `through` a part of the network gives the gradient where it comes out, a block for each use (`carry`).
    """
    blocks: dict[object, list[Form]] = {}
    for use, where in zip(uses, layouts, strict=True):
        node = graph.nodes[use.node]
        entry = rules.find(node.name(), use.slot)
        if entry is None:
            return None
        form = entry.rule(rules.Context(node, use.shape, where, shared.setdefault(use.node, {})), deltas[use.node])
        if form is None:
            return None
        blocks.setdefault((use.node, use.slot) if use.through else use.block, []).append(form)
    return [join(parts) for parts in blocks.values()]


def carry(graph: Graph, uses: Sequence[Use], parts: Sequence[Form], parameter: Tensor) -> Local:
    """The gradient of a parameter, from those at the operations where what was made of it meets inputs."""
    edges = [GradientEdge(*graph.nodes[use.node].next_functions[use.slot]) for use in uses]
    local = [part for part in parts if isinstance(part, Local)]
    k, n = local[0].g.shape[:2]
    kinds = [edge.node._input_metadata[edge.output_nr] for edge in edges]
    vectors = [part.g.reshape(k * n, *kind.shape).to(kind.dtype) for part, kind in zip(local, kinds, strict=True)]
    return Local(general.pulled_through(edges, parameter, vectors).view(k, n, -1))


def probe(classifier: Classifier, x: Any, logits: Tensor, graph: Graph) -> Plan:
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
    some = _some(logits)
    for i in range(n if hopeful else 0):
        cotangent = torch.zeros_like(logits)
        cotangent[i] = some
        found = torch.autograd.grad(logits, edges, cotangent, retain_graph=True, allow_unused=True)
        evidence.append(
            {
                node: logits.new_zeros(_shape(graph, node)) if g is None else g
                for node, g in zip(nodes, found, strict=True)
            }
        )
        own = torch.autograd.grad(
            plain, [parameters[name] for name in hopeful], cotangent, retain_graph=True, allow_unused=True
        )
        truth.append({name: _norm(g) for name, g in zip(hopeful, own, strict=True) if g is not None})
    largest = [max(norms.values(), default=0.0) for norms in truth]
    with torch.no_grad():
        fast = {
            name: tuple((where.dim, where.major) for where in layouts)
            for name, uses in hopeful.items()
            if (layouts := _layouts(graph, uses, evidence, n)) is not None
            and (blocks := forms(graph, uses, layouts, _stacked(uses, evidence), {})) is not None
            and (blocks := [carry(graph, uses, blocks, parameters[name])] if uses[0].through else blocks)
            and _agrees(blocks, [norms.get(name, 0.0) for norms in truth], largest, parameters[name].dtype)
        }
    dark = {node for node in nodes if not all(bool(e[node].any()) for e in evidence)}
    unsure = {n for n, uses in hopeful.items() if n not in fast and any(use.node in dark for use in uses)}
    sizes = [_bytes(graph, i) for i in range(len(graph.nodes))]
    kept = {use.node for uses in hopeful.values() if len(uses) > 1 for use in uses}
    gradients = max((sizes[i] for i in nodes), default=0.0) + sum(sizes[i] for i in kept)
    return Plan(graph.signature, fast, sum(sizes) / n, gradients / n, True, frozenset(unsure))


def followed(classifier: Classifier, x: Any, logits: Tensor, graph: Graph, plan: Plan) -> Plan:
    """The plan, with whether vmap may be used for what is left to the general path."""
    rest = [name for name in graph.uses if name not in plan.fast]
    if not rest:
        return plan
    vectors = _some(logits).expand(1, len(logits), -1)
    tolerance = TOLERANCE.get(logits.dtype, 1e-3)
    return replace(plan, follow=len(logits) > 1 and general.follows(classifier, x, rest, vectors, tolerance))


def _some(logits: Tensor) -> Tensor:
    """A cotangent of one input that nothing is orthogonal to by chance."""
    return torch.cos(torch.arange(1, logits.shape[1] + 1, device=logits.device, dtype=logits.dtype))


def prove_silent(classifier: Classifier, x: Any, names: Sequence[str]) -> None:
    """Raise ModelError when a parameter without a gradient changes the logits all the same."""
    if not names:
        return
    parameters = classifier.parameters()
    tolerance = SILENT.get(parameters[names[0]].dtype, 1e-5)
    generator = torch.Generator("cpu").manual_seed(0)

    def changed(p: Tensor) -> Tensor:
        noise = torch.randn(p.shape, generator=generator, dtype=torch.float32, device="cpu")
        return p.detach() + noise.to(p) * (1 + p.detach().abs().mean())

    def influence(some: Sequence[str]) -> bool:
        with torch.no_grad():
            before = classifier.functional({name: parameters[name].detach() for name in some}, x).double()
            after = classifier.functional({name: changed(parameters[name]) for name in some}, x).double()
        same = (after - before).abs() <= tolerance * before.abs().max()
        return not bool(same.all())  # NaN is not the same

    if influence(names):
        guilty = [name for name in names if influence([name])] or list(names)
        shown = ", ".join(guilty[:5]) + (f" and {len(guilty) - 5} more" if len(guilty) > 5 else "")
        raise ModelError(
            f"the parameters {shown} change the logits, but autograd has no path to them (the model detaches a value, "
            "runs a part under no_grad or inference_mode, uses re-entrant checkpointing, or computes with an operation "
            "that has no derivative, such as a quantised layer), so their gradient cannot be had; remove that from the "
            "model, or leave these layers out with exclude="
        )


def refuse_blind(classifier: Classifier, logits: Tensor, inputs: tuple[Tensor, ...]) -> None:
    """Raise ModelError when autograd has no way, or not every way, from the logits back to the inputs."""
    if not logits.requires_grad or Graph(logits, {}, inputs).blind:
        raise ModelError(
            f"expected logits with a gradient at the input, but those of {classifier.name} have none; remove no_grad, "
            "inference_mode, detach or an operation without a derivative, such as a quantised layer, from the model"
        )


def _agrees(found: Sequence[Form], wanted: Sequence[float], largest: Sequence[float], dtype: torch.dtype) -> bool:
    """Whether the rules give autograd's own norm, for each input."""
    ours = torch.stack([form.power(2) for form in found]).sum(0).sqrt().diagonal().tolist()
    tolerance = TOLERANCE.get(dtype, 1e-3)
    return all(
        abs(own - norm) <= tolerance * (norm + 1e-3 * most)
        for own, norm, most in zip(ours, wanted, largest, strict=True)
    )


def _norm(g: Tensor) -> float:
    return float((g.double() ** 2).sum().sqrt())


def _stacked(uses: Sequence[Use], evidence: Sequence[Mapping[int, Tensor]]) -> dict[int, Tensor]:
    return {use.node: torch.stack([e[use.node] for e in evidence]) for use in uses}


def _ruled(graph: Graph, uses: Sequence[Use]) -> bool:
    if any(u.through for u in uses):
        found = [rules.find(graph.nodes[u.node].name(), u.slot) for u in uses]
        exact = all(entry is not None and entry.exact for entry in found)
        return exact and all(u.through and not u.moved for u in uses)
    kinds = {(graph.nodes[use.node].name(), use.slot) for use in uses}
    return (
        len(kinds) == 1 and rules.find(*kinds.pop()) is not None and not any(u.moved for u in uses) and summable(uses)
    )


def _layouts(
    graph: Graph, uses: Sequence[Use], evidence: Sequence[Mapping[int, Tensor]], n: int
) -> list[layout.Layout] | None:
    """A layout for each use; a use whose gradients are all zero follows one of its siblings of equal shape."""
    found: dict[int, layout.Layout] = {}
    for i, use in enumerate(uses):
        node = graph.nodes[use.node]
        entry = rules.find(node.name(), use.slot)
        parts = [e[use.node] for e in evidence]
        where = layout.find(parts, n, entry.batch(node, parts[0].dim())) if entry else None
        if where is not None:
            found[i] = where
    known: dict[tuple[int, ...], set[layout.Layout]] = {}
    for i, where in found.items():
        known.setdefault(_shape(graph, uses[i].node), set()).add(where)
    for i, use in enumerate(uses):
        like = known.get(_shape(graph, use.node), set())
        if i not in found and len(like) == 1 and not any(bool(e[use.node].any()) for e in evidence):
            found[i] = next(iter(like))
    return [found[i] for i in range(len(uses))] if len(found) == len(uses) else None


def _shape(graph: Graph, node: int) -> tuple[int, ...]:
    return tuple(graph.nodes[node]._input_metadata[0].shape)


def kept_from(graph: Graph, first: int) -> tuple[float, float]:
    """Bytes of the operations from the one with this sequence number on, roughly: of all, and of the largest."""
    late = [_bytes(graph, i) for i, node in enumerate(graph.nodes) if node._sequence_nr() >= first]
    return sum(late), max(late, default=0.0)


def _bytes(graph: Graph, node: int) -> float:
    meta = getattr(graph.nodes[node], "_input_metadata", ())
    if not (meta and graph.active[node]):
        return 0.0
    return float(math.prod(meta[0].shape) * meta[0].dtype.itemsize)
