"""What a model was like when a pass was recorded, so that a recording is replayed for that very model only."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.modes import tf32

_PLAIN = {bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.Size}
_HELD = {dict, OrderedDict, set, list, tuple}


class _Print:
    """What a model was like: ``parts`` that are compared, with objects by their number, and the objects that such a
    number stands for, which must be there still.
    """

    __slots__ = ("number", "objects", "parts")

    def __init__(self, parts: Hashable, objects: list[Callable[[], Any]]) -> None:
        self.parts, self.objects, self.number = parts, objects, hash(parts)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Print) or self.number != other.number or self.parts != other.parts:
            return False
        return all(thing() is not None for thing in (*self.objects, *other.objects))


def fingerprint(classifier: Classifier) -> Hashable:
    """Everything that decides which kernels a pass launches, on which addresses."""
    objects: list[Callable[[], Any]] = []
    mark = _Marker(objects)
    modules = [(type(module), mark(vars(module))) for root in classifier.roots for module in root.modules()]
    switches = (
        torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"),
        torch.are_deterministic_algorithms_enabled(), *tf32(), torch.backends.cudnn.enabled,
        classifier.output, classifier.item, mark(classifier.preprocess),
    )  # fmt: skip
    return _Print((*map(mark.one, classifier.roots), *modules, *switches), objects)


class _Marker:
    """Tells a value from another that a model may hold in its place."""

    def __init__(self, objects: list[Callable[[], Any]]) -> None:
        self.objects = objects

    def one(self, thing: Any) -> int:
        """The number of one object."""
        try:
            self.objects.append(weakref.ref(thing))
        except TypeError:  # it cannot be watched: it is kept
            self.objects.append(lambda: thing)
        return id(thing)

    def __call__(self, value: Any, deep: bool = True) -> Hashable:
        """Numbers by value, tensors by address and shape, collections and settings (``deep``) by what they hold,
        anything else by being the same object.
        """
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if isinstance(value, Tensor):
            return value.data_ptr(), value.dtype, value.shape, value.requires_grad
        if isinstance(value, dict):  # numbers and empty collections, most of what a module holds, without a call
            return kind, tuple(
                [
                    (
                        key,
                        type(held),
                        held if type(held) in _PLAIN else None if type(held) in _HELD and not held else self(held),
                    )
                    for key, held in value.items()
                ]
            )
        if isinstance(value, list | tuple):
            return kind, tuple(map(self, value))
        if isinstance(value, set | frozenset):
            return kind, frozenset(map(self, value))
        if isinstance(value, MethodType):
            return self.one(value.__self__), self.one(value.__func__)
        if deep and not isinstance(value, nn.Module | type) and not callable(value) and hasattr(value, "__dict__"):
            return self.one(value), tuple([(key, self(held, deep=False)) for key, held in vars(value).items()])
        return self.one(value)
