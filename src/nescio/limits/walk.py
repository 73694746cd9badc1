"""A walk along many rays at once, from region to region, with no step size.

On a region every margin is m + t r along the ray, so the next face is at t = min m/−r over the margins that fall. There
the values stay what they are and only rates change, so a step needs the rates alone: a pass without biases, of which
the part before the first changed piece is not worked out again (`passes.Tape`). Margins are carried from step to step,
m ← m + t r, and worked out anew from the input every few steps, so that round-off does not grow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from nescio.limits.network import Network
from nescio.limits.pieces import ROUND_OFF
from nescio.limits.tracked_pass import Pass, Tape
from nescio.types import ModelError

_ANEW = 50  # steps after which margins are worked out anew
_AT_ONCE = 1024  # rays: more at once take less time each, up to about here
_BYTES = 2**30  # that the rates of all operations may take


@dataclass(frozen=True)
class Path:
    """Hold the logits of one network along one ray: straight between breakpoints, and on for ever behind the last.

    Attributes:
        breakpoints: ``[B]``, rising and above 0.
        logits: ``[B + 1, C]`` at 0 and at each breakpoint.
        slope: ``[C]``, the change of the logits with α behind the last breakpoint: V d.

    Examples:
        >>> path = Path(torch.tensor([1.0]), torch.tensor([[0.0], [2.0]]), torch.tensor([3.0]))
        >>> path.at(torch.tensor([0.5, 2.0]))
        tensor([[1.],
                [5.]])
    """

    breakpoints: Tensor
    logits: Tensor
    slope: Tensor

    def at(self, alpha: Tensor) -> Tensor:
        """Compute the logits along the path.

        Args:
            alpha: Values of α ≥ 0, ``[A]``.

        Returns:
            The logits ``[A, C]``.
        """
        knots = torch.cat([self.breakpoints.new_zeros(1), self.breakpoints])
        slopes = torch.cat([(self.logits[1:] - self.logits[:-1]) / knots.diff()[:, None], self.slope[None]])
        place = (torch.searchsorted(knots, alpha, right=True) - 1).clamp(min=0)
        return torch.addcmul(self.logits[place], (alpha - knots[place])[:, None], slopes[place])


def walk(network: Network, x: Tensor, d: Tensor, most: int, done: Callable[[int], object] = int) -> list[Path]:
    """The paths of x + α d, α from 0 to infinity, for inputs and directions ``[N, ...]``.

    `done` is told how many faces were crossed since it was told last.
    """
    with network.working():
        _, z = network.settle(x[:1], d[:1])
        network.check(x[:1], z[0])
        chunk = max(1, min(_AT_ONCE, _BYTES // (4 * network.numbers)))  # half of the numbers are rates, 8 bytes each
        parts = [_Walk(network, x[i : i + chunk], d[i : i + chunk], most, done).run() for i in range(0, len(x), chunk)]
    return [path for part in parts for path in part]


class _Walk:
    """Rays that are walked together. Those that are at their end are left behind when they are half of all."""

    logits: Tensor
    slope: Tensor
    margins: Tensor
    rates: Tensor
    noise: Tensor
    tape: Tape
    fresh: bool

    def __init__(self, network: Network, x: Tensor, d: Tensor, most: int, done: Callable[[int], object]) -> None:
        self.network, self.x, self.d, self.most, self.done = network, x, d, most, done
        self.sites, _ = network.settle(x, d)
        self.rays = torch.arange(len(x), device=x.device)
        self.alpha = x.new_zeros(len(x))
        self.anew(first=True)
        self.turn()
        self.ends = torch.empty_like(self.slope)
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = [(self.rays, self.alpha, self.logits)]

    def run(self) -> list[Path]:
        """Walk all rays to their ends."""
        while len(self.steps) <= self.most + 1:
            ahead = (self.margins / self.rates).masked_fill_(self.rates >= self.noise, -torch.inf)
            t = -ahead.amax(1) if self.sites else torch.full_like(self.alpha, torch.inf)
            going = t < torch.inf
            walking = int(going.count_nonzero())
            if walking < t.shape[0]:
                few = walking <= t.shape[0] // 2
                if few and not self.fresh:  # ends are judged by rates that are free of what small changes add up to
                    self.tape_down()
                    continue
                if few:
                    self.ends[self.rays[~going]] = self.slope[~going]
                    if not walking:
                        return self._paths()
                    rows = going.nonzero().flatten()
                    self._keep(rows)
                    t, going, ahead = t[rows], going[rows], ahead[rows]
                t = torch.where(going, t, 0.0)
            self.alpha = self.alpha + t
            self.logits = torch.addcmul(self.logits, self.slope, t[:, None])
            self.margins.addcmul_(self.rates, t[:, None]).masked_fill_(ahead >= (t * (-1 - 1e-12))[:, None], 0.0)
            self.turn()
            if len(self.steps) % _ANEW == 0:
                self.anew()
            self.done(walking)
            if walking == t.shape[0]:
                self.steps.append((self.rays, self.alpha, self.logits))
            else:
                self.steps.append((self.rays[going], self.alpha[going], self.logits[going]))
        raise ModelError(
            f"expected at most {self.most} breakpoints along a ray, got more; raise most=, or measure the model "
            "numerically: nescio.limits.audit(model, x, radius=...)"
        )

    def anew(self, first: bool = False) -> None:
        """Everything from the input itself, on the pieces as they are; a margin that was 0 stays 0."""
        parts: list[Tensor] = []
        x = self.x + self.alpha.view(-1, *[1] * (self.x.ndim - 1)) * self.d
        self.logits = self.network.values(self.sites, x, lambda site, h: parts.append(site.measure(h, True)[0]))
        margins = torch.cat([self.x.new_zeros(len(x), 0), *parts], 1).clamp_(min=0.0)
        self.sizes = [part.shape[1] for part in parts]
        self.firsts = [0, *accumulate(self.sizes)]
        self.margins = margins if first else margins.masked_fill_(self.margins == 0, 0.0)
        self.rates, self.noise = torch.zeros_like(margins), torch.zeros_like(margins)
        self.tape_down()

    def tape_down(self) -> None:
        """The pass that gives the rates, and the slopes of the logits, to be replayed at every face."""
        for site, *held in zip(
            self.sites, *(v.split(self.sizes, 1) for v in (self.margins, self.rates, self.noise)), strict=True
        ):
            site.margins, site.rates, site.noise = held
        self.tape, network = Tape(), self.network
        run = Pass(
            network.classifier, len(self.x), 1, values=False, sites=self.sites, casts=network.casts, tape=self.tape
        )
        self.slope = run(self.d)[0]  # the tape writes into it
        self.fresh = True
        for site in self.sites:
            site.noise.copy_(-ROUND_OFF * site.rates.abs().amax(1, keepdim=True))

    def turn(self) -> None:
        """Change the pieces at the faces that are reached."""
        self.fresh = False
        rows, units = self.margins.eq(0).nonzero().unbind(1)
        zeros: list[tuple[Tensor, Tensor] | None] = []
        first = 0
        if units.shape[0] == 1:  # as it is for a single ray, at most of its faces
            where = bisect_right(self.firsts, int(units)) - 1
            zeros = [None] * len(self.sizes)
            zeros[where] = rows, units - self.firsts[where]
            self.tape.replay(zeros)
            return
        for size in self.sizes:
            here = ((units >= first) & (units < first + size)).nonzero().flatten()
            zeros.append((rows[here], units[here] - first) if here.numel() else None)
            first += size
        self.tape.replay(zeros)

    def _keep(self, rows: Tensor) -> None:
        self.x, self.d, self.rays, self.alpha = self.x[rows], self.d[rows], self.rays[rows], self.alpha[rows]
        self.logits, self.margins = self.logits[rows], self.margins[rows]
        self.rates, self.noise = self.rates[rows], self.noise[rows]
        for site in self.sites:
            site.keep(rows)
        self.tape_down()

    def _paths(self) -> list[Path]:
        """Each ray's own steps; those at the same α, up to round-off, are one."""
        ray = torch.cat([rays for rays, _, _ in self.steps])
        order = torch.argsort(ray, stable=True)
        counts = torch.bincount(ray).tolist()
        alphas = torch.cat([alpha for _, alpha, _ in self.steps])[order].cpu().split(counts)
        logits = torch.cat([z for _, _, z in self.steps])[order].cpu().split(counts)
        paths = []
        for a, z, slope in zip(alphas, logits, self.ends.cpu(), strict=True):
            apart = torch.ones(len(a), dtype=torch.bool)
            apart[1:] = a[1:] - a[:-1] > ROUND_OFF * a[1:]
            paths.append(Path(a[apart][1:], z[apart], slope))
        return paths
