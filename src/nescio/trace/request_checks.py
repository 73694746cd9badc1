"""The settings of a request, checked before any work is done."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nescio._common.argument_checks import choice, integer, number
from nescio.models import Classifier
from nescio.trace.backward.cotangents import ROWS
from nescio.types import InputError, ModelError, NormSettings


def check_request(
    classifier: Classifier, rows: Sequence[str], request: NormSettings, chunk: int | None, memory_gb: float | None
) -> None:
    """Raise for settings or a model for which there are no norms, with what to do."""
    if classifier.module is None:
        raise ModelError(f"gradients need an nn.Module with parameters; got {classifier.name}, a plain callable")
    if not any(p.is_floating_point() or p.is_complex() for p in classifier.module.parameters()):
        raise ModelError(
            f"gradients need parameters, and {classifier.name} has none; "
            "use a score without gradients, such as 'entropy'"
        )
    for row in rows:
        choice("rows", row, ROWS)
    choice("norm", request.norm, (1, 2))
    number("sigma", request.sigma, at_least=0)
    integer("samples", request.samples, at_least=0)
    if request.pairs and request.samples % 2:
        raise InputError(f"expected samples to be even, since copies come in pairs, got {request.samples}")
    choice("smoothing", request.smoothing, ("log", "mean"))
    if request.classes not in ("exact", "auto"):
        integer("classes", request.classes, at_least=3, hint="or give 'exact' or 'auto'")
    choice("precision", request.precision, (None, "bfloat16"))
    if chunk is not None:
        integer("chunk", chunk, at_least=1)
    if memory_gb not in (None, math.inf):
        number("memory_gb", memory_gb, above=0)
