"""Tensors that a network worked out from its parameters and kept: they are worked out anew while it is traced.

A table of attention biases that an ordinary prediction left in an attribute (or in a dict or list) has no gradient,
and its parameters would seem to have no influence. Which tensors are of that kind is found by trying: without them the
network runs, fills the same places again and gives the same logits. What it cannot do without is its own, and stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from nescio import modes
from nescio.models import Classifier
from nescio.modes.loose import Loose, Place
from nescio.types import ModelError

SAME = {torch.float64: 1e-9, torch.float32: 1e-5}
"""How far logits may be apart that are worked out in the same way from the same numbers, relative to the largest."""


def forget(classifier: Classifier, x: Any) -> None:
    """While the classifier is traced, have it work out anew what it has kept; ``x``: some inputs to try it on."""
    loose = modes.current()
    if loose is None or not loose.places:
        return
    places, loose.places = loose.places, []
    with torch.no_grad():
        try:
            wanted = classifier.functional({}, x)
        except Exception:  # the call that comes next says what is wrong
            return
        _try(classifier, x, wanted, loose, places)


def _try(classifier: Classifier, x: Any, wanted: Tensor, loose: Loose, places: Sequence[Place]) -> None:
    """Clear those of the places that can do without what is in them: all, or else one half and then the other."""
    stale = ""
    for remove in (False, True):
        loose.clear(places, remove)
        try:
            with loose.paused():
                found = classifier.functional({}, x)
                filled = [place for place in places if loose.filled(place)]
        except Exception:  # whatever a network raises that misses something
            continue
        finally:
            loose.refill(places)
        if _same(found, wanted):
            loose.clear(filled, remove)
            return
        stale = filled[0].name if filled else stale
    if len(places) > 1:
        half = len(places) // 2
        _try(classifier, x, wanted, loose, places[:half])
        _try(classifier, x, wanted, loose, places[half:])
    elif stale:
        raise ModelError(
            f"expected logits that follow from the parameters and the input, but {classifier.name} keeps a tensor "
            f"from an earlier call in its attribute {stale!r}, and without it the logits are others: it is left from "
            "other parameters or other inputs; clear it first (many models do so in model.train(), then model.eval())"
        )


def _same(found: Tensor, wanted: Tensor) -> bool:
    a, b = found.double(), wanted.double()
    return a.shape == b.shape and bool(((a - b).abs() <= SAME.get(wanted.dtype, 1e-2) * b.abs().max()).all())
