"""Gradient norms of a whole batch: the loop over chunks of inputs, with what it does when memory runs out.

Inputs go through in chunks. When memory runs out the chunk is halved and the work goes on from where it was; a single
input that does not fit has its cotangents taken in smaller blocks, and at last its noisy copies in parts whose
gradients are added up.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from nescio import inputs, modes
from nescio.models import Classifier
from nescio.trace import attention, cotangents, memory, noise, replay
from nescio.trace import layers as layer_tables
from nescio.trace.engine import Pass, Settings, chunk_norms, forward, pieces, split_norms
from nescio.trace.layers import Layers
from nescio.trace.plan import Plan, detached, prove_silent
from nescio.types import ClassGradients, InputError, ModelError

TOO_LARGE = (
    "there is not enough memory for a single input and a single class; use a device with more memory, "
    "smaller inputs, or fewer layers with select="
)


def class_gradients(
    model: Any,
    x: Any,
    *,
    layers: str = "module",
    norm: int = 2,
    select: Sequence[str] | None = None,
    sigma: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    smoothing: cotangents.Smoothing = "log",
    chunk: int | None = None,
    output: str | None = None,
) -> ClassGradients:
    """Norms of ``∂ log p_c/∂θ_l`` for every input, class and layer, exact, with the model left as it was found.

    Args:
        model: an ``nn.Module`` or a `nescio.Classifier`; it is run in eval mode.
        x: a batch of inputs [N, ...], or a mapping of argument names to tensors.
        layers: "module" (a layer is a module's own parameters) or "tensor" (each parameter tensor is one).
        norm: 2 or 1.
        select: names or patterns (``"layer4.*"``) of the layers to take; None takes all. Frozen parameters count.
        sigma: standard deviation of the noise, in the units of the input; 0 is no smoothing.
        samples: average each gradient over the input and this many copies ``x + σε`` before the norm.
        seed: of the noise, which is the same for every input.
        smoothing: "log" averages log-probabilities (Eq. 13), "mean" takes the log of the mean probability.
        chunk: inputs at a time; None chooses from the memory at hand. Results do not depend on it.
        output: what the model returns: "logits" (unless a Classifier says otherwise), "probabilities" or "binary".

    Returns:
        `ClassGradients` with ``norms`` [N, C, L], ``probabilities`` [N, C] and ``layers`` in forward order.
    """
    norms, probabilities, names = gradient_norms(
        Classifier.of(model, output=output), x, rows=("classes",), norm=norm, layers=layers, select=select, sigma=sigma,
        samples=samples, seed=seed, smoothing=smoothing, chunk=chunk,
    )  # fmt: skip
    return ClassGradients(norms["classes"], probabilities, names)


def gradient_norms(
    classifier: Classifier,
    x: Any,
    *,
    rows: Sequence[str] = ("classes",),
    norm: int = 2,
    layers: str = "module",
    select: Sequence[str] | None = None,
    sigma: float = 0.0,
    samples: int = 0,
    seed: int = 0,
    smoothing: cotangents.Smoothing = "log",
    chunk: int | None = None,
) -> tuple[dict[str, Tensor], Tensor, tuple[str, ...]]:
    """For each kind of row (see `cotangents`) the norms [N, R, L]; the probabilities [N, C]; the layers' names."""
    _check(classifier, rows, norm, sigma, samples, smoothing, chunk)
    samples = samples if sigma > 0 else 0
    settings = Settings(tuple(rows), norm, samples + 1, smoothing)
    with modes.preserved(classifier), modes.tracing(classifier):
        x = inputs.apply(classifier.prepare(x), detached)  # it may come from the model's own parameters
        if inputs.size(x) == 0:
            raise InputError("expected at least one input; got an empty batch")
        x, survey = _begin(classifier, x, lambda y: noise.copies(y, sigma, samples, seed), layers, select)
        size, settings = _sizes(survey, settings, chunk)
        parts: list[dict[str, Tensor]] = []
        probabilities: list[Tensor] = []
        start = 0
        while start < inputs.size(x):
            part = inputs.take(x, slice(start, start + size))
            try:
                logits, norms = _chunk(classifier, noise.copies(part, sigma, samples, seed), survey, settings)
            except (RuntimeError, MemoryError) as error:
                if not memory.exhausted(error):
                    raise
                size, settings = _smaller(inputs.size(part), settings, error)
                replay.clear()
                memory.release(survey.device)
                continue
            start += inputs.size(part)
            parts.append({row: n.transpose(0, 1).cpu() for row, n in norms.items()})
            probabilities.append(logits[:: settings.copies].double().softmax(1).cpu())
    return {row: _joined([p[row] for p in parts]) for row in rows}, _joined(probabilities), survey.table.names


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _begin(
    classifier: Classifier, x: Any, noisy: Callable[[Any], Any], layers: str, select: Sequence[str] | None
) -> tuple[Any, _Survey]:
    """The inputs, with channels last in memory where the model takes that, and the survey of the first two."""

    def survey(y: Any) -> _Survey:
        return _survey(classifier, inputs.take(noisy(inputs.take(y, slice(0, 2))), slice(0, 2)), layers, select)

    if isinstance(x, torch.Tensor) and x.dim() == 4 and x.is_floating_point():
        # convolutions are faster so; a model that calls view() on what a convolution gives does not take it
        last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        with contextlib.suppress(RuntimeError, InputError):
            return last, survey(last)
    return x, survey(x)


@dataclass(frozen=True)
class _Survey:
    """What two inputs tell of a model: its layers, how much memory a pass takes, how many classes there are."""

    table: Layers
    plan: Plan
    classes: int
    device: torch.device
    key: Hashable
    """The model's fingerprint, where passes may be replayed."""
    silent: tuple[str, ...]
    """Selected parameters that autograd has no path to."""
    first: Pass | None
    """The pass of the two inputs, where it was made."""
    plain: bool
    """Whether attention is taken apart (`attention`)."""


_SURVEYS: weakref.WeakKeyDictionary[Any, dict[Hashable, _Survey]] = weakref.WeakKeyDictionary()


def _survey(classifier: Classifier, x: Any, layers: str, select: Sequence[str] | None) -> _Survey:
    """Layers, in forward order, and the plan; on a GPU it is done once a model."""
    known = _SURVEYS.setdefault(classifier.module, {})
    key: Hashable = None
    if replay.can_replay(classifier, x):
        key = (replay.fingerprint(classifier), x.shape[1:], layers, None if select is None else tuple(select))
        if key in known:
            return known[key]
    run = _first_pass(classifier, x)
    plain = attention.short(run.graph)
    if plain:
        with attention.plain(True):
            run = _first_pass(classifier, run.x)
    table = layer_tables.find(run.graph, classifier.parameters(), layers, select)
    silent = tuple(name for name in table.parameters if name not in run.graph.uses)
    found = _Survey(table, run.plan, run.logits.shape[1], run.logits.device, key, silent, run, plain)
    if key is not None:
        known[key] = replace(found, first=None)
    return found


def _first_pass(classifier: Classifier, x: Any) -> Pass:
    """A pass of all of x or, where memory is short, of its first input."""
    try:
        return forward(classifier, x)
    except (RuntimeError, MemoryError) as error:
        if not memory.exhausted(error):
            raise
        if inputs.size(x) == 1:
            raise ModelError(TOO_LARGE) from error
    return _first_pass(classifier, inputs.take(x, slice(0, 1)))


def _chunk(classifier: Classifier, x: Any, survey: _Survey, settings: Settings) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits and norms of a chunk of inputs with their copies, and the proof that no selected parameter escapes."""
    if settings.parts > 1:
        own = [inputs.take(x, piece) for piece in pieces(settings)]
        for part in own:
            prove_silent(classifier, part, survey.silent)
        with torch.no_grad():
            logits = torch.cat([classifier.logits(part) for part in own])
        return logits, split_norms(classifier, x, logits, survey.table, settings)

    prove_silent(classifier, x, survey.silent)

    def work(x: Any, check: bool) -> tuple[Tensor, dict[str, Tensor]]:
        own = survey.first if survey.first is not None and survey.first.x is x else forward(classifier, x, check)
        if not check and any(name not in own.plan.fast for name in survey.table.parameters if name in own.graph.uses):
            raise NotImplementedError("the general path cannot be recorded")
        if check:
            others = set(survey.table.parameters).difference(own.graph.uses, survey.silent)
            prove_silent(classifier, x, sorted(others))
        return own.logits.detach(), chunk_norms(classifier, own, survey.table, settings)

    with attention.plain(survey.plain):
        if survey.key is None:
            return work(survey.first.x if survey.first and _same(survey.first.x, x) else x, True)
        return replay.run((survey.key, x.shape, settings), x, work)


def _same(a: Any, b: Any) -> bool:
    """Whether two batches are the very same memory."""
    pairs = zip(inputs.tensors(a), inputs.tensors(b), strict=True)
    return all(s.shape == t.shape and s.data_ptr() == t.data_ptr() and s.stride() == t.stride() for s, t in pairs)


def _sizes(survey: _Survey, settings: Settings, chunk: int | None) -> tuple[int, Settings]:
    """Inputs at a time, and the settings with the number of cotangents at a time."""
    rows = max(cotangents.row_count(row, survey.classes) for row in settings.rows)
    plan = survey.plan
    size, at_once = memory.choose(survey.device, plan.activations, plan.gradients, rows, settings.copies)
    return chunk or size, replace(settings, at_once=at_once)


def _smaller(size: int, settings: Settings, error: BaseException) -> tuple[int, Settings]:
    """What to try after memory ran out: fewer inputs, then fewer cotangents, then the copies in parts."""
    if size > 1:
        return size // 2, settings
    if settings.at_once and settings.at_once > 1:
        return 1, replace(settings, at_once=settings.at_once // 2)
    if settings.parts < settings.copies:
        return 1, replace(settings, parts=min(settings.copies, settings.parts * 2))
    raise ModelError(TOO_LARGE) from error


def _check(
    classifier: Classifier,
    rows: Sequence[str],
    norm: int,
    sigma: float,
    samples: int,
    smoothing: str,
    chunk: int | None,
) -> None:
    if classifier.module is None:
        raise ModelError(f"gradients need an nn.Module with parameters; got {classifier.name}, a plain callable")
    if not classifier.parameters():
        raise ModelError(
            f"gradients need parameters, and {classifier.name} has none; "
            "use a score without gradients, such as 'entropy'"
        )
    if unknown := [row for row in rows if row not in cotangents.ROWS]:
        raise InputError(f"expected rows from {', '.join(cotangents.ROWS)}; got {unknown[0]!r}")
    if norm not in (1, 2):
        raise InputError(f"expected norm=1 or norm=2; got {norm!r}")
    if not (sigma >= 0 and sigma < float("inf")):
        raise InputError(f"expected a finite sigma of 0 or more; got {sigma!r}")
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
        raise InputError(f"expected samples to be a whole number of 0 or more; got {samples!r}")
    if smoothing not in ("log", "mean"):
        raise InputError(f"expected smoothing='log' or smoothing='mean'; got {smoothing!r}")
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise InputError(f"expected chunk to be a whole number of 1 or more, or None; got {chunk!r}")
