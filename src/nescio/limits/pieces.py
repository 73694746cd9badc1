"""The parts of a network that are linear only piece by piece, and which piece each input is on.

An elementwise function with knots t_1 < … < t_m is on piece j where exactly j knots lie below h, and there it is
g_j h + c_j (ReLU: one knot at 0, g = 0, 1). It stays on its piece while the margins σ_j (h − t_j) are ≥ 0, σ_j = ±1.
A max-pool hands on one entry h_k of each window, and does so while the margins h_k − h_j are ≥ 0 for all other j.
So a margin is an affine function of the input as long as no earlier piece changes, and margin ≥ 0 is a half-space.

Along a ray a margin moves at a rate. Where it reaches 0 the piece changes, unless the margin turns at that very point:
a piece whose margin is 0 is settled by the rate behind the point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROUND_OFF = 64 * torch.finfo(torch.float64).eps
"""Relative to the largest number of a layer: what is smaller is taken for 0."""


class Change(NamedTuple):
    """What a site changed: at these places of its output, input by input, the rates grew by so much.

    growth is None where all of a row may have changed.
    """

    rows: Tensor
    places: Tensor | None = None
    growth: Tensor | None = None


class Site(ABC):
    """One call of such a function, for N inputs.

    A walk along rays hangs its `margins` and `rates` ``[N, U]`` on it, and `noise`, below which a rate falls in truth.
    """

    margins: Tensor
    rates: Tensor
    noise: Tensor

    @abstractmethod
    def settle(self, h: Tensor) -> None:
        """Choose the pieces from values ``h[0]`` and, where a margin is 0, from the rates ``h[1]``."""

    @abstractmethod
    def apply(self, h: Tensor, values: bool, rows: Tensor | None = None) -> Tensor:
        """The function on the chosen pieces, of ``[B, N, ...]``: block 0 holds values if said so, the rest rates.

        rows: the inputs that are given, where it is not all.
        """

    @abstractmethod
    def measure(self, h: Tensor, values: bool) -> Tensor:
        """Margins (block 0, if it holds values) and their rates (the others): ``[B, N, U]``, round-off set to 0."""

    @abstractmethod
    def take(self, h: Tensor, rows: Tensor | None) -> None:
        """Take the new rates of these rows; h: what the function is given, rates of all inputs ``[N, ...]``."""

    @abstractmethod
    def turn(self, h: Tensor, rows: Tensor, units: Tensor) -> Change | None:
        """Change those pieces whose margin falls, among margins that are 0: `units` of the inputs `rows`."""

    @abstractmethod
    def keep(self, rows: Tensor) -> None:
        """Forget all inputs but these."""


class Elementwise(Site):
    """A continuous function of one number that is linear between its knots. sign: +1 where h is above a knot."""

    sign: Tensor
    gain: Tensor

    def __init__(self, knots: Sequence[float], gains: Sequence[float | Tensor], shifts: Sequence[float]) -> None:
        self.knots, self.gains, self.shifts = knots, gains, shifts

    def settle(self, h: Tensor) -> None:
        self.sign = h.new_ones(h.shape[1], len(self.knots), h[0, 0].numel())
        over, rising = self.measure(h[:2], True).view(2, *self.sign.shape)
        self.sign = torch.where((over > 0) | ((over == 0) & (rising > 0)), 1.0, -1.0).double()

        self._set()

    def apply(self, h: Tensor, values: bool, rows: Tensor | None = None) -> Tensor:
        gain = self.gain if rows is None else self.gain[rows]
        out = h * gain.view(len(gain), *h.shape[2:])
        if values and any(self.shifts):
            out[0] += self._piece(self.shifts).view_as(out[0])
        return out

    def measure(self, h: Tensor, values: bool) -> Tensor:
        flat = h.flatten(2)[:, :, None]
        over = flat.repeat(1, 1, len(self.knots), 1)
        if values:
            over[0] -= torch.tensor(self.knots, dtype=torch.float64, device=h.device)[:, None]
        over = torch.where(over.abs() <= ROUND_OFF * flat.abs().amax(3, keepdim=True), 0.0, over)
        return (over * self.sign).flatten(2)

    def take(self, h: Tensor, rows: Tensor | None) -> None:
        if rows is None:
            torch.mul(h.flatten(1)[:, None], self.sign, out=self.rates.view_as(self.sign))
        else:
            self.rates.index_copy_(0, rows, (h[rows].flatten(1)[:, None] * self.sign[rows]).flatten(1))

    def turn(self, h: Tensor, rows: Tensor, units: Tensor) -> Change | None:
        at: Any = (rows, units)
        if rows.shape[0] == 1:  # a plain index is much faster than one by tensors
            at = int(rows), slice(int(units), int(units) + 1)
        wrong = self.rates[at] < self.noise[at]
        if not bool(wrong.all()):
            rows, units = rows[wrong], units[wrong]
            at = rows, units
            if not rows.shape[0]:
                return None
        every = self.sign.view(self.rates.shape)
        sign = -every[at]
        every[at] = sign
        self.rates[at] = -self.rates[at]
        if len(self.knots) > 1:
            self._set()
            return Change(rows.unique())
        growth = self.jump[at[1]] * sign
        self.gain[at] += growth
        return Change(rows, units, growth * h.flatten(1)[at])

    def keep(self, rows: Tensor) -> None:
        self.sign, self.gain = self.sign[rows], self.gain[rows]

    def _set(self) -> None:
        self.gain = self._piece(self.gains)
        self.jump = (self._spread(self.gains[1]) - self._spread(self.gains[0])).expand(self.sign.shape[2])

    def _piece(self, table: Sequence[float | Tensor]) -> Tensor:
        """The entry of the table for the piece that each number is on, ``[N, U]``."""
        values = self._spread(table[0])
        for j in range(len(self.knots)):
            values = torch.where(self.sign[:, j] > 0, self._spread(table[j + 1]), values)
        return values

    def _spread(self, entry: float | Tensor) -> Tensor:
        """A number, or one for each channel, for each of the U places."""
        entries = torch.as_tensor(entry, dtype=torch.float64, device=self.sign.device).view(-1)
        return entries.repeat_interleave(self.sign.shape[2] // len(entries))


class MaxPool(Site):
    """The largest entry of every window.

    windows: positions ``[L, K]`` in the flattened picture, −1 outside of it; size: how many there are in each
    dimension.
    The entry that is handed on has itself no margin to keep, nor has a place outside the picture: these are infinite.
    """

    choice: Tensor

    def __init__(self, windows: Tensor, size: Sequence[int]) -> None:
        self.windows, self.size, self.outside = windows.clamp(min=0), size, windows < 0

    def settle(self, h: Tensor) -> None:
        w, rates = self._windows(h[:2])
        w = w.masked_fill(self.outside, -torch.inf)
        tied = w >= w.amax(-1, keepdim=True) - _round_off(h[0], w)
        self.choice = rates.masked_fill(~tied, -torch.inf).argmax(-1, keepdim=True)

    def apply(self, h: Tensor, values: bool, rows: Tensor | None = None) -> Tensor:
        choice = self.choice if rows is None else self.choice[rows]
        picked = self.windows.expand(*choice.shape[:-1], -1).gather(-1, choice).squeeze(-1)
        flat = h.flatten(-len(self.size))
        result: Tensor = flat.gather(-1, picked.expand(len(h), *picked.shape)).unflatten(-1, self.size)
        return result

    def measure(self, h: Tensor, values: bool) -> Tensor:
        w = self._windows(h)
        m = w.gather(-1, self.choice.expand(len(h), *self.choice.shape)) - w
        sizes = h.flatten(2).abs().amax(2).view(*h.shape[:2], *[1] * (w.ndim - 2))
        m = m.masked_fill((m.abs() <= ROUND_OFF * sizes) | self.outside, 0.0)
        if values:
            m[0].masked_fill_(self.outside, torch.inf).scatter_(-1, self.choice, torch.inf)
        return m.flatten(2)

    def take(self, h: Tensor, rows: Tensor | None) -> None:
        choice, h = (self.choice, h) if rows is None else (self.choice[rows], h[rows])
        w = self._windows(h)
        rates = (w.gather(-1, choice) - w).masked_fill(self.outside, 0.0).flatten(1)
        if rows is None:
            self.rates.copy_(rates)
        else:
            self.rates.index_copy_(0, rows, rates)

    def turn(self, h: Tensor, rows: Tensor, units: Tensor) -> Change | None:
        rows = rows[self.rates[rows, units] < self.noise[rows, 0]].unique()
        if not rows.numel():
            return None
        w = self._windows(h[rows])
        margins, before = self.margins[rows].view(w.shape), self.choice[rows]
        tied = (margins == 0).scatter(-1, before, True)
        falls = ((self.rates[rows] < self.noise[rows]).view(w.shape) & tied).any(-1, keepdim=True)
        fastest = w.masked_fill(~tied, -torch.inf).argmax(-1, keepdim=True)
        self.choice[rows] = torch.where(falls, fastest, before)
        margins = margins.scatter(-1, before, 0.0).scatter(-1, self.choice[rows], torch.inf)
        self.margins[rows] = margins.flatten(1)
        self.take(h, rows)
        return Change(rows)

    def keep(self, rows: Tensor) -> None:
        self.choice = self.choice[rows]

    def _windows(self, h: Tensor) -> Tensor:
        return h.flatten(-len(self.size))[..., self.windows]


def _round_off(h: Tensor, like: Tensor) -> Tensor:
    """Below this a number of an input is taken for 0, in the shape ``[N, 1, ...]``."""
    return ROUND_OFF * h.flatten(1).abs().amax(1).view(-1, *[1] * (like.ndim - 1))
