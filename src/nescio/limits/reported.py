"""The audit of a report: a few directions away from the data, short, as plain values that JSON can hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from nescio.limits.audits import audit
from nescio.models import ModelOrPosterior
from nescio.report.findings_types import AuditFacts
from nescio.types import NescioError

STARTS, COUNT, FEATURES, RADIUS = 3, 3, 4, 256.0
SMALL = 64
"""Inputs of at most so many numbers are also left along single features."""


def reported(
    model: ModelOrPosterior,
    x: Tensor,
    names: Sequence[str] | None = None,
    seed: int = 0,
    classes: Sequence[str] | None = None,
) -> AuditFacts:
    """Along which directions the model is certain far away from x ``[N, ...]``; or in `left_out` why nobody can say."""
    kinds = ("features", "random", "towards", "away") if x[0].numel() <= SMALL else ("random", "towards", "away")
    settings: dict[str, Any] = {"starts": STARTS, "count": COUNT, "features": FEATURES, "radius": RADIUS, "seed": seed}
    try:
        table = audit(model, x, kinds, names=names, classes=classes, batch=64, **settings)
    except NescioError as error:
        return {"left_out": str(error)}
    return {
        "rows": [asdict(row) | {"values": list(row.values)} for row in table.rows],
        "distances": list(table.distances),
        "starts": table.starts,
        "sentences": table.sentences(),
        "summary": table.summary(),
        "measured_because": table.reason,
        "classes": list(table.classes),
        "settings": settings | {"directions": list(kinds), "inputs": len(x)},
    }
