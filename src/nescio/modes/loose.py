"""What modules hold beside parameters, buffers, submodules and hooks: plain attributes, with the tensors in them.

Networks keep tensors there from one call to the next: a record of the last activations, or something worked out from
the parameters (a table of attention biases), in an attribute or in a dict or list. `Loose` puts them back after each
call of a model that is traced, so that no call sees what another left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor, nn

_FIRST = tuple(nn.Module().__dict__)
"""What most modules hold first."""
_OWN = frozenset({*_FIRST, "_is_full_backward_hook", "_flat_weights", "_flat_weight_refs"})
"""Attributes that have keepers of their own: those of every module, and the weights that recurrent layers list."""

_GONE: Any = object()
"""In the place of an attribute that is not there."""

_DEPTH = 3
"""How deep dicts and lists are looked into."""

_PLAIN = frozenset({bool, int, float, str, type(None), torch.Size, torch.dtype, torch.device})
"""Types that hold nothing: those of most values, and a large model has thousands."""

Kept = tuple[Any, Sequence[tuple[Any, Any]]]
"""A value, and the dicts and lists in it, each with a copy."""


@dataclass(frozen=True)
class Place:
    """An attribute that holds tensors, in all modules of one class."""

    name: str
    modules: tuple[int, ...]


class Loose:
    """The plain attributes of modules, as they were or, after `clear`, without the tensors in some of them."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._held = [module.__dict__ for module in modules]
        self._before: list[dict[str, Kept]] = []
        with_tensors: list[tuple[int, str, list[Tensor]]] = []
        self._skipped = [len(_FIRST) if tuple(islice(held, len(_FIRST))) == _FIRST else 0 for held in self._held]
        for at, (held, skipped) in enumerate(zip(self._held, self._skipped, strict=True)):
            kept: dict[str, Kept] = {}
            for name, value in islice(held.items(), skipped, None):
                if name in _OWN:
                    continue
                kind = type(value)
                if kind in _PLAIN or (kind is tuple and _PLAIN.issuperset(map(type, value))):
                    kept[name] = value, ()
                    continue
                if kind is list and _PLAIN.issuperset(map(type, value)):  # every convolution has one
                    kept[name] = value, ((value, value.copy()),)
                    continue
                kept[name] = value, [(container, container.copy()) for container in _containers(value)]
                if tensors := list(_tensors(value)):
                    with_tensors.append((at, name, tensors))
            self._before.append(kept)
        self._base = self._before
        holding = [any(inside for _, inside in kept.values()) for kept in self._before]
        self._nested = [at for at, inside in enumerate(holding) if inside]
        parts = zip(self._held, self._skipped, holding, strict=True)
        self._flat = [(held, skipped) for held, skipped, inside in parts if not inside]
        """What the modules hold that have no dict or list among it, and `_numbers` of it."""
        self._numbers = _numbers(self._flat)
        self._paused = False
        self.looked_at: set[int] = set()
        """Numbers of modules that were looked at, in which nothing changes while they are traced."""
        own = {id(t) for m in modules for t in (*m._parameters.values(), *m._buffers.values())} if with_tensors else ()
        places: dict[tuple[type, str], list[int]] = {}
        self.tensors: list[Tensor] = []
        for at, name, tensors in with_tensors:
            if loose := [t for t in tensors if id(t) not in own]:
                self.tensors += loose
                if any(t.is_floating_point() for t in loose):
                    places.setdefault((type(modules[at]), name), []).append(at)
        self.places = [Place(name, tuple(at)) for (_, name), at in places.items()]
        """Where there are floating-point tensors."""

    def restore(self, start: bool = False) -> None:
        """Put everything back if a tensor came, went or was replaced; with ``start`` as it was in the beginning.

        All attributes are put back, because some may describe the tensors in others. If no tensor is among the changes,
        nothing is put back: a network may count its calls.
        """
        wanted = self._before if start else self._base
        if self._paused:
            return
        same = wanted is self._before and self._numbers == _numbers(self._flat)
        looked = self._nested if same else range(len(wanted))
        if any(_touched(self._held[at], wanted[at]) for at in looked):
            for held, kept in zip(self._held, wanted, strict=True):
                _put(held, kept)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Put nothing back inside of the block."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def clear(self, places: Sequence[Place], remove: bool = False) -> None:
        """Remove the tensors in these places from now on: None stands there, or with ``remove`` no attribute."""
        self._settle(places, lambda kept: _cleared(kept, remove))

    def refill(self, places: Sequence[Place]) -> None:
        """Undo `clear`."""
        self._settle(places, lambda kept: kept)

    def _settle(self, places: Sequence[Place], change: Callable[[Kept], Kept]) -> None:
        base = [dict(kept) for kept in self._base]
        for place in places:
            for at in place.modules:
                base[at][place.name] = change(self._before[at][place.name])
        self._base = base
        for held, kept in zip(self._held, base, strict=True):
            _put(held, kept)

    def filled(self, place: Place) -> bool:
        """Whether there are tensors in this place now."""
        return any(_holds(self._held[at].get(place.name)) for at in place.modules)


_loose: ContextVar[Loose | None] = ContextVar("loose", default=None)


def current() -> Loose | None:
    """Return the plain attributes of the model that is traced.

    Returns:
        The attributes; None outside of `tracing`.

    Examples:
        >>> current() is None
        True
    """
    return _loose.get()


@contextmanager
def forgetting(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Let `current` know the modules' plain attributes inside of the block, and put them back at its end."""
    loose = Loose(modules)
    token = _loose.set(loose)
    try:
        yield
    finally:
        _loose.reset(token)
        loose.restore(start=True)


def _containers(value: object, depth: int = _DEPTH) -> Iterator[Any]:
    if isinstance(value, dict | list):
        yield value
    if depth and isinstance(value, dict | list | tuple):
        for held in value.values() if isinstance(value, dict) else value:
            yield from _containers(held, depth - 1)


def _tensors(value: object, depth: int = _DEPTH) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, dict | list | tuple):
        for held in value.values() if isinstance(value, dict) else value:
            yield from _tensors(held, depth - 1)


def _holds(value: object) -> bool:
    return next(_tensors(value), None) is not None


def _same(now: Any, then: Any) -> bool:
    """Whether a dict or a list holds the objects that it held."""
    if isinstance(now, dict):
        return now.keys() == then.keys() and all(now[key] is held for key, held in then.items())
    return len(now) == len(then) and all(a is b for a, b in zip(now, then, strict=True))


def _numbers(held: Sequence[tuple[dict[str, Any], int]]) -> tuple[list[str], list[int]]:
    """The names of all that modules hold, and the numbers of what is not skipped: if they are the same, nothing of that
    came, went or was replaced.
    """
    values = [islice(d.values(), skipped, None) for d, skipped in held]
    return list(chain.from_iterable([d for d, _ in held])), list(map(id, chain.from_iterable(values)))


def _touched(held: dict[str, Any], kept: dict[str, Kept]) -> bool:
    """Whether a tensor is among what changed."""
    for name, (value, inside) in kept.items():
        now = held.get(name, _GONE)
        if now is value and not inside:
            continue
        changed = [copy for container, copy in inside if not _same(container, copy)]
        if (now is not value or changed) and (_holds(now) or _holds(value) or _holds(changed)):
            return True
    return any(_holds(held[name]) for name in held.keys() - kept.keys() - _OWN)


def _put(held: dict[str, Any], kept: dict[str, Kept]) -> None:
    for name in held.keys() - kept.keys() - _OWN:
        del held[name]
    for name, (value, inside) in kept.items():
        if value is _GONE:
            held.pop(name, None)
        elif held.get(name, _GONE) is not value:
            held[name] = value
        for container, copy in inside:
            if not _same(container, copy):
                container.clear()
                (container.update if isinstance(container, dict) else container.extend)(copy)


def _cleared(kept: Kept, remove: bool) -> Kept:
    """A dict without its entries that hold tensors, an empty list, or None, or nothing, in the place of a tensor."""
    value, inside = kept
    if isinstance(value, dict):
        return value, [(value, {key: held for key, held in inside[0][1].items() if not _holds(held)})]
    return (value, [(value, [])]) if isinstance(value, list) else (_GONE if remove else None, [])
