"""Forward passes, each with its graph and the plan for it.

A plan is found once for a model and the operations of a pass, from three inputs (or from one, for batches of one).
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from nescio import inputs
from nescio._common.memory import exhausted
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.structure import replaced
from nescio.modes import current, full_products, tf32
from nescio.trace.backward.substitutes import folding
from nescio.trace.backward.substitutes.corrected import CorrectedOps
from nescio.trace.backward.substitutes.forks import Forks
from nescio.trace.backward.substitutes.picked_parts import Parts
from nescio.trace.probe.graph import Graph
from nescio.trace.probe.kernels_ahead import prepare
from nescio.trace.probe.leaves import leaf
from nescio.trace.probe.plan import Plan, find_plan, part_of, with_vmap_tried
from nescio.trace.probe.proofs import prove_own
from nescio.trace.runtime import cudnn
from nescio.types import ModelError

PROBED = 3
"""Inputs that a plan for more than one is found from."""

_PLANS: weakref.WeakKeyDictionary[Any, dict[tuple[int, object], Plan]] = weakref.WeakKeyDictionary()
CHECKPOINTED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that use activation checkpointing: they take the general path."""
_WRITING: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that write into a part of a tensor, which our own way of picking it does not allow."""
_DIFFERENTIATING: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that take gradients in their forward pass."""


@dataclass(frozen=True)
class Pass:
    """One forward pass: the input, the logits, the graph between them and the plan for it."""

    x: Inputs
    logits: Tensor
    graph: Graph
    plan: Plan
    z: Tensor
    """The logits that cotangents are made from: these, or more precise ones."""


def forward(classifier: Classifier, x: Inputs, check: bool = True, wanted: Collection[str] | None = None) -> Pass:
    """One forward pass with its graph and the plan for it; ``check`` looks at the values of the logits.

    Only the ``wanted`` parameters are followed (None: all): the graph begins with the first operation on one of them.
    """
    logits, graph = _trace(classifier, x, check, wanted)
    if check:
        prove_own(classifier, x, logits)
    known = _PLANS.setdefault(classifier.module, {})
    size = inputs.size(x)
    kind = (min(size, 2), graph.signature)
    if kind not in known and wanted is not None:
        parts = (part_of(plan, graph) for (count, _), plan in known.items() if count == kind[0])
        if (part := next(filter(None, parts), None)) is not None:
            known[kind] = part
    if kind not in known:
        if size in (1, PROBED):
            prepare(graph, size, logits.device)
            try:
                # a rule is told from a wrong one by more digits than TF32 has
                before = tf32()
                corrected = nullcontext() if classifier.module in CHECKPOINTED else CorrectedOps()
                with full_products(), cudnn.looking(), corrected:
                    again = logits.is_cuda and tf32() != before
                    own = _trace(classifier, x, check, wanted) if again else (logits, graph)
                    plan = _with_zeros_replaced(classifier, x, check, wanted, find_plan(classifier, x, *own))
                    known[kind] = with_vmap_tried(classifier, x, *own, plan)
            except CheckpointError:  # the backward pass runs a part of the model once more, and not as affine maps
                if classifier.module in CHECKPOINTED:
                    raise
                CHECKPOINTED.add(classifier.module)
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
    plan = replace(known[kind], fast={}) if classifier.module in CHECKPOINTED else known[kind]
    return Pass(x, logits, graph, plan, logits.detach())


def _with_zeros_replaced(
    classifier: Classifier, x: Inputs, check: bool, wanted: Collection[str] | None, plan: Plan
) -> Plan:
    """The plan with what can be told once parameters that are all zeros, such as a new head, have other values.

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
        more = find_plan(classifier, x, *_trace(classifier, x, check, wanted))
    if more.signature != plan.signature:
        return plan
    return replace(plan, fast={**plan.fast, **{n: where for n, where in more.fast.items() if n in plan.unsure}})


def _own_backward(error: BaseException) -> bool:
    """Whether an error comes from the backward pass of an operation that the model defines itself."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__") == "torch.autograd.function" for frame, _ in frames)


def _trace(classifier: Classifier, x: Inputs, check: bool, wanted: Collection[str] | None) -> tuple[Tensor, Graph]:
    parameters = classifier.parameters()
    others = [] if wanted is None else [p for name, p in parameters.items() if name not in wanted]
    tracked, roots = leaf(x) if wanted is None else (x, ())
    picks = classifier.module is not None and classifier.module not in _WRITING
    forks = None if classifier.module is None or classifier.module in _DIFFERENTIATING else Forks()
    try:
        for parameter in others:
            parameter.requires_grad_(False)
        with folding(classifier.module not in CHECKPOINTED, picks, _channels_last(x), forks):
            logits = classifier.logits(tracked) if check else classifier.functional({}, tracked)
    except RuntimeError as error:
        if forks is not None and forks.asked:
            return _with_one_edge(classifier, x, check, wanted)
        if not picks or f"of {Parts.__name__}" not in str(error):
            raise
        _WRITING.add(classifier.module)
        return _trace(classifier, x, check, wanted)
    finally:
        for parameter in others:
            parameter.requires_grad_(True)
    if forks is not None and forks.asked:
        return _with_one_edge(classifier, x, check, wanted)
    tracked = wanted is None and len(roots) == len(inputs.tensors(x))
    return logits, Graph(logits, parameters, roots, tracked, _held(classifier))


def _with_one_edge(
    classifier: Classifier, x: Inputs, check: bool, wanted: Collection[str] | None
) -> tuple[Tensor, Graph]:
    """The pass of a model that takes gradients in its forward pass: its activations must have one edge."""
    _DIFFERENTIATING.add(classifier.module)
    return _trace(classifier, x, check, wanted)


def _channels_last(x: Inputs) -> bool:
    """Whether inputs are pictures with channels last in memory: the model takes that (`survey.begin`)."""
    return isinstance(x, Tensor) and x.dim() == 4 and x.stride(1) == 1 and not x.is_contiguous()


def _held(classifier: Classifier) -> set[int]:
    """Memory of tensors that the model holds beside its parameters, such as indices and coordinates."""
    buffers = () if classifier.module is None else classifier.module.buffers()
    loose = current()
    own = [*buffers, *(() if loose is None else loose.tensors)]
    return {t.untyped_storage().data_ptr() for t in own if t.layout == torch.strided}
