"""The engine: norms of parameter gradients for every input, cotangent and parameter.

For a chunk of inputs: one forward pass; the graph and its `plan`; then for each block of cotangents one backward pass
to the outputs of the operations that use parameters (`backward`), the rules on what comes out, and the general path
for the rest. Noisy copies of an input stand beside it in the batch and are merged as more positions of the same
gradient.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from nescio import inputs
from nescio._common.memory import exhausted
from nescio.models import Classifier
from nescio.models.structure import replaced
from nescio.modes import current, full_products
from nescio.trace.backward import cotangents
from nescio.trace.backward import per_input as general
from nescio.trace.backward.pull import NotFolded, visit
from nescio.trace.backward.substitutes import folding
from nescio.trace.backward.substitutes.corrected import Sound
from nescio.trace.norms.forms import Form
from nescio.trace.probe.graph import Graph, Use
from nescio.trace.probe.layers import Layers
from nescio.trace.probe.plan import Plan, carry, followed, forms, leaf, probe
from nescio.trace.probe.proofs import prove_own
from nescio.trace.rules.layout import Layout
from nescio.types import ModelError

PROBED = 3
"""Inputs that a plan for more than one is found from."""

_PLANS: weakref.WeakKeyDictionary[Any, dict[object, Plan]] = weakref.WeakKeyDictionary()
_CHECKPOINTED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that use activation checkpointing: they take the general path."""


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
"""``Σ|g|^norm`` [K, N] of each parameter's gradient g, before the cotangents' scale."""


@dataclass(frozen=True)
class Pass:
    """One forward pass: the input, the logits, the graph between them and the plan for it."""

    x: Any
    logits: Tensor
    graph: Graph
    plan: Plan
    z: Tensor
    """The logits that cotangents are made from: these, or more precise ones."""


def chunk_norms(
    classifier: Classifier, run: Pass, layers: Layers, settings: Settings, p: Tensor | None = None
) -> dict[str, Tensor]:
    """For each kind of row the norms [R, N, L] of the layers' gradients; ``p``: see `cotangents.build`."""
    return _rows(
        run.z, layers, settings, lambda pulled: _block(classifier, run, layers.parameters, pulled, settings), p
    )


def pulled_norms(
    classifier: Classifier, run: Pass, layers: Layers, settings: Settings, pulled: cotangents.Cotangents
) -> Tensor:
    """Norms [K, N, L] of the layers' gradients for given cotangents."""
    step = settings.at_once or len(pulled.vectors)
    parts = []
    for start in range(0, len(pulled.vectors), step):
        some = cotangents.Cotangents(pulled.vectors[start : start + step], pulled.scale[start : start + step])
        parts.append(layers.gather(_block(classifier, run, layers.parameters, some, settings), settings.norm))
    return torch.cat(parts) * pulled.scale.unsqueeze(2)


def split_norms(
    classifier: Classifier, x: Any, logits: Tensor, layers: Layers, settings: Settings, p: Tensor | None = None
) -> dict[str, Tensor]:
    """As `chunk_norms` for one input whose copies do not fit together: gradients of parts of the copies are added up.

    ``logits`` [copies, C] are those of all copies.
    """

    def block(pulled: cotangents.Cotangents) -> Powers:
        sums: dict[str, Tensor] = {}
        for piece in pieces(settings):
            own = general.gradients(classifier, inputs.take(x, piece), layers.parameters, pulled.vectors[:, piece])
            sums = {name: sums[name] + g if name in sums else g for name, g in own.items()}
        return {name: (g.reshape(*g.shape[:2], -1).double().abs() ** settings.norm).sum(2) for name, g in sums.items()}

    return _rows(logits, layers, settings, block, p)


def pieces(settings: Settings) -> list[slice]:
    """The copies of an input, cut into parts."""
    width = -(-settings.copies // settings.parts)
    return [slice(s, s + width) for s in range(0, settings.copies, width)]


def _rows(
    logits: Tensor,
    layers: Layers,
    settings: Settings,
    block: Callable[[cotangents.Cotangents], Powers],
    p: Tensor | None = None,
) -> dict[str, Tensor]:
    """Norms [R, N, L] from ``block``, which gives ``Σ|g|^norm`` [K, N] of each parameter for some cotangents."""
    out = {}
    for row in settings.rows:
        norms = []
        total = cotangents.row_count(row, logits.shape[1])
        step = settings.at_once or total
        for start in range(0, total, step):
            pulled = cotangents.build(row, logits, settings.copies, settings.smoothing, slice(start, start + step), p)
            # the scale comes after the root: its square may be too small for a float64
            norms.append(layers.gather(block(pulled), settings.norm) * pulled.scale.unsqueeze(2))
        out[row] = torch.cat(norms)
    return out


def forward(classifier: Classifier, x: Any, check: bool = True, wanted: Collection[str] | None = None) -> Pass:
    """One forward pass with its graph and the plan for it; ``check`` looks at the values of the logits.

    Only the ``wanted`` parameters are followed (None: all): the graph begins with the first operation on one of them.
    """
    logits, graph = _trace(classifier, x, check, wanted)
    if check:
        prove_own(classifier, x, logits)
    known = _PLANS.setdefault(classifier.module, {})
    size = inputs.size(x)
    kind = (min(size, 2), graph.signature)
    if kind not in known:
        if size in (1, PROBED):
            try:
                # a rule is told from a wrong one by more digits than TF32 has
                with full_products(), nullcontext() if classifier.module in _CHECKPOINTED else Sound():
                    own = _trace(classifier, x, check, wanted) if logits.is_cuda else (logits, graph)
                    lit = _lit(classifier, x, check, wanted, probe(classifier, x, *own))
                    known[kind] = followed(classifier, x, *own, lit)
            except CheckpointError:  # the backward pass runs a part of the model once more, and not as affine maps
                if classifier.module in _CHECKPOINTED:
                    raise
                _CHECKPOINTED.add(classifier.module)
                return forward(classifier, x, check, wanted)
            except (RuntimeError, AssertionError) as error:
                if exhausted(error) or not _own_backward(error):
                    raise
                raise ModelError(
                    f"expected a model whose gradient can be taken in eval mode, but the backward pass of "
                    f"{classifier.name} has code of its own, which fails: {error}; for checkpointing say "
                    "use_reentrant=False, or switch reversible layers and the like off"
                ) from error
        else:
            few = inputs.take(x, [i % size for i in range(PROBED)])
            small = forward(classifier, few, wanted=wanted).plan
            # other operations at another batch size: trust no rule
            known[kind] = (
                small if small.signature == graph.signature else replace(small, signature=graph.signature, fast={})
            )
    plan = replace(known[kind], fast={}) if classifier.module in _CHECKPOINTED else known[kind]
    return Pass(x, logits, graph, plan, logits.detach())


def _lit(classifier: Classifier, x: Any, check: bool, wanted: Collection[str] | None, plan: Plan) -> Plan:
    """The plan with what can be told once parameters that are all zeros, such as a new head, let gradients through.

    A rule that is right for other values of the parameters is right for these: the operations are the same.
    """
    zero = [name for name, p in classifier.parameters().items() if plan.unsure and not bool(p.any())]
    if not zero or classifier.module is None or isinstance(classifier.module, torch.jit.ScriptModule):
        return plan
    parameters = classifier.parameters()
    values = {}
    for name in zero:
        wave = torch.arange(1, parameters[name].numel() + 1, device=parameters[name].device).cos() / 10
        values[name] = wave.to(parameters[name].dtype).view(parameters[name].shape).requires_grad_()
    with replaced(classifier.module, values):
        more = probe(classifier, x, *_trace(classifier, x, check, wanted))
    if more.signature != plan.signature:
        return plan
    return replace(plan, fast={**plan.fast, **{n: where for n, where in more.fast.items() if n in plan.unsure}})


def _own_backward(error: BaseException) -> bool:
    """Whether an error comes from the backward pass of an operation that the model defines itself."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__") == "torch.autograd.function" for frame, _ in frames)


def _trace(classifier: Classifier, x: Any, check: bool, wanted: Collection[str] | None) -> tuple[Tensor, Graph]:
    parameters = classifier.parameters()
    others = [] if wanted is None else [p for name, p in parameters.items() if name not in wanted]
    tracked, roots = leaf(x) if wanted is None else (x, ())
    try:
        for parameter in others:
            parameter.requires_grad_(False)
        with folding(classifier.module not in _CHECKPOINTED):
            logits = classifier.logits(tracked) if check else classifier.functional({}, tracked)
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
    tracked = wanted is None and len(roots) == len(inputs.tensors(x))
    return logits, Graph(logits, parameters, roots, tracked, _held(classifier))


def _held(classifier: Classifier) -> set[int]:
    """Memory of tensors that the model holds beside its parameters, such as indices and coordinates."""
    buffers = () if classifier.module is None else classifier.module.buffers()
    loose = current()
    own = [*buffers, *(() if loose is None else loose.tensors)]
    return {t.untyped_storage().data_ptr() for t in own if t.layout == torch.strided}


def _block(
    classifier: Classifier, run: Pass, names: Sequence[str], pulled: cotangents.Cotangents, settings: Settings
) -> Powers:
    reader = _Reader(run, names, settings)
    try:
        visit(run.logits, reader.nodes, run.graph.lowest(reader.nodes), pulled.vectors, reader.read)
    except CheckpointError:  # what is computed again can be read once, and the rules read it too
        _CHECKPOINTED.add(classifier.module)
        return _block(classifier, replace(run, plan=replace(run.plan, fast={})), names, pulled, settings)
    except NotFolded:
        each = [
            cotangents.Cotangents(pulled.vectors[k : k + 1], pulled.scale[k : k + 1]) for k in range(len(pulled.scale))
        ]
        blocks = [_block(classifier, run, names, one, settings) for one in each]
        return {name: torch.cat([b[name] for b in blocks]) for name in names}
    out = reader.finish()
    rest = [name for name in names if name in run.graph.uses and name not in out]
    out |= general.powers(
        classifier, run.x, rest, pulled.vectors, settings.copies, settings.norm, follow=run.plan.follow
    )
    return {name: out[name] if name in out else torch.zeros_like(pulled.scale) for name in names}


class _Reader:
    """Turns output gradients into ``Σ|g|^norm`` of the fast parameters as soon as all that a parameter needs are
    there.
    """

    def __init__(self, run: Pass, names: Sequence[str], settings: Settings) -> None:
        self.run, self.settings = run, settings
        self.layouts = {name: layouts for name in names if (layouts := _fitting(run, name)) is not None}
        self.users: dict[int, list[str]] = {}
        for name in self.layouts:
            for node in {use.node for use in run.graph.uses[name]}:
                self.users.setdefault(node, []).append(name)
        self.nodes = {i: run.graph.nodes[i] for i in sorted(self.users)}
        self.waiting: dict[str, dict[int, Tensor]] = {name: {} for name in self.layouts}
        self.powers: Powers = {}
        self.beyond: dict[str, tuple[list[Use], list[Form]]] = {}
        """For parameters that go `through` a part of the network, the gradients where they come out."""

    def read(self, node: int, delta: Tensor) -> None:
        """Take the gradient at a node's output."""
        shared: dict[int, dict[str, Any]] = {}
        for name in self.users[node]:
            self.waiting[name][node] = delta
            if len(self.waiting[name]) == len({use.node for use in self.run.graph.uses[name]}):
                self._reduce(name, shared)

    def finish(self) -> Powers:
        """What was found; a parameter that some cotangents' paths do not reach is worked out from those that came."""
        for name in [n for n, deltas in self.waiting.items() if deltas]:
            self._reduce(name, {})
        for name, (uses, parts) in self.beyond.items():
            whole = carry(self.run.graph, uses, parts, self.run.graph.parameters[name])
            self.powers[name] = whole.power(self.settings.norm)
        return self.powers

    def _reduce(self, name: str, shared: dict[int, dict[str, Any]]) -> None:
        deltas = self.waiting.pop(name)
        pairs = zip(self.run.graph.uses[name], self.layouts[name], strict=True)
        uses = [(use, where) for use, where in pairs if use.node in deltas]
        with torch.no_grad(), torch.autocast(self.run.logits.device.type, enabled=False):
            parts = forms(self.run.graph, [u for u, _ in uses], [w for _, w in uses], deltas, shared)
            if parts is None:
                return
            merged = [part.merge(self.settings.copies) for part in parts]
            if uses[0][0].through:
                self.beyond[name] = [use for use, _ in uses], merged
            else:
                self.powers[name] = torch.stack([part.power(self.settings.norm) for part in merged]).sum(0)


def _fitting(run: Pass, name: str) -> list[Layout] | None:
    """The layouts of a fast parameter's uses for this pass; None for a parameter that takes the general path."""
    if name not in run.plan.fast or any(use.moved for use in run.graph.uses[name]):
        return None
    layouts = [Layout(dim, major, len(run.logits)) for dim, major in run.plan.fast[name]]
    shapes = (tuple(run.graph.nodes[use.node]._input_metadata[0].shape) for use in run.graph.uses[name])
    return layouts if all(where.fits(shape) for where, shape in zip(layouts, shapes, strict=True)) else None
