"""Tensors that a network computed from its parameters and kept: they are computed anew while it is traced.

An ordinary prediction may leave a table of attention biases in an attribute (or in a dict or list). That table has no
gradient, so its parameters would seem to have no influence. Such tensors are found by trying: without them the network
runs, fills the same places again and gives the same logits. A tensor that it cannot do without is its own, and stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nescio import modes
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes.loose import Loose, Place
from nescio.types import ModelError

SAME = {torch.float64: 1e-9, torch.float32: 1e-5}
"""How far logits may be apart that are worked out in the same way from the same numbers, relative to the largest."""


def forget(classifier: Classifier, x: Inputs) -> None:
    """While the classifier is traced, let it compute anew what it has kept; ``x``: a few inputs to try it on."""
    loose = modes.current()
    if loose is None or not loose.places:
        return
    places, loose.places = loose.places, []
    with torch.no_grad():
        try:
            logits = classifier.functional({}, x)
        except Exception:  # the call that comes next says what is wrong
            return
        _clear(classifier, x, logits, loose, places)


def _clear(classifier: Classifier, x: Inputs, logits: Tensor, loose: Loose, places: Sequence[Place]) -> None:
    """Clear those of the places that can do without what is in them: all, or else one half and then the other."""
    stale = ""
    for remove in (False, True):
        loose.clear(places, remove)
        try:
            with loose.paused():
                anew = classifier.functional({}, x)
                filled = [place for place in places if loose.filled(place)]
        except Exception:  # whatever a network raises that misses something
            continue
        finally:
            loose.refill(places)
        if _same(anew, logits):
            loose.clear(filled, remove)
            return
        stale = filled[0].name if filled else stale
    if len(places) > 1:
        half = len(places) // 2
        _clear(classifier, x, logits, loose, places[:half])
        _clear(classifier, x, logits, loose, places[half:])
    elif stale:
        raise ModelError(
            f"expected logits that follow from the parameters and the input, but {classifier.name} keeps a tensor "
            f"from an earlier call in its attribute {stale!r}, and without it the logits are others: it is left from "
            "other parameters or other inputs; clear it first (many models do so in model.train(), then model.eval())"
        )


def _same(anew: Tensor, logits: Tensor) -> bool:
    a, b = anew.double(), logits.double()
    return a.shape == b.shape and bool(((a - b).abs() <= SAME.get(logits.dtype, 1e-2) * b.abs().max()).all())
