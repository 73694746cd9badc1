"""The engine: norms of parameter gradients for every input, cotangent and parameter.

For a chunk of inputs: one forward pass; the graph and its `plan`; then for each block of cotangents one backward pass to the outputs of the operations
that use parameters (`backward`), the rules on what comes out, and the general path for the rest. Noisy copies of an input stand beside it in the batch
and are merged as more positions of the same gradient.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from nescio import inputs
from nescio.models import Classifier
from nescio.trace import cotangents, general
from nescio.trace.backward import pull
from nescio.trace.batch_norm import affine
from nescio.trace.graph import Graph
from nescio.trace.layers import Layers
from nescio.trace.layout import Layout
from nescio.trace.plan import Plan, forms, leaf, probe

_PLANS: weakref.WeakKeyDictionary[Any, dict[object, Plan]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Settings:
    """What is asked of the engine."""

    rows: tuple[str, ...]
    norm: int
    copies: int
    smoothing: cotangents.Smoothing
    at_once: int | None = None
    """Cotangents in one backward pass; None: all."""
    parts: int = 1
    """Into how many parts the copies of an input are cut, for want of memory."""


Powers = dict[str, Tensor]


@dataclass(frozen=True)
class Pass:
    """One forward pass: the input, the logits, the graph between them and the plan for it."""

    x: Any
    logits: Tensor
    graph: Graph
    plan: Plan


def chunk_powers(
    classifier: Classifier, run: Pass, layers: Layers, settings: Settings
) -> tuple[dict[str, Powers], Tensor]:
    """For each kind of row ``Σ|g|^norm`` [R, N] of each parameter, scaled; and the logits [N·copies, C]."""
    out: dict[str, Powers] = {}
    for row in settings.rows:
        blocks = []
        total = cotangents.row_count(row, run.logits.shape[1])
        step = settings.at_once or total
        for start in range(0, total, step):
            pulled = cotangents.build(row, run.logits, settings.copies, settings.smoothing, slice(start, start + step))
            blocks.append(_block(classifier, run, layers.parameters, pulled, settings))
        out[row] = {name: torch.cat([b[name] for b in blocks]) for name in layers.parameters}
    return out, run.logits.detach()


def forward(classifier: Classifier, x: Any) -> Pass:
    """One forward pass with its graph and the plan for it."""
    tracked, roots = leaf(x)
    with affine():
        logits = classifier.logits(tracked)
    graph = Graph(logits, classifier.parameters(), roots)
    known = _PLANS.setdefault(classifier.module, {})
    kind = (min(inputs.size(x), 2), graph.signature)
    if kind not in known:
        if inputs.size(x) <= 2:
            known[kind] = probe(classifier, x, logits, graph)
        else:
            small = forward(classifier, inputs.take(x, slice(0, 2))).plan
            # other operations at another batch size: trust no rule
            known[kind] = small if small.signature == graph.signature else replace(small, signature=graph.signature, fast={})
    return Pass(x, logits, graph, known[kind])


def split_powers(
    classifier: Classifier, x: Any, layers: Layers, settings: Settings
) -> tuple[dict[str, Powers], Tensor]:
    """As `chunk_powers` for one input whose copies do not fit together: gradients of parts of the copies are formed and added up."""
    width = -(-settings.copies // settings.parts)
    pieces = [slice(s, s + width) for s in range(0, settings.copies, width)]
    with torch.no_grad():
        logits = torch.cat([classifier.logits(inputs.take(x, piece)) for piece in pieces])
    out: dict[str, Powers] = {}
    for row in settings.rows:
        blocks = []
        total = cotangents.row_count(row, logits.shape[1])
        step = settings.at_once or total
        for start in range(0, total, step):
            pulled = cotangents.build(row, logits, settings.copies, settings.smoothing, slice(start, start + step))
            sums: dict[str, Tensor] = {}
            for piece in pieces:
                own = general.gradients(classifier, inputs.take(x, piece), layers.parameters, pulled.vectors[:, piece])
                for name, g in own.items():
                    sums[name] = sums[name] + g if name in sums else g
            power = {n: (g.flatten(2).abs().double() ** settings.norm).sum(2) for n, g in sums.items()}
            blocks.append({name: power[name] * pulled.scale**settings.norm for name in layers.parameters})
        out[row] = {name: torch.cat([b[name] for b in blocks]) for name in layers.parameters}
    return out, logits


def _block(
    classifier: Classifier, run: Pass, names: Sequence[str], pulled: cotangents.Cotangents, settings: Settings
) -> Powers:
    graph, logits = run.graph, run.logits
    scale = pulled.scale**settings.norm
    fast = {name: layouts for name in names if (layouts := _fitting(run, name)) is not None}
    nodes = sorted({use.node for name in fast for use in graph.uses[name]})
    found = pull(logits, [GradientEdge(graph.nodes[i], 0) for i in nodes], pulled.vectors)
    deltas = {node: g for node, g in zip(nodes, found, strict=True) if g is not None}
    del found
    out: Powers = {}
    with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
        for name, layouts in fast.items():
            uses = [(use, where) for use, where in zip(graph.uses[name], layouts, strict=True) if use.node in deltas]
            parts = forms(graph, [u for u, _ in uses], [w for _, w in uses], deltas)
            if parts is None:
                continue
            zero = torch.zeros_like(scale)
            out[name] = sum((part.merge(settings.copies).power(settings.norm) for part in parts), zero) * scale
    rest = [name for name in names if name in graph.uses and name not in out]
    for name, power in general.powers(classifier, run.x, rest, pulled.vectors, settings.copies, settings.norm).items():
        out[name] = power * scale
    return {name: out[name] if name in out else torch.zeros_like(scale) for name in names}


def _fitting(run: Pass, name: str) -> list[Layout] | None:
    """The layouts of a fast parameter's uses for this pass; None for a parameter that takes the general path."""
    if name not in run.plan.fast:
        return None
    layouts = [Layout(dim, major, len(run.logits)) for dim, major in run.plan.fast[name]]
    shapes = (tuple(run.graph.nodes[use.node]._input_metadata[0].shape) for use in run.graph.uses[name])
    return layouts if all(where.fits(shape) for where, shape in zip(layouts, shapes, strict=True)) else None
