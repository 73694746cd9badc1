"""What a model was like when a pass was recorded, so that a recording's results count for that very model only.

`fingerprint` looks at all of a model. `lasts` only says whether what a recording reads is where it was: then it can be
replayed without harm, and the model be looked at while the GPU works.

A network has hundreds of modules with thousands of attributes, and is looked at in each call. So what most of them hold
(numbers, and the dicts of parameters, buffers and submodules) is gathered in a few passes over all modules together.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, islice
from operator import itemgetter
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.modes import tf32
from nescio.modes.state import modules_of

_PLAIN = {bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.Size}
_HELD = {dict, OrderedDict, set, list, tuple}
_DICTS = ("_parameters", "_buffers", "_modules")
_EVERY = tuple(vars(nn.Module()))
"""What every module holds first."""
_FIRST = len(_EVERY)
_STATE_NAMES = ("training", *(name for name in _EVERY if name not in (*_DICTS, "training")))
_STATE = itemgetter(*_STATE_NAMES)


class _Print:
    """What a model was like: ``parts`` that are compared, with objects by their number, and the objects that such a
    number stands for, which must be there still. ``number`` is made of some of the parts. ``addresses``: the tensors
    among what was seen, and where they were.
    """

    __slots__ = ("addresses", "number", "objects", "parts")

    def __init__(self, number: int, parts: Hashable, mark: _Marker) -> None:
        self.number, self.parts, self.objects, self.addresses = number, parts, mark.objects, mark.addresses

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
    mark = _Marker()
    modules = modules_of(classifier)
    held = [vars(module) for module in modules]
    names, values, dicts = _gathered(held)
    of_modules = [[d[name] for d in dicts] for name in _DICTS]
    tensors = tuple([mark(t) for named in of_modules[:2] for t in chain.from_iterable(map(dict.values, named))])
    structure = tuple([(tuple(chain.from_iterable(named)), tuple(map(len, named))) for named in of_modules])
    kinds = tuple(map(type, values))
    plain = tuple([value for value in values if type(value) in _PLAIN])
    rest = tuple([mark(v) for v in values if type(v) not in _PLAIN and (type(v) not in _HELD or v)])
    switches = _switches(classifier, mark)
    numbers = (*map(mark.one, classifier.roots), *map(mark.one, modules))
    parts = numbers, tuple(map(type, modules)), tensors, structure, tuple(names), kinds, plain, rest, switches
    return _Print(hash((numbers, tensors, switches)), parts, mark)


def lasts(found: Any, classifier: Classifier) -> bool:
    """Whether all that a fingerprint was made of is there still, in the same memory, and torch's switches stand as they
    did. The model may be another all the same.
    """
    if found.parts[-1] != _switches(classifier, _Marker()) or any(thing() is None for thing in found.objects):
        return False
    held = [(tensor(), address) for tensor, address in found.addresses]
    return all(tensor is not None and tensor.data_ptr() == address for tensor, address in held)


def _switches(classifier: Classifier, mark: _Marker) -> tuple[Hashable, ...]:
    """What decides beside the modules: torch's global switches, and the classifier's own settings."""
    return (
        torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"),
        torch.are_deterministic_algorithms_enabled(), *tf32(), torch.backends.cudnn.enabled,
        classifier.output, classifier.item, mark(classifier.preprocess),
    )  # fmt: skip


def _gathered(held: Sequence[dict[str, Any]]) -> tuple[list[Hashable], list[Any], list[dict[str, Any]]]:
    """Names and values of the attributes, module after module, and those modules' dicts that have parameters, buffers
    and submodules left aside, as well as hooks where there is none.

    Every module holds the same attributes first; one that does not is taken as a whole.
    """
    names: list[Hashable] = []
    values: list[Any] = []
    ordinary: list[dict[str, Any]] = []
    for d in held:
        own = tuple(d)
        if own[:_FIRST] != _EVERY:
            names.append(own)
            values += d.values()
            continue
        ordinary.append(d)
        training, *hooks = _STATE(d)
        names.append((training, own[_FIRST:]))
        values += islice(d.values(), _FIRST, None)
        if any(hooks):
            names.append(_STATE_NAMES)
            values += hooks
    return names, values, ordinary


class _Marker:
    """Tells a value from another that a model may hold in its place."""

    def __init__(self) -> None:
        self.objects: list[Callable[[], Any]] = []
        self.addresses: list[tuple[Callable[[], Any], int]] = []

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
            self.addresses.append((weakref.ref(value), address := value.data_ptr()))
            return address, value.dtype, value.shape, value.requires_grad
        if isinstance(value, dict):
            return kind, tuple([(key, self(held)) for key, held in value.items()])
        if isinstance(value, list | tuple):
            kinds = tuple(map(type, value))
            return kind, kinds, tuple(value) if _PLAIN.issuperset(kinds) else tuple(map(self, value))
        if isinstance(value, set | frozenset):
            return kind, frozenset(map(self, value))
        if isinstance(value, MethodType):
            return self.one(value.__self__), self.one(value.__func__)
        if deep and not isinstance(value, nn.Module | type) and not callable(value) and hasattr(value, "__dict__"):
            return self.one(value), tuple([(key, self(held, deep=False)) for key, held in vars(value).items()])
        return self.one(value)
