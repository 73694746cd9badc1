"""``package.module:factory``: what a function of the user makes, and its ``.transform``, where it has one.

The function, or the model that it returns, may carry ``transform`` (or ``preprocess``): a function from a picture of
Pillow to a tensor ``[C, H, W]``, as torchvision's transforms are; and ``classes``, the names of the classes. A
normalisation at the end of a torchvision transform becomes the model's first step.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from nescio.models.classifier import Classifier
from nescio.models.load import folder_importable, imported_factory, load
from nescio.models.sources.base import Opened, Preprocess
from nescio.models.sources.heads import Weights, size
from nescio.models.sources.picture_transform import Transformed


def find(name: str, weights: Weights | None, trust_pickle: bool) -> Opened:
    """What the factory of that name makes."""
    model = load(name, weights, trust_pickle=trust_pickle)
    with folder_importable():
        factory = imported_factory(name)
    inside = model.module if isinstance(model, Classifier) else model
    holders = [holder for holder in (factory, inside) if holder is not None]
    preprocess = None
    for holder in holders:
        keys = ("transform", "preprocess")
        transform = next((v for key in keys if _of_a_picture(v := getattr(holder, key, None))), None)
        if transform is not None and not isinstance(holder, Classifier):
            preprocess = transform if isinstance(transform, Preprocess) else _transform(transform)
            break
    classes = next((v for holder in holders if _are_names(v := getattr(holder, "classes", None))), None)
    what = f", {size(inside)}" if isinstance(inside, nn.Module) else ""
    about = f"{name}{what}" + ("" if weights is None else f", weights of {weights}")
    return Opened(model, about, preprocess, None if classes is None else tuple(classes))


def _of_a_picture(value: object) -> bool:
    """Whether this is a function of a picture; the transform inside of a network for boxes takes lists of tensors."""
    return callable(value) and type(value).__name__ != "GeneralizedRCNNTransform"


def _transform(function: Any) -> Preprocess:
    steps = getattr(function, "transforms", None)
    named = getattr(function, "__name__", type(function).__name__)
    words = named if " at 0x" in str(function) else " ".join(str(function).split())
    if isinstance(steps, list) and steps and type(steps[-1]).__name__ == "Normalize":
        last = steps[-1]
        rest = type(function)(steps[:-1])
        words = ", ".join(" ".join(str(step).split()) for step in steps[:-1])
        mean, std = (tuple(float(one) for one in getattr(last, key)) for key in ("mean", "std"))
        return Transformed(rest, f"the model's own transform: {words}", len(mean), mean=mean, std=std)
    return Transformed(function, f"the model's own transform: {words}")


def _are_names(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)
