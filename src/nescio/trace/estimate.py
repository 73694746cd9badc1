"""Norms of classes and layers that are not computed, estimated from those that are.

The squared norms ``n²[c, l]`` of one input are a table of classes × layers. Computed are the columns of the last
layers, from ``top`` on, for every class, which cost little, and a few rows down to ``floor``: the heaviest classes and,
where there are many, some of the others, drawn in proportion to their weight ``√p_c n²[c, top:]``. The number of rows
does not grow with that of the classes.

The rest is completed. What a layer has relative to the last ones is nearly the same for every class: ``n[c, l] = ρ_l
n[c, top:]`` with ρ_l the row's own where it was computed and else the mean over the rows drawn, so that the weighted
sum over classes is estimated without bias. Layers below ``floor`` count as zero. How much rows differ from each other
is the standard error that is handed on. It is an estimate, not a bound: `norms` compares with exact values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.trace import cotangents
from nescio.trace.engine import Pass
from nescio.trace.graph import Graph
from nescio.trace.layers import Layers

AUTO = 48
"""Rows that ``classes="auto"`` pays for; with up to as many classes all are computed."""
HEAVY = 2
"""Classes whose rows go down to the floor where every class has the columns that count."""


@dataclass(frozen=True)
class Cut:
    """Every class from layer ``top`` on, and ``heavy`` classes and ``drawn`` ones of the others from ``floor`` on.

    ``decay`` is that of the layers' weights.
    """

    top: int
    floor: int
    heavy: int
    drawn: int
    decay: float

    @property
    def rows(self) -> int:
        """Rows that go deep."""
        return self.heavy + self.drawn


def plan(
    classes: int, costs: Sequence[float], wanted: int | str, decay: float, tolerance: float, level: int = 0
) -> Cut | None:
    """The cut for a model with so many classes and layers that cost so much; None: all is computed.

    A higher ``level`` cuts fewer layers.
    """
    layers = len(costs)
    budget = wanted if isinstance(wanted, int) else {"exact": classes, "auto": AUTO}[wanted]
    floor = min(_below(layers, decay, tolerance / 10 / 4**level), layers - 1)
    if budget < classes:  # up to half of the budget for the last layers of every class, the rest for rows
        share = [sum(costs[i:]) / sum(costs) * classes for i in range(layers)]
        top = next((i for i in range(layers) if share[i] <= budget / 2), layers)
        top = max(0, min(top, layers - 2))  # the last layer alone tells nothing of the gradient that goes below it
        rows = max(3, round(max(budget / 2, budget - share[top])))
        return Cut(top, min(floor, top), rows // 3, rows - rows // 3, decay)
    top = min(_below(layers, decay, 2 * tolerance / 4**level), layers - 1)
    return Cut(top, floor, min(HEAVY, classes), 0, decay) if top > 1 else None


def _below(layers: int, decay: float, share: float) -> int:
    """How many of the first layers have no more than this share of all weight ``exp(decay·l)`` together."""
    if decay <= 0 or share <= 0:
        return 0
    least = math.exp(-decay * layers)
    return max(0, layers - math.ceil(-math.log(min(1.0, share * (1 - least) + least)) / decay))


def costs(graph: Graph, table: Layers) -> tuple[float, ...]:
    """Multiplications that each layer takes for an input, roughly: its weights times the positions they are used at."""

    def cost(name: str) -> float:
        total = 0.0
        for use in graph.uses.get(name, ()):
            out = graph.nodes[use.node]._input_metadata[0].shape
            if len(use.shape) > 1 and len(out) > 1:
                total += math.prod(use.shape) * math.prod(out) / max(1, out[1] if len(use.shape) > 2 else out[-1])
        return total

    return tuple(1.0 + sum(cost(name) for name in members) for members in table.members)


def complete(
    base: Pass,
    copies: int,
    smoothing: cotangents.Smoothing,
    p: Tensor,
    table: Layers,
    cut: Cut,
    last: Tensor,
    same: bool,
    norms: Callable[[Layers, cotangents.Cotangents], Tensor],
) -> tuple[Tensor, Tensor]:
    """Norms [C, N, L] of every class and layer and their standard errors.

    ``last`` [C, N, L − top] are those of the last layers, ``base`` the pass with these ``copies`` that rows are taken
    from (``same``: the last layers' too), ``p`` the inputs' probabilities, and ``norms`` gives the norms [K, N, L] of
    cotangents on that pass.
    """
    classes, n, _ = last.shape
    count, split = len(table.names), cut.top - cut.floor
    weights = (cut.decay * torch.arange(1 - count, 1, device=p.device, dtype=torch.float64)).exp()
    values = torch.cat([p.new_zeros((classes, n, cut.top)), last], 2)
    spread = torch.zeros_like(values)
    if not split:
        return values, spread
    kernel = weights[cut.top :].clone()
    if cut.drawn:
        # classes differ in the gradient that goes below the last layer, not in that layer's own; `kernel[-1] = 0` would
        # copy a number from the host, which a CUDA graph cannot record
        kernel[-1:].zero_()
    above = (last.square() * kernel).sum(2)
    share = p.sqrt().T * above
    chosen = share.topk(min(cut.heavy, classes), 0).indices
    if cut.drawn:
        chosen = torch.cat([chosen, _draw(share.scatter(0, chosen, 0.0), cut.drawn)])
    deep = table.part(cut.floor, cut.top if same else None)
    rows = norms(deep, cotangents.build("classes", base.z, copies, smoothing, chosen, p))
    own = above.gather(0, chosen) if same else (rows[:, :, split:].square() * kernel).sum(2)
    own = own.clamp(min=1e-300)
    ratios = rows[:, :, :split].square() / own.unsqueeze(2)
    sample = ratios[cut.heavy :] if cut.drawn else ratios
    sums = (sample * weights[cut.floor : cut.top]).sum(2)
    doubt = sums.std(0) / sums.mean(0).clamp(min=1e-300) / 2  # of a norm: half of that of its square
    level = above.sqrt().unsqueeze(2) * sample.mean(0).sqrt()
    error = level * (doubt / (len(sample) ** 0.5 if cut.drawn else 1.0)).unsqueeze(1)
    at = chosen.unsqueeze(2).expand(-1, -1, split)
    known = above.gather(0, chosen).sqrt().unsqueeze(2) * ratios.sqrt()
    values[:, :, cut.floor : cut.top] = level.scatter(0, at, known)
    spread[:, :, cut.floor : cut.top] = error.scatter(0, at, 0.0)
    return values, spread


def _draw(weights: Tensor, count: int) -> Tensor:
    """For every input ``count`` classes [count, N] in proportion to their weights [C, N], at even steps."""
    steps = weights.T.cumsum(1)
    at = (torch.arange(count, device=weights.device, dtype=weights.dtype) + 0.5) / count
    return torch.searchsorted(steps, steps[:, -1:] * at).clamp(max=len(weights) - 1).T
