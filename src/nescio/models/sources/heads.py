"""An architecture by name, and weights for it that may have been trained for another number of classes.

The number is read from the weights: where they differ from the architecture as it is published in nothing but the
length of its last tensors, the architecture is built with that many classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from nescio.models.weights import fill, read_weights, renamed_to_fit

Weights = str | os.PathLike[str]
RANDOM = "random weights (--weights names others)"


def built(make: Callable[..., nn.Module], weights: Weights | None, trust_pickle: bool) -> nn.Module:
    """What `make()` gives, or `make(num_classes=K)` where the weights have K classes, filled with the weights."""
    if weights is None:
        return make()
    state = read_weights(weights, trust_pickle=trust_pickle)
    with torch.device("meta"), _Unfilled():
        published = make().state_dict()
    classes = _classes(published, renamed_to_fit(state, published))
    model = make() if classes is None else make(num_classes=classes)
    fill(model, state, os.fspath(weights))
    return model


def size(model: nn.Module) -> str:
    """How many parameters it has, in words."""
    count = sum(parameter.numel() for parameter in model.parameters())
    return f"{count / 1e6:.1f} million parameters" if count >= 1e6 else f"{count} parameters"


class _Unfilled(TorchFunctionMode):
    """Draw nothing: shapes are all that is wanted, and on the device of shapes draws load the compiler of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.normal_, Tensor.uniform_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def _classes(published: Mapping[str, Any], given: Mapping[str, Any]) -> int | None:
    """The number of classes of the weights, where it alone differs."""
    other = [
        (tuple(published[name].shape), tuple(value.shape))
        for name, value in given.items()
        if isinstance(value, Tensor) and name in published and published[name].shape != value.shape
    ]
    lengths = {(old[:1], new[:1]) for old, new in other}
    if len(lengths) != 1 or any(old[1:] != new[1:] for old, new in other):
        return None
    return int(other[0][1][0])
