"""Replaying a pass on a GPU: the kernels of a chunk recorded once as a CUDA graph and launched again for the next one.

A small batch spends most of its time in launching kernels one by one. A pass that comes a second time with the same
shapes, settings and state of the model is recorded, and from the third time on replayed. A recording holds addresses of
tensors and the path that the Python code took, so it is found again by a `fingerprint` of the model: its modules, their
attributes and hooks, the addresses of its tensors, and torch's global switches. Weights changed in place are
followed. A pass that needs the host in between (control flow on data, the general path) cannot be recorded and is run
as it is. A recording keeps its memory; the last few are kept, and `clear` lets go of them.

A replay runs no code of the model, so nothing has to be put back after it, unless the recorded kernels themselves write
to the model's buffers or draw random numbers: such a recording is not `pure`.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from nescio.models import Classifier
from nescio.modes import Watch, tf32

Result = tuple[Tensor, dict[str, Tensor]]
"""Logits, and what was computed from them."""

KEPT = 4
"""Recordings that are kept at most."""
_PLAIN = {bool, int, float, str, bytes, type(None), torch.dtype, torch.device, torch.Size}
_HELD = {dict, OrderedDict, set, list, tuple}
_seen: OrderedDict[Hashable, int] = OrderedDict()
_recordings: OrderedDict[Hashable, _Recording | None] = OrderedDict()


@dataclass(frozen=True)
class _Recording:
    graph: Any
    x: Tensor
    result: Result
    pure: bool = False
    """Whether the kernels leave the model and the random generators alone."""


def clear() -> None:
    """Let go of all recordings and their memory."""
    _seen.clear()
    _recordings.clear()


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


def run(
    key: Hashable, x: Tensor, work: Callable[[Tensor, bool], Result], classifier: Classifier, enter: Callable[[], None]
) -> Result:
    """``work(x, True)``, recorded or replayed where that can be done; ``work(x, False)`` must do without the host.

    The first time the work is done as it is; the second time it is recorded too. ``enter`` is called before a replay
    that changes the classifier (`modes.lazily`); the work itself has to see to that.
    """
    recording = _recordings.get(key)
    if recording is not None:
        _recordings.move_to_end(key)
        if not recording.pure:
            enter()
        recording.x.copy_(x)
        recording.graph.replay()
        logits, found = recording.result
        if bool(logits.isfinite().all()):
            return logits.clone(), {name: t.clone() for name, t in found.items()}
        return work(x, True)  # says what is wrong
    watch = Watch(classifier) if key in _seen and key not in _recordings else None
    result = work(x, True)
    if key not in _recordings:
        _seen[key] = _seen.pop(key, 0) + 1
        if watch is not None:
            made = _record(x, work)
            _recordings[key] = made and replace(made, pure=not watch.changed())
        while len(_recordings) > KEPT:
            _recordings.popitem(last=False)
        while len(_seen) > 256:
            _seen.popitem(last=False)
    return result


def _record(x: Tensor, work: Callable[[Tensor, bool], Result]) -> _Recording | None:
    static = x.clone()
    graph = torch.cuda.CUDAGraph()
    try:
        side = torch.cuda.Stream(x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side):  # libraries set themselves up on a stream before they can be recorded there
            work(static, False)
        torch.cuda.current_stream(x.device).wait_stream(side)
        with torch.cuda.graph(graph):
            result = work(static, False)
    except (RuntimeError, NotImplementedError):  # it needs the host in between, or memory: it stays as it is
        torch.cuda.synchronize(x.device)
        return None
    return _Recording(graph, static, result)


def can_replay(classifier: Classifier, x: Any) -> bool:
    """Whether a pass on this input may be recorded at all."""
    return isinstance(x, torch.Tensor) and x.is_cuda and isinstance(classifier.module, nn.Module)
