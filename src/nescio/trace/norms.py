"""Gradient norms of a whole batch: the loop over chunks of inputs, with what it does when memory runs out.

Inputs go through in chunks. When memory runs out the chunk is halved and the work goes on from where it was; a single
input that does not fit has its cotangents taken in smaller blocks, and at last its noisy copies in parts whose
gradients are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nescio import inputs, modes
from nescio.models import Classifier
from nescio.trace import cotangents, memory, noise
from nescio.trace import layers as layer_tables
from nescio.trace.engine import Pass, Settings, chunk_norms, forward, pieces, split_norms
from nescio.trace.plan import prove_silent
from nescio.types import ClassGradients, InputError, ModelError


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
    output: str = "logits",
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
        output: what the model returns: "logits", "probabilities" or "binary".

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
        x = classifier.prepare(x)
        if inputs.size(x) == 0:
            raise InputError("expected at least one input; got an empty batch")
        first = noise.copies(inputs.take(x, slice(0, 2)), sigma, samples, seed)
        survey = forward(classifier, inputs.take(first, slice(0, 2)))
        table = layer_tables.find(survey.graph, classifier.parameters(), layers, select)
        prove_silent(classifier, survey.x, [name for name in table.parameters if name not in survey.graph.uses])
        size, settings = _sizes(survey, settings, chunk)
        parts: list[dict[str, Tensor]] = []
        probabilities: list[Tensor] = []
        start = 0
        while start < inputs.size(x):
            part = inputs.take(x, slice(start, start + size))
            try:
                noisy = noise.copies(part, sigma, samples, seed)
                if settings.parts > 1:
                    with torch.no_grad():
                        logits = torch.cat([classifier.logits(inputs.take(noisy, piece)) for piece in pieces(settings)])
                    norms = split_norms(classifier, noisy, logits, table, settings)
                else:
                    whole = inputs.size(x) == inputs.size(part) == len(survey.logits) == inputs.size(noisy)
                    run = survey if whole else forward(classifier, noisy)
                    logits, norms = run.logits.detach(), chunk_norms(classifier, run, table, settings)
            except (RuntimeError, MemoryError) as error:
                if not memory.exhausted(error):
                    raise
                size, settings = _smaller(inputs.size(part), settings, error)
                run = survey  # lets go of the pass that did not fit
                memory.release(survey.logits.device)
                continue
            start += inputs.size(part)
            parts.append({row: n.transpose(0, 1).cpu() for row, n in norms.items()})
            probabilities.append(logits[:: settings.copies].double().softmax(1).cpu())
    return {row: torch.cat([p[row] for p in parts]) for row in rows}, torch.cat(probabilities), table.names


def _sizes(survey: Pass, settings: Settings, chunk: int | None) -> tuple[int, Settings]:
    """Inputs at a time, and the settings with the number of cotangents at a time."""
    rows = max(cotangents.row_count(row, survey.logits.shape[1]) for row in settings.rows)
    plan = survey.plan
    size, at_once = memory.choose(survey.logits.device, plan.activations, plan.gradients, rows, settings.copies)
    return chunk or size, replace(settings, at_once=at_once)


def _smaller(size: int, settings: Settings, error: BaseException) -> tuple[int, Settings]:
    """What to try after memory ran out: fewer inputs, then fewer cotangents, then the copies in parts."""
    if size > 1:
        return size // 2, settings
    if settings.at_once and settings.at_once > 1:
        return 1, replace(settings, at_once=settings.at_once // 2)
    if settings.parts < settings.copies:
        return 1, replace(settings, parts=min(settings.copies, settings.parts * 2))
    raise ModelError(
        "there is not enough memory for a single input and a single class; use a device with more memory, "
        "smaller inputs, or fewer layers with select="
    ) from error


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
