"""What a few inputs tell of a model, before the work on all of them: its layers, its plan, how much a pass keeps.

On a GPU it is found once for a model as it is (`runtime.fingerprint`), for there it would take longer than the work.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nescio import inputs
from nescio._common import memory
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import full_products, tf32_products
from nescio.trace.backward.substitutes import attention
from nescio.trace.probe.costs import layer_costs, memory_shares
from nescio.trace.probe.kernels_ahead import prepare, prepare_forward
from nescio.trace.probe.layers import Layers, find_layers
from nescio.trace.probe.linear_head import head_layers
from nescio.trace.probe.passes import PROBED, Pass, forward
from nescio.trace.probe.plan import Plan
from nescio.trace.runtime import cudnn, replay
from nescio.trace.runtime.fingerprint import fingerprint, lasts
from nescio.types import InputError, ModelError, NormSettings

TOO_LARGE = (
    "there is not enough memory for a single input and a single class; use a device with more memory, "
    "smaller inputs, or fewer layers with select= or exclude="
)


@dataclass(frozen=True)
class Survey:
    """What a few inputs tell of a model: its layers, how much memory a pass takes, how many classes there are."""

    table: Layers
    plan: Plan
    classes: int
    device: torch.device
    key: Hashable
    """The model's fingerprint, where passes may be replayed."""
    last: bool
    """Whether the inputs have channels last in memory."""
    silent: tuple[str, ...]
    """Selected parameters that autograd has no path to."""
    first: Pass | None
    """The pass of these inputs, where it was made."""
    plain: bool
    """Whether attention is taken apart (`attention`)."""
    costs: tuple[float, ...]
    """How much work each layer is."""
    shares: tuple[tuple[float, float], ...]
    """What is kept of a pass's memory, and of its largest part, when it is followed from each layer on."""
    head: int
    """How many of the last layers are the linear operation that gives the logits (`linear_head`)."""
    moved: bool
    """Whether rows may move between inputs (`row_moving_ops`): what is in front of an operation counts then."""
    sizes: dict[Hashable, tuple[int, int]] = field(default_factory=dict)
    """For rows, copies, a limit of memory and the share kept, the inputs and cotangents at a time."""


_KNOWN: weakref.WeakKeyDictionary[Any, dict[Any, Survey]] = weakref.WeakKeyDictionary()


def survey(
    classifier: Classifier, x: Inputs, request: NormSettings, key: Hashable = None, last: bool = False
) -> Survey:
    """Layers, in forward order, and the plan."""
    run = _first_pass(classifier, x)
    plain = attention.short(run.graph.nodes)
    if plain:
        with attention.plain(True):
            run = _first_pass(classifier, run.x)
    table = find_layers(run.graph, classifier.parameters(), request.layers, request.select, request.exclude)
    silent = tuple(name for name in table.parameters if name not in run.graph.uses)
    moved = any(use.moved for uses in run.graph.uses.values() for use in uses)
    costs, shares = layer_costs(run.graph, table), memory_shares(run.graph, table)
    classes, device = run.logits.shape[1], run.logits.device
    head = head_layers(run.graph, run.logits, table, run.plan.fast)
    return Survey(table, run.plan, classes, device, key, last, silent, run, plain, costs, shares, head, moved)


def _first_pass(classifier: Classifier, x: Inputs) -> Pass:
    """A pass of all of x or, where memory is short, of its first input."""
    try:
        return forward(classifier, x)
    except (RuntimeError, MemoryError) as error:
        if not memory.exhausted(error):
            raise
        if inputs.size(x) == 1:
            raise ModelError(TOO_LARGE) from error
    return _first_pass(classifier, inputs.take(x, slice(0, 1)))


def begin(
    classifier: Classifier,
    x: Inputs,
    noisy: Callable[[Any], Any],
    request: NormSettings,
    enter: Callable[[], None],
    trust: bool = False,
) -> tuple[Any, Survey, Hashable]:
    """The inputs, with channels last in memory where the model takes that, the survey of the first few, and None.

    With ``trust`` it may be the survey of the model as it was the last time; then the third is the fingerprint that the
    model had, and has to have.

    ``enter`` is called before the model is (`modes.lazily`). The fingerprint is taken before that, always of the model
    as the caller has it: a survey or a recording that was found in one call is found again in the next.
    """
    known = _KNOWN.setdefault(classifier.module, {})
    key: Any = None
    if isinstance(x, Tensor) and replay.can_replay(classifier, x):
        place = (x.shape[1:], request.layers, request.select, request.exclude)
        latest = next((k for k in reversed(known) if k[1:] == place), None) if trust else None
        if supposed := latest is not None and lasts(latest[0], classifier):
            key = latest
        else:
            key = (fingerprint(classifier), *place)
        if (found := known.pop(key, None)) is not None:
            known[key] = found  # the latest of all
            return (_channels_last(x) if found.last else _channels_first(x)), found, key[0] if supposed else None
        prepare_forward(classifier.module, x.device)
    enter()

    def surveyed(y: Any, last: bool) -> tuple[Any, Survey]:
        if key is None:
            # as many as a plan is found from; two of two, whose pass then serves for the work
            probed = slice(0, PROBED)
            return y, survey(classifier, inputs.take(noisy(inputs.take(y, probed)), probed), request, key, last)
        # a GPU sets itself up for every size and precision of a pass: as many inputs as a plan is found from, and in
        # the precision of that
        few = noisy(inputs.take(y, slice(0, PROBED)))
        few = inputs.take(few, [i % inputs.size(few) for i in range(PROBED if inputs.size(few) > 1 else 1)])
        with full_products(), cudnn.looking():
            result = survey(classifier, few, request, key, last)
        if result.first is not None and (request.precision is not None or tf32_products()):  # as the work will be
            lowered = None if request.precision is None else torch.bfloat16
            prepare(result.first.graph, inputs.size(few), result.device, lowered)
        known[key] = replace(result, first=None)
        return y, known[key]

    if isinstance(x, Tensor) and x.dim() == 4 and x.is_floating_point():
        # convolutions are faster so; a model that calls view() on what a convolution gives does not take it
        with contextlib.suppress(RuntimeError, InputError, ModelError):
            return *surveyed(_channels_last(x), True), None
    return *surveyed(x, False), None


def _channels_last(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def _channels_first(x: Any) -> Any:
    """Pictures on a GPU as they are laid by default: with channels last the engine would have all of the model so."""
    return x.contiguous() if isinstance(x, Tensor) and x.is_cuda and x.dim() == 4 else x
