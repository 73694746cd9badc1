"""Exact entries of the table: norms of some layers' gradients for some cotangents, from one forward pass.

For each block of cotangents one backward pass goes to the outputs of the operations that use parameters. Rules turn
what comes out into ``Σ|g|^norm`` as soon as all that a parameter needs is there; parameters without a rule take the
general path (`backward.per_input`). Noisy copies of an input stand beside it in the batch and are merged as more
positions of one gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.batch_axis import Layout
from nescio.trace.backward import per_input
from nescio.trace.backward.cotangents import Cotangents, Smoothing
from nescio.trace.backward.pull import NotFolded, visit
from nescio.trace.norms import Form
from nescio.trace.probe.graph import Use
from nescio.trace.probe.layers import Layers
from nescio.trace.probe.parameter_gradients import carried_through, gradient_blocks
from nescio.trace.probe.passes import CHECKPOINTED, Pass


@dataclass(frozen=True)
class Settings:
    """Which norms are taken, of how many copies of an input, and how much of it at a time."""

    rows: tuple[str, ...]
    norm: int
    copies: int
    smoothing: Smoothing
    at_once: int | None = None
    """Cotangents in one backward pass; None: all."""
    parts: int = 1
    """Into how many parts the copies of an input are cut, for want of memory."""

    @property
    def pieces(self) -> list[slice]:
        """The copies of an input, cut into parts."""
        width = -(-self.copies // self.parts)
        return [slice(start, start + width) for start in range(0, self.copies, width)]


PowerSums = dict[str, Tensor]
"""``Σ|g|^norm`` [K, N] of each parameter's gradient g, before the cotangents' scale."""


def pass_norms(
    classifier: Classifier, run: Pass, layers: Layers, settings: Settings, blocks: Iterable[Cotangents]
) -> Tensor:
    """Norms [K, N, L] of the layers' gradients for the cotangents of all blocks."""
    norms = []
    for block in blocks:
        sums = _power_sums(classifier, run, layers.parameters, block, settings)
        norms.append(_norms(layers, sums, block, settings))
    return torch.cat(norms)


def split_norms(
    classifier: Classifier, x: Inputs, layers: Layers, settings: Settings, blocks: Iterable[Cotangents]
) -> Tensor:
    """As `pass_norms`, for one input x whose copies do not fit together: gradients of parts of them are added up."""
    norms = []
    for block in blocks:
        total: dict[str, Tensor] = {}
        for piece in settings.pieces:
            own = per_input.gradients(classifier, inputs.take(x, piece), layers.parameters, block.vectors[:, piece])
            total = {name: total[name] + g if name in total else g for name, g in own.items()}
        sums = {n: (g.reshape(*g.shape[:2], -1).double().abs() ** settings.norm).sum(2) for n, g in total.items()}
        norms.append(_norms(layers, sums, block, settings))
    return torch.cat(norms)


def _norms(layers: Layers, sums: PowerSums, block: Cotangents, settings: Settings) -> Tensor:
    # the scale comes after the root: its square may be too small for a float64
    return layers.gather(sums, settings.norm) * block.scale.unsqueeze(2)


def _power_sums(
    classifier: Classifier, run: Pass, names: Sequence[str], block: Cotangents, settings: Settings
) -> PowerSums:
    reader = _Reader(run, names, settings)
    try:
        visit(run.logits, reader.nodes, run.graph.lowest(reader.nodes), block.vectors, reader.read)
    except CheckpointError:  # what is computed again can be read once, and the rules read it too
        CHECKPOINTED.add(classifier.module)
        return _power_sums(classifier, replace(run, plan=replace(run.plan, fast={})), names, block, settings)
    except NotFolded:
        each = [_power_sums(classifier, run, names, one, settings) for one in block.split(1)]
        return {name: torch.cat([sums[name] for sums in each]) for name in names}
    sums = reader.finish()
    rest = [name for name in names if name in run.graph.uses and name not in sums]
    sums |= per_input.power_sums(
        classifier, run.x, rest, block.vectors, settings.copies, settings.norm, follow=run.plan.follow
    )
    return {name: sums[name] if name in sums else torch.zeros_like(block.scale) for name in names}


class _Reader:
    """Turns output gradients into ``Σ|g|^norm`` of the fast parameters as soon as all that a parameter needs are
    there.
    """

    def __init__(self, run: Pass, names: Sequence[str], settings: Settings) -> None:
        self.run, self.settings = run, settings
        self.layouts = {name: layouts for name in names if (layouts := _layouts(run, name)) is not None}
        self.users: dict[int, list[str]] = {}
        for name in self.layouts:
            for node in {use.node for use in run.graph.uses[name]}:
                self.users.setdefault(node, []).append(name)
        self.nodes = {i: run.graph.nodes[i] for i in sorted(self.users)}
        self.waiting: dict[str, dict[int, Tensor]] = {name: {} for name in self.layouts}
        self.sums: PowerSums = {}
        self.through: dict[str, tuple[list[Use], list[Form]]] = {}
        """For parameters that go `through` a part of the network, the gradients where they come out."""

    def read(self, node: int, delta: Tensor) -> None:
        """Take the gradient at a node's output."""
        shared: dict[int, dict[str, Any]] = {}
        for name in self.users[node]:
            self.waiting[name][node] = delta
            if len(self.waiting[name]) == len({use.node for use in self.run.graph.uses[name]}):
                self._reduce(name, shared)

    def finish(self) -> PowerSums:
        """All sums; a parameter that some cotangents' paths do not reach is worked out from those that came."""
        for name in [n for n, deltas in self.waiting.items() if deltas]:
            self._reduce(name, {})
        for name, (uses, blocks) in self.through.items():
            whole = carried_through(self.run.graph, uses, blocks, self.run.graph.parameters[name])
            self.sums[name] = whole.power(self.settings.norm)
        return self.sums

    def _reduce(self, name: str, shared: dict[int, dict[str, Any]]) -> None:
        deltas = self.waiting.pop(name)
        pairs = zip(self.run.graph.uses[name], self.layouts[name], strict=True)
        reached = [(use, layout) for use, layout in pairs if use.node in deltas]
        uses = [use for use, _ in reached]
        with torch.no_grad(), torch.autocast(self.run.logits.device.type, enabled=False):
            blocks = gradient_blocks(self.run.graph, uses, [layout for _, layout in reached], deltas, shared)
            if blocks is None:
                return
            merged = [block.merge(self.settings.copies) for block in blocks]
            if uses[0].through:
                self.through[name] = uses, merged
                return
            powers = []
            for block in merged:
                powers.append(block.power(self.settings.norm))
            self.sums[name] = powers[0] if len(powers) == 1 else torch.stack(powers).double().sum(0)


def _layouts(run: Pass, name: str) -> list[Layout] | None:
    """The layouts of a fast parameter's uses for this pass; None for a parameter that takes the general path."""
    if name not in run.plan.fast or any(use.moved for use in run.graph.uses[name]):
        return None
    layouts = [Layout(dim, major, len(run.logits)) for dim, major in run.plan.fast[name]]
    shapes = [run.graph.output_shape(use.node) for use in run.graph.uses[name]]
    return layouts if all(layout.fits(shape) for layout, shape in zip(layouts, shapes, strict=True)) else None
