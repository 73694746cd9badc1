"""Layers: which parameters form one, what it is called, and where it stands in the forward pass.

A layer is a module's own parameters (``"module"``) or a single parameter tensor (``"tensor"``). Layers stand in the
order in which the forward pass first uses them; one that is not used stands behind its predecessor in the module
tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from nescio.trace.probe.graph import Graph
from nescio.trace.probe.reach import Reach
from nescio.types import InputError

ROOT = "(root)"


@dataclass(frozen=True)
class Layers:
    """Names in forward order and, for each, the names of its parameters."""

    names: tuple[str, ...]
    members: tuple[tuple[str, ...], ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """All parameters of all layers."""
        return tuple(p for member in self.members for p in member)

    def part(self, start: int, stop: int | None = None) -> Layers:
        """Some of the layers."""
        return Layers(self.names[start:stop], self.members[start:stop])

    def gather(self, powers: Mapping[str, Tensor], norm: int) -> Tensor:
        """Norms of layers [.., L] in float64 from ``Σ|g|^norm`` of parameters [..]."""
        most = max(map(len, self.members))
        if most * len(self.members) > 8 * len(self.parameters):  # one layer has many more than the others
            sums = [torch.stack([powers[p] for p in member]).double().sum(0) for member in self.members]
            total = torch.stack(sums, -1)
        else:  # few operations for many layers: their first parameters, their second ones, ...
            none = torch.zeros_like(powers[self.members[0][0]])
            parts = [powers[member[i]] if i < len(member) else none for i in range(most) for member in self.members]
            ranks = torch.stack(parts).double().unflatten(0, (most, -1))
            total = (ranks[0] if most == 1 else ranks.sum(0)).movedim(0, -1)
        return total.sqrt() if norm == 2 else total


def patterns(names: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """One name or pattern, or several, as a tuple; None stays None."""
    return (names,) if isinstance(names, str) else None if names is None else tuple(names)


def find_layers(
    graph: Graph | Reach,
    parameters: Iterable[str],
    mode: str,
    select: Iterable[str] | None,
    exclude: Iterable[str] | None = None,
) -> Layers:
    """Group parameters (in the order of the module tree) into layers, in forward order, and keep the selected ones that
    are not excluded.
    """
    if mode not in ("module", "tensor"):
        raise InputError(f"expected layers='module' or layers='tensor'; got {mode!r}")
    groups: dict[str, list[str]] = {}
    order: dict[str, int] = {}
    last = -1
    for parameter in parameters:
        name = parameter if mode == "tensor" else (parameter.rpartition(".")[0] or ROOT)
        last = graph.order(parameter) if parameter in graph.uses else last
        groups.setdefault(name, []).append(parameter)
        order[name] = min(order.get(name, last), last)
    names = sorted(groups, key=order.__getitem__)
    kept = names
    if select is not None:
        kept = _matching(names, "select", select)
        if not kept:
            raise InputError("expected at least one layer in select; got none (leave select out to take every layer)")
    if exclude is not None:
        out = _matching(names, "exclude", exclude)
        kept = [n for n in kept if n not in out]
        if not kept:
            raise InputError("expected at least one layer that is not in exclude; got none (leave some of it out)")
    return Layers(tuple(kept), tuple(tuple(groups[n]) for n in kept))


def _matching(names: Sequence[str], what: str, given: Iterable[str]) -> list[str]:
    """The names that match one of the patterns, each of which must match a name."""
    chosen = patterns(given) or ()
    for pattern in chosen:
        if not any(fnmatchcase(n, pattern) for n in names):
            raise InputError(f"{what}={pattern!r} matches no layer; the layers are: {', '.join(names)}")
    return [n for n in names if any(fnmatchcase(n, pattern) for pattern in chosen)]
