"""Entries of the table of classes × layers that are not computed, completed from those that are (`cut`).

What layers have relative to those behind them is nearly the same for every class: in the layers
of a level ``n²[c, l] = ρ_l m_c`` with m_c what the layers of the level before (for the first: the last layers) have,
computed or completed themselves, and ρ_l the ratio of the two means over the rows that the level has drawn, so that
the weighted sum over classes is estimated with hardly any bias. Below a head in closed form (`probe.linear_head`) ρ_l
is not quite the same for every class: it is a line in how the gradient that the head sends down lies to the features,
fitted to the drawn rows by least squares. How much drawn rows differ from each other is the
standard error that is handed on. Of a few heavy rows it is handed on with caution: twice how much they differ, and at
least half of what was completed; rows of fewer copies may be off by as much as their last layers are, or, where they
are dealt to groups of copies, by as much as groups differ in the likeliest class; and layers below ``floor``, which
count as zero, may have what the layers next to them have. None of it is a bound:
`error_check` compares with exact values.

With g_k the gradient of a group of copies and ḡ that of all, ``mean_k ‖g_k‖² = ‖ḡ‖² + mean_k ‖g_k − ḡ‖²``: groups lie
too high, and nearly by the same factor for all classes. Of the likeliest class both sides are computed, and every
other row is divided by that factor. What groups differ in adds up to nothing beside it, over rows dealt to them evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.trace.backward import cotangents
from nescio.trace.estimate.cut import Cut, Level
from nescio.trace.probe.layers import Layers

DOUBT = 0.5
"""The part of what is completed from heavy rows that counts as its error at least."""
TENFOLD = math.log(10)
FITTED = 8
"""Different classes among the drawn rows that a line is fitted to at least."""
BEYOND = 0.5
"""How far lines go on beyond the rows that they are fitted to, in parts of what lies between those."""
SAME = 1e-9
"""What classes differ in by less than this part of it does not bend the line."""


def complete(
    logits: Tensor,
    copies: int,
    smoothing: cotangents.Smoothing,
    p: Tensor,
    table: Layers,
    cut: Cut,
    last: Tensor,
    same: bool,
    norms: Callable[[int, int | None, cotangents.Cotangents], Tensor],
    above: Tensor | None = None,
    lying: Tensor | None = None,
    parts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Norms [C, N, L] of every class and layer, and their standard errors.

    Args:
        logits: those [N·copies, C] of the pass that rows are taken from.
        copies: of each input, in that pass.
        smoothing: as `cotangents.build` takes it.
        p: the inputs' probabilities [N, C].
        table: the layers.
        cut: which entries are computed.
        last: the norms [C, N, L − top] of the last layers.
        same: whether ``last`` comes from the same pass as the rows.
        norms: gives the norms [K, N, ·] from one layer to another for cotangents on that pass.
        above: squared norms [C, N] of what goes down from the last layers, where they are known; None: that is
            estimated from ``last``.
        lying: numbers [M, C, N] that what layers have relative to ``above`` depends on; None: none are known.
        parts: squared norms [C, N·groups] as ``above``, of groups of copies that rows are dealt to, each to one; then
            ``copies`` are those of a group. None: rows are of all copies in the pass.

    Returns:
        Norms and standard errors, both [C, N, L].
    """
    top = cut.top
    weights = (cut.decay * torch.arange(1 - len(table.names), 1, device=p.device, dtype=torch.float64)).exp()
    values = torch.cat([p.new_zeros((*last.shape[:2], top)), last], 2)
    spread = torch.zeros_like(values)
    if cut.floor == top:
        return values, spread
    kernel = weights[top:].clone()
    if cut.drawn and above is None:
        # classes differ in the gradient that goes below the last layer, not in that layer's own; `kernel[-1] = 0` would
        # copy a number from the host, which a CUDA graph cannot record
        kernel[-1:].zero_()
    if above is None:
        above = (last.square() * kernel).sum(2)
    share = p.sqrt().T * above
    ranked = (p if cut.drawn else share.T).argsort(dim=1, descending=True, stable=True).T
    known, between = [], torch.zeros_like(above[0])
    for level in cut.levels:
        again = cut.groups - 1 if level is cut.levels[0] else 0  # the likeliest class in every group
        heavy = level.heavy - again
        chosen, others = torch.cat([ranked[:1].expand(again, -1), ranked[:heavy]]), ranked[heavy:]
        if level.drawn:
            chosen = torch.cat([chosen, others.gather(0, _draw(share.gather(0, others), level.drawn))])
        dealt = chosen if parts is None else _deal(chosen, cut.groups)
        chosen_rows = cotangents.build("classes", logits, copies, smoothing, dealt, p)
        rows = norms(level.floor, top if same else None, chosen_rows)
        own = above.gather(0, chosen).clamp(min=1e-300)
        error = torch.zeros_like(own)
        if parts is not None:  # taken relative to what goes down in their own copies
            theirs = parts.gather(0, dealt).clamp(min=1e-300)
            rows, theirs = _collect(rows, len(p)), _collect(theirs, len(p))
            rows = rows * (own / theirs).sqrt().unsqueeze(2)
            if again:
                sums = (rows[: again + 1].square() * weights[level.floor : top]).sum(2)
                between = sums.std(0) / sums.mean(0).clamp(min=1e-300)
                likeliest = cotangents.build("classes", logits, copies * cut.groups, smoothing, ranked[:1], p)
                whole = norms(level.floor, top if same else None, likeliest)[0].square()
                higher = _higher(rows[: again + 1].square().mean(0), whole, weights[level.floor : top], level.floor)
            rows = rows / higher[:, level.floor :].sqrt()
            error = (error + between / 2) * (chosen != ranked[:1] if again else 1)
            rows = _same_classes(rows, chosen)
        elif not same:  # of other copies: taken relative to their own last layers
            split = top - level.floor
            theirs = (rows[:, :, split:].square() * kernel).sum(2).clamp(min=1e-300)
            rows = rows[:, :, :split] * (own / theirs).sqrt().unsqueeze(2)
            error = ((own / theirs).sqrt() - 1).abs()
        known.append(_Known(level, chosen, rows, own, error))
    _fill(values, spread, above, lying, weights, top, known)
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


def _fill(
    values: Tensor,
    spread: Tensor,
    above: Tensor,
    lying: Tensor | None,
    weights: Tensor,
    top: int,
    known: Sequence[_Known],
) -> None:
    """Complete ``values`` and ``spread`` [C, N, L] level by level; ``above`` [C, N] have the last layers together."""
    start = stop = top
    doubt, off = torch.zeros_like(above[0]), torch.zeros_like(above)
    for i, one in enumerate(known):
        floor, drawn = one.level.floor, one.level.drawn
        ratios, sums = one.sums(floor, stop, weights)
        if lying is not None and i == 0 and drawn >= FITTED:
            rows = one.chosen[one.level.heavy :]
            different = (rows[1:] != rows[:-1]).sum(0) + 1  # a class that is drawn again stands beside itself
            enough = different >= FITTED
            relative, left = _line(ratios, lying.gather(1, rows.expand(len(lying), -1, -1)), lying, enough)
            free = (different - 1 - len(lying)).clamp(min=1)
            apart = (left * weights[floor:stop]).sum(2).std(0) * (drawn / free).sqrt()  # of `drawn` that are different
        else:
            before = one.sums(stop, start, weights)[1] if i else torch.ones_like(sums)
            means = before.mean(0).clamp(min=1e-300)
            relative = ratios.mean(0) / means.unsqueeze(1)
            apart = (sums - before * (sums.mean(0) / means)).std(0)
        apart = apart / sums.mean(0).clamp(min=1e-300)
        doubt = doubt + (apart.square() / drawn if drawn else (2 * apart).clamp(min=DOUBT).square())
        norms = (above.unsqueeze(2) * relative).sqrt()
        error = norms * (doubt / 4 + off.square()).sqrt().unsqueeze(2)  # of a norm: half of that of its square
        for deep in reversed(known[i:]):  # last those of this level, which may be of more copies
            own = deep.rows[:, :, floor - deep.level.floor : stop - deep.level.floor]
            at = deep.chosen.unsqueeze(2).expand_as(own)
            norms, error = norms.scatter(0, at, own), error.scatter(0, at, own * deep.error.unsqueeze(2))
        values[:, :, floor:stop], spread[:, :, floor:stop] = norms, error
        above, off = (norms.square() * weights[floor:stop]).sum(2), off.scatter(0, one.chosen, one.error)
        start, stop = stop, floor


def _line(known: Tensor, at: Tensor, every: Tensor, enough: Tensor) -> tuple[Tensor, Tensor]:
    """Fit lines to what is known [K, N, L] at some numbers [M, K, N], by least squares for each input and layer; level
    ones for inputs of which not ``enough`` [N] is known.

    Returns:
        Their values [C, N, L] at the numbers ``every`` [M, C, N], or as far towards them as lines go, and at most twice
        as far from zero and half as near as anything known is; and what is left [K, N, L] of what is known.
    """
    scale, middle = at.square().sum(1), at.mean(1, keepdim=True)
    least, most = at.amin(1, keepdim=True), at.amax(1, keepdim=True)
    apart = BEYOND * (most - least)
    inside = torch.minimum(torch.maximum(every, least - apart), most + apart)
    found = known.mean(0)
    left = known - found
    points, places = list(at - middle), list(inside - middle)
    for i, (own, there) in enumerate(zip(points, places, strict=True)):
        size = own.square().sum(0) + (SAME * scale[i]).clamp(min=1e-300)
        slope = (own.unsqueeze(2) * left).sum(0) * (enough / size).unsqueeze(1)
        found, left = found + there.unsqueeze(2) * slope, left - own.unsqueeze(2) * slope
        for j in range(i + 1, len(points)):  # the next says what this one does not
            shared = (own * points[j]).sum(0) / size
            points[j], places[j] = points[j] - shared * own, places[j] - shared * there
    return torch.minimum(torch.maximum(found, known.amin(0) / 2), 2 * known.amax(0)), left


def _higher(parts: Tensor, whole: Tensor, weights: Tensor, below: int) -> Tensor:
    """How many times as large squares [N, L] of single groups are as those of all copies; [N, top]: in layers further
    down as in all of these together, by weight.
    """
    sums = [(squares * weights).sum(1, keepdim=True).expand(-1, below) for squares in (parts, whole)]
    parts, whole = torch.cat([sums[0], parts], 1), torch.cat([sums[1], whole], 1)
    return torch.where((parts > 0) & (whole > 0), parts / whole.clamp(min=1e-300), 1.0)


def _deal(chosen: Tensor, groups: int) -> Tensor:
    """Classes [K, N] of inputs as [K / groups, N·groups]: those of each group of an input's copies, in turns."""
    return chosen.unflatten(0, (-1, groups)).transpose(1, 2).flatten(1)


def _collect(rows: Tensor, inputs: int) -> Tensor:
    """What was dealt, [K / groups, N·groups, ...], as [K, N, ...]."""
    return rows.unflatten(1, (inputs, -1)).transpose(1, 2).flatten(0, 1)


def _same_classes(rows: Tensor, chosen: Tensor) -> Tensor:
    """Rows [K, N, L] where those of one class, in several groups, are all the root of their mean square."""
    alike = (chosen.unsqueeze(0) == chosen.unsqueeze(1)).to(rows.dtype)
    alike = alike / alike.sum(1, keepdim=True)
    return torch.einsum("jkn,knl->jnl", alike, rows.square()).sqrt()


def _draw(weights: Tensor, count: int) -> Tensor:
    """For every input ``count`` classes [count, N] in proportion to their weights [C, N], at even steps."""
    steps = weights.T.cumsum(1)
    at = (torch.arange(count, device=weights.device, dtype=weights.dtype) + 0.5) / count
    return torch.searchsorted(steps, steps[:, -1:] * at).clamp(max=len(weights) - 1).T
