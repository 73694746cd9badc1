"""Norms of classes and layers that are not computed, estimated from those that are.

The squared norms ``n²[c, l]`` of one input are a table of classes × layers. Computed are the columns of the last
layers, from ``top`` on, for every class, which cost little, and some rows further down, to ``floor``: those of the
classes with the largest weight ``√p_c n²[c, top:]``. Where there are more classes than are paid for, rows are those of
the likeliest and of others, drawn in proportion to their weight. They come in levels then, many down to where a row has
cost an eighth, fewer through all layers; their number does not grow with that of the classes.

The rest is completed. What layers have relative to those behind them is nearly the same for every class: in the layers
of a level ``n²[c, l] = ρ_l m_c`` with m_c what the layers of the level before (for the first: the last layers) have,
computed or completed themselves, and ρ_l the ratio of the two means over the rows that the level has drawn, so that
the weighted sum over classes is estimated with hardly any bias. How much drawn rows differ from each other is the
standard error that is handed on. Of a few heavy rows it is handed on with caution: twice how much they differ, and at
least half of what was completed; rows of fewer copies may be off by as much as their last layers are; and layers below
``floor``, which count as zero, may have what the layers next to them have. None of it is a bound: `norms` compares with
exact values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.trace.backward import cotangents
from nescio.trace.probe.graph import Graph
from nescio.trace.probe.layers import Layers
from nescio.trace.probe.passes import Pass

AUTO = 40
"""Classes whose work ``classes="auto"`` does; up to as many are all computed."""
HEAVY = 3
"""Classes whose rows go down to the floor where every class has the columns that count."""
DOUBT = 0.5
"""The part of what is completed from heavy rows that counts as its error at least."""
LEFT_OUT = 1e-4
"""Layers below the floor have this part of the tolerance of all weight: their squares may be so much larger."""
TENFOLD = math.log(10)

WORTH = 0.75
"""Layers are estimated where that takes no more than this part of the work on all of them."""
NEAR = 8
"""Rows of the first of two levels end where they have cost this part of what those to the floor do."""
MOVED = 256
"""Multiplications that take as long as one number of an operation's output, which is moved several times."""


@dataclass(frozen=True)
class Level:
    """Rows that are computed from layer ``floor`` on: ``heavy`` classes, and ``drawn`` ones of the others."""

    floor: int
    heavy: int
    drawn: int

    @property
    def rows(self) -> int:
        """All of them."""
        return self.heavy + self.drawn


@dataclass(frozen=True)
class Cut:
    """Every class from layer ``top`` on, and rows that go deeper, from level to level fewer.

    ``decay`` is that of the layers' weights.
    """

    top: int
    levels: tuple[Level, ...]
    decay: float

    @property
    def floor(self) -> int:
        """The first layer that is not left out."""
        return self.levels[-1].floor

    @property
    def drawn(self) -> bool:
        """Whether there are so many classes that rows stand for others."""
        return self.levels[-1].drawn > 0


def plan(
    classes: int, costs: Sequence[float], wanted: int | str, decay: float, tolerance: float, part: float = 1.0
) -> Cut | None:
    """The cut for a model with so many classes and layers that cost so much; None: all is computed.

    ``part`` of the copies of an input take part in the rows that go deeper.
    """
    layers = len(costs)
    budget = wanted if isinstance(wanted, int) else {"exact": classes, "auto": AUTO}[wanted]
    share = [sum(costs[i:]) / sum(costs) for i in range(layers)]  # of a row through all layers
    if budget < classes:  # up to half of the budget for the last layers of every class, the rest for rows
        top = next((i for i in range(layers) if share[i] * classes <= budget / 2), layers)
        top = max(0, min(top, layers - 2))  # the last layer alone tells nothing of the gradient that goes below it
        left = max(budget / 2, budget - share[top] * classes)
        near = next(i for i in range(layers) if share[i] * NEAR <= 1 or i == top)
        if near == top or left < 2 * NEAR:
            return Cut(top, (_level(0, left),), decay)
        return Cut(top, (_level(near, left / 3 / share[near]), _level(0, left / 1.5)), decay)
    top = min(_below(layers, decay, 2 * tolerance), layers - 1)
    if top <= 1:
        return None
    floor, heavy = _below(layers, decay, LEFT_OUT * tolerance), min(HEAVY, classes)
    paid = share[top] * classes + part * share[floor] * heavy
    return Cut(top, (Level(floor, heavy, 0),), decay) if paid <= WORTH * classes else None


def _level(floor: int, rows: float) -> Level:
    count = max(3, round(rows))
    return Level(floor, count // 3, count - count // 3)


def _below(layers: int, decay: float, share: float) -> int:
    """How many of the first layers have no more than this share of all weight ``exp(decay·l)`` together."""
    if decay <= 0 or share <= 0:
        return 0
    least = math.exp(-decay * layers)
    return max(0, layers - math.ceil(-math.log(min(1.0, share * (1 - least) + least)) / decay))


def costs(graph: Graph, table: Layers) -> tuple[float, ...]:
    """What it takes to come from the next layer to each layer and its norm, in multiplications, roughly.

    A gradient is pulled back through the next layer's weights, which are used at so many positions; and what comes out
    is moved.
    """

    def products(name: str) -> float:
        total = 0.0
        for use in graph.uses.get(name, ()):
            out = _output(graph, use.node)
            if len(use.shape) > 1 and len(out) > 1:
                total += math.prod(use.shape) * math.prod(out) / max(1, out[1] if len(use.shape) > 2 else out[-1])
        return total

    def moved(members: Sequence[str]) -> float:
        nodes = {use.node for name in members for use in graph.uses.get(name, ())}
        return float(sum(math.prod(_output(graph, node)) for node in nodes))

    through = [sum(products(name) for name in members) for members in (*table.members[1:], ())]
    return tuple(1.0 + one + MOVED * moved(members) for one, members in zip(through, table.members, strict=True))


def _output(graph: Graph, node: int) -> tuple[int, ...]:
    return tuple(graph.nodes[node]._input_metadata[0].shape)


def complete(
    base: Pass,
    copies: int,
    smoothing: cotangents.Smoothing,
    p: Tensor,
    table: Layers,
    cut: Cut,
    last: Tensor,
    same: bool,
    norms: Callable[[int, int | None, cotangents.Cotangents], Tensor],
) -> tuple[Tensor, Tensor]:
    """Norms [C, N, L] of every class and layer and their standard errors.

    ``last`` [C, N, L − top] are those of the last layers, ``base`` the pass with these ``copies`` that rows are taken
    from (``same``: the last layers' too), ``p`` the inputs' probabilities, and ``norms`` gives the norms [K, N, ·] of
    some layers for cotangents on that pass.
    """
    top = cut.top
    weights = (cut.decay * torch.arange(1 - len(table.names), 1, device=p.device, dtype=torch.float64)).exp()
    values = torch.cat([p.new_zeros((*last.shape[:2], top)), last], 2)
    spread = torch.zeros_like(values)
    if cut.floor == top:
        return values, spread
    kernel = weights[top:].clone()
    if cut.drawn:
        # classes differ in the gradient that goes below the last layer, not in that layer's own; `kernel[-1] = 0` would
        # copy a number from the host, which a CUDA graph cannot record
        kernel[-1:].zero_()
    above = (last.square() * kernel).sum(2)
    share = p.sqrt().T * above
    ranked = (p if cut.drawn else share.T).argsort(dim=1, descending=True, stable=True).T
    known = []
    for level in cut.levels:
        chosen, others = ranked[: level.heavy], ranked[level.heavy :]
        if level.drawn:
            chosen = torch.cat([chosen, others.gather(0, _draw(share.gather(0, others), level.drawn))])
        pulled = cotangents.build("classes", base.z, copies, smoothing, chosen, p)
        rows = norms(level.floor, top if same else None, pulled)
        own = above.gather(0, chosen).clamp(min=1e-300)
        error = torch.zeros_like(own)
        if not same:  # of other copies: taken relative to their own last layers
            split = top - level.floor
            theirs = (rows[:, :, split:].square() * kernel).sum(2).clamp(min=1e-300)
            rows = rows[:, :, :split] * (own / theirs).sqrt().unsqueeze(2)
            error = ((own / theirs).sqrt() - 1).abs()
        known.append(_Known(level, chosen, rows, own, error))
    _fill(values, spread, above, weights, top, known)
    if cut.floor:  # what is left out may have as much as the layers next to it, over which weights grow tenfold
        near = slice(cut.floor, min(top, cut.floor + math.ceil(TENFOLD / cut.decay)))
        spread[:, :, cut.floor - 1] = (
            (values[:, :, near].square() * weights[near]).sum(2) / weights[cut.floor - 1]
        ).sqrt()
    return values, spread


@dataclass(frozen=True)
class _Known:
    """Norms of the rows of a level: ``rows`` [K, N, top − floor] of the classes ``chosen`` [K, N], whose last layers
    have ``own`` [K, N] together; ``error`` [K, N] is relative.
    """

    level: Level
    chosen: Tensor
    rows: Tensor
    own: Tensor
    error: Tensor

    def sums(self, start: int, stop: int, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Of the rows that stand for others, the squares from one layer to another relative to the last layers [K, N,
        ·], and their weighted sum.
        """
        first = self.level.heavy if self.level.drawn else 0
        part = self.rows[first:, :, start - self.level.floor : stop - self.level.floor]
        ratios = part.square() / self.own[first:].unsqueeze(2)
        return ratios, (ratios * weights[start:stop]).sum(2)


def _fill(values: Tensor, spread: Tensor, above: Tensor, weights: Tensor, top: int, known: Sequence[_Known]) -> None:
    """Complete ``values`` and ``spread`` [C, N, L] level by level; ``above`` [C, N] have the last layers together."""
    start = stop = top
    doubt = torch.zeros_like(above[0])
    for i, one in enumerate(known):
        floor, drawn = one.level.floor, one.level.drawn
        ratios, sums = one.sums(floor, stop, weights)
        before = one.sums(stop, start, weights)[1] if i else torch.ones_like(sums)
        means = before.mean(0).clamp(min=1e-300)
        apart = (sums - before * (sums.mean(0) / means)).std(0) / sums.mean(0).clamp(min=1e-300)
        doubt = doubt + (apart.square() / drawn if drawn else (2 * apart).clamp(min=DOUBT).square())
        norms = (above.unsqueeze(2) * (ratios.mean(0) / means.unsqueeze(1))).sqrt()
        error = norms * (doubt.sqrt() / 2).unsqueeze(1)  # of a norm: half of that of its square
        for deep in known[i:]:
            own = deep.rows[:, :, floor - deep.level.floor : stop - deep.level.floor]
            at = deep.chosen.unsqueeze(2).expand_as(own)
            norms, error = norms.scatter(0, at, own), error.scatter(0, at, own * deep.error.unsqueeze(2))
        values[:, :, floor:stop], spread[:, :, floor:stop] = norms, error
        above = (norms.square() * weights[floor:stop]).sum(2)
        start, stop = stop, floor


def _draw(weights: Tensor, count: int) -> Tensor:
    """For every input ``count`` classes [count, N] in proportion to their weights [C, N], at even steps."""
    steps = weights.T.cumsum(1)
    at = (torch.arange(count, device=weights.device, dtype=weights.dtype) + 0.5) / count
    return torch.searchsorted(steps, steps[:, -1:] * at).clamp(max=len(weights) - 1).T
