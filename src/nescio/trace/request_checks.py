"""What may be asked of the engine: settings are checked before any work is done."""

from __future__ import annotations

from collections.abc import Sequence

from nescio.models import Classifier
from nescio.trace.backward import cotangents
from nescio.types import InputError, ModelError, NormSettings


def check_request(
    classifier: Classifier, rows: Sequence[str], request: NormSettings, chunk: int | None, memory_gb: float | None
) -> None:
    """Raise for settings or a model for which there are no norms, with what to do."""
    if classifier.module is None:
        raise ModelError(f"gradients need an nn.Module with parameters; got {classifier.name}, a plain callable")
    if not classifier.parameters():
        raise ModelError(
            f"gradients need parameters, and {classifier.name} has none; "
            "use a score without gradients, such as 'entropy'"
        )
    if unknown := [row for row in rows if row not in cotangents.ROWS]:
        raise InputError(f"expected rows from {', '.join(cotangents.ROWS)}; got {unknown[0]!r}")
    if request.norm not in (1, 2):
        raise InputError(f"expected norm=1 or norm=2; got {request.norm!r}")
    if not (request.sigma >= 0 and request.sigma < float("inf")):
        raise InputError(f"expected a finite sigma of 0 or more; got {request.sigma!r}")
    if not _whole(request.samples, 0):
        raise InputError(f"expected samples to be a whole number of 0 or more; got {request.samples!r}")
    if request.pairs and request.samples % 2:
        raise InputError(f"expected an even number of copies, which come in pairs; got samples={request.samples}")
    if request.smoothing not in ("log", "mean"):
        raise InputError(f"expected smoothing='log' or smoothing='mean'; got {request.smoothing!r}")
    if request.classes not in ("exact", "auto") and not _whole(request.classes, 3):
        raise InputError(f"expected classes='exact', 'auto' or a whole number of 3 or more; got {request.classes!r}")
    if request.precision not in (None, "bfloat16"):
        raise InputError(f"expected precision=None or precision='bfloat16'; got {request.precision!r}")
    if chunk is not None and not _whole(chunk, 1):
        raise InputError(f"expected chunk to be a whole number of 1 or more, or None; got {chunk!r}")
    if memory_gb is not None and not memory_gb > 0:
        raise InputError(f"expected memory_gb to be above 0, or None; got {memory_gb!r}")


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
