"""UA-Backprop (Wang et al. 2023): the uncertainty handed back through probabilities and logits to the input, complete.

    M = (1/S) Σ_s Σ_i U_{z_i^s} softmax_places(minmax(M_i^s)/τ₂),        Σ_places M = Σ_i U_{z_i^s} = U

U_{z_i^s} are the shares of the logits (`nescio.attribution.uncertainty`), M_i^s maps of each logit by one of the paths
of `nescio.attribution.logit_maps`. All of them are positive, so a map is too. Where there are many classes, some of the
logits are drawn by their shares: `nescio.attribution.drawn_logits`. The map says how far it may be from that of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio._common.argument_checks import integer, number
from nescio._common.chunking import at_once
from nescio.attribution import drawn_logits, logit_maps, uncertainty
from nescio.attribution.base import MapMethod, Several
from nescio.attribution.defaults import COPIES, NOISE, TAU1, TAU2
from nescio.attribution.direct import BlurGradient
from nescio.attribution.member_passes import Run, forward, pulled
from nescio.attribution.noisy_copies import noisy
from nescio.attribution.places import Places
from nescio.attribution.problem import Problem, unchanged
from nescio.attribution.sampled_members import Member
from nescio.models import named_modules
from nescio.training import spawned
from nescio.types import InputError

CLASSES_AT_ONCE = 64
"""Logits that go through one backward pass together, at most."""


@dataclass(frozen=True)
class UABackprop(MapMethod):
    """Hand the uncertainty back through probabilities and logits to the input (Wang et al. 2023); it is complete.

    Args:
        path: How a logit's map is made: "fullgrad", "gradient", "smoothgrad" or "gradcam".
        tau1: The temperature by which a probability's share is divided over the logits.
        tau2: The temperature of a map; the smaller, the sharper.
        copies: Noisy copies, for path="smoothgrad".
        noise: Their noise, as a share of the range of each input.
        seed: Of the noise, and of the logits that are drawn.
        layer: The module whose output is weighted, for path="gradcam".
        classes: How many maps of logits are drawn, of all classes of all members. "exact" takes all, however many;
            "auto" all of up to 20 classes, and of more it draws 16.
        signed: Ours, not the paper's. Give every pixel the sign of ∂U/∂x (x − blur x): above 0 where blurring it takes
            doubt away, below 0 where it adds some. The magnitudes stay. What it gives up: a map no longer adds up to
            the uncertainty (`Attribution.residual` says by how much), its size and its sign answer two questions, and
            the sign holds for one reference, a blur of 1.5 pixels; inputs that cannot be blurred are refused. It costs
            a backward pass for each member.
            In the blurring test it lifts these maps past every map of magnitudes in 13 of 16 cases on MNIST, SVHN,
            CIFAR-10 and CIFAR-100 (`nescio reproduce ua-signs`); "blur_gradient", one backward pass, is as good or
            better in all.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> nescio.explain(model, torch.rand(2, 4), nescio.attribution.UABackprop(path="gradient")).maps.shape
        torch.Size([2, 4])
    """

    path: logit_maps.Path = "fullgrad"
    tau1: float = TAU1
    tau2: float = TAU2
    copies: int = COPIES
    noise: float = NOISE
    seed: int = 0
    layer: str | None = None
    classes: drawn_logits.Classes = "auto"
    signed: bool = False

    name = "ua_backprop"

    def __post_init__(self) -> None:
        if self.path not in logit_maps.PATHS:
            raise InputError(f"expected path= to be one of {', '.join(map(repr, logit_maps.PATHS))}, got {self.path!r}")
        number("tau1", self.tau1, above=1 / 500)
        number("tau2", self.tau2, above=1e-6)
        integer("copies", self.copies, at_least=1)
        number("noise", self.noise, above=0.0)
        integer("seed", self.seed, at_least=0)
        drawn_logits.check(self.classes)
        if self.layer is not None and self.path != "gradcam":
            raise InputError(f"expected layer= with path='gradcam' only, got it with path={self.path!r}")

    @property
    def words(self) -> str:
        signs = ", signed" if self.signed else ""
        return f"UA-Backprop over {self.path} (tau1 = {self.tau1:g}, tau2 = {self.tau2:g}{signs})"

    def rows(self, classes: int, draws: int = 1, samples: int = 1) -> int:
        """Return how many maps of logits a member needs that gives so many of all samples.

        Args:
            classes: How many classes there are.
            draws: How many samples the member gives.
            samples: How many samples there are in all.

        Returns:
            The number of maps.
        """
        return drawn_logits.count(self.classes, classes, draws, samples) or draws * classes

    def several(self, problem: Problem, kinds: Sequence[str]) -> Several:
        """Compute the maps of the logits once: they serve all kinds."""
        shares, q = self._shares(problem.logits, kinds)
        by_member, variance, n = [], torch.zeros(()), 0
        _, batch = problem.members[0].batch(problem.x)  # where the network is
        together = max(1, min(CLASSES_AT_ONCE, 2 * at_once(batch, None) // inputs.size(batch)))
        each = [member.draws for member in problem.members]
        pairs = zip(shares.split(each), q.split(each), strict=True)
        for place, (member, (own, likely)) in enumerate(zip(problem.members, pairs, strict=True)):
            share = own.movedim(0, 2).flatten(2)  # [U, N, draws · C]
            few = drawn_logits.count(self.classes, shares.shape[3], member.draws, len(shares))
            draw = None
            if few is not None:
                draw = drawn_logits.drawn(share, likely.transpose(0, 1).flatten(1), few, spawned(self.seed, place))
            flat, spread = self._member(problem, member, share, draw, together)
            by_member.append(flat.unflatten(2, problem.places.shape))
            variance, n = variance.to(spread) + spread, n + (few or 0)
        whole = shares.sum((0, 3))
        error = drawn_logits.error(variance, whole.to(variance.device)).cpu() if n else None
        maps = torch.stack(by_member, 1)
        return Several(maps * self._signs(problem, kinds).to(maps) if self.signed else maps, error, n)

    def _signs(self, problem: Problem, kinds: Sequence[str]) -> Tensor:
        """Whether blurring a pixel takes doubt of each kind away (1) or adds some (−1), [U, 1, N, H, W]."""
        return torch.stack([BlurGradient().attribute(replace(problem, of=kind)).sign() for kind in kinds])

    def _shares(self, logits: Tensor, kinds: Sequence[str]) -> tuple[Tensor, Tensor]:
        """What the logits of each sample have of each kind, [S, U, N, C], and by what they are drawn, [S, N, C]."""

        def of(kind: str) -> Tensor:
            return uncertainty.by_logit(logits, uncertainty.by_class(logits, kind), self.tau1) / len(logits)

        known = {kind: of(kind) for kind in dict.fromkeys([*kinds, *(uncertainty.KINDS if len(logits) > 1 else ())])}
        parts = [known["epistemic"], known["aleatoric"]] if len(logits) > 1 else list(known.values())[:1]
        flat = [part.transpose(0, 1).flatten(1) for part in parts]
        q = drawn_logits.proposal(flat).unflatten(1, (len(logits), -1)).transpose(0, 1)
        return torch.stack([known[kind] for kind in kinds], 1), q

    def _member(
        self, problem: Problem, member: Member, share: Tensor, draw: drawn_logits.Draw | None, together: int
    ) -> tuple[Tensor, Tensor]:
        """Maps of one member, weighted and added up, and their variance, both float64 [U, N, P]."""
        places, at = problem.places, None if draw is None else draw.at
        if self.path == "smoothgrad":
            smooth = partial(self._smooth, problem, member, at)
            return _blocks(share, draw, smooth, together, places, self.tau2)
        keep = logit_maps.keeper(self.path, self._module(member.network().module))
        with forward(member, problem.x, problem.source, unchanged, keep) as run:
            return _blocks(share, draw, partial(self._maps, run, places, at), together, places, self.tau2)

    def _gradients(self, run: Run, places: Places, at: Tensor | None, part: slice) -> Tensor:
        """What the path's reader makes of these logits, [K, N, ...]."""
        maps: list[Tensor] = []
        pulled(run, _cotangents(run.logits, at, part), lambda: logit_maps.reader(self.path, run, places, maps))
        return torch.cat(maps)

    def _maps(self, run: Run, places: Places, at: Tensor | None, part: slice) -> Tensor:
        """Maps of these logits, [K, N, *places]."""
        maps = self._gradients(run, places, at, part)
        return places.mean(maps.abs()) if self.path == "gradient" else maps

    def _smooth(self, problem: Problem, member: Member, at: Tensor | None, part: slice) -> Tensor:
        """Maps of the gradients' means over noisy copies, [K, N, *places]."""
        total: Tensor | None = None
        for copy in range(self.copies):
            with forward(member, problem.x, problem.source, noisy(self.noise, self.seed, copy)) as run:
                gradients = self._gradients(run, problem.places, at, part) / self.copies
            total = gradients if total is None else total + gradients
        assert total is not None
        return problem.places.mean(total.abs())

    def _module(self, root: nn.Module | None) -> nn.Module | None:
        if self.layer is None:
            return None
        known = {} if root is None else dict(named_modules(root))
        if self.layer not in known:
            some = ", ".join(name for name in known if name)
            raise InputError(f"expected layer= to name a module of the network, got {self.layer!r}; it has: {some}")
        return known[self.layer]


def _cotangents(logits: Tensor, at: Tensor | None, part: slice) -> Tensor:
    """One logit for each row of the part and each input, [K, N, R]: the rows `at` [N, n], or without them all R."""
    rows = logits.new_zeros(part.stop - part.start, *logits.shape)
    if at is None:
        which = torch.arange(part.start, part.stop, device=logits.device).view(-1, 1).expand(-1, len(logits))
    else:
        which = at[:, part].T.to(logits.device)
    return rows.scatter_(2, which.unsqueeze(2), 1.0)


def _blocks(
    share: Tensor,
    draw: drawn_logits.Draw | None,
    maps: Callable[[slice], Tensor],
    together: int,
    places: Places,
    tau2: float,
) -> tuple[Tensor, Tensor]:
    """Σ_i U_{z_i} softmax(M_i/τ₂), float64 [U, N, P], from U_{z_i} [U, N, R] and `maps` of some logits; its variance.

    They stay on the device of the maps, so that the next member need not wait for them.
    """
    # as shares of U, which may be smaller than the smallest float32
    whole = share.sum(2, keepdim=True)
    tiny = torch.finfo(torch.float64).tiny
    relative = (share if draw is None else draw.weights) / whole.clamp(min=tiny)
    total, moments = torch.zeros(()), [torch.zeros(())] * 2
    count = relative.shape[2]
    for start in range(0, count, together):
        part = slice(start, min(start + together, count))
        m = maps(part)
        m = m.float() if m.dtype in (torch.float16, torch.bfloat16) else m
        with torch.autocast(m.device.type, enabled=False):  # which would take the product in half precision
            shares = places.shares(m, tau2)
            whole_map = shares.sum(2, dtype=torch.float64).T
            total = total.to(shares.device) + _sum(relative[:, :, part].to(whole_map) / whole_map, shares)
            if draw is not None:
                spread = (draw.variances[:, :, part] / whole.square().clamp(min=tiny)).to(whole_map)
                moments = [
                    old.to(shares.device) + _sum(spread / whole_map**power, shares**power)
                    for power, old in enumerate(moments, 1)
                ]
    variance = torch.zeros((), dtype=torch.float64)
    if draw is not None:  # Σ v (A − M)²
        v = (draw.variances / whole.square().clamp(min=tiny)).sum(2, keepdim=True).to(total.device)
        variance = (moments[1] - 2 * total * moments[0] + total.square() * v) * whole.square().to(total.device)
    return total * whole.to(total.device), variance


def _sum(weights: Tensor, maps: Tensor) -> Tensor:
    """Σ_k w_k A_k, float64 [U, N, P], from weights [U, N, K] and maps [K, N, P]."""
    return torch.einsum("unk,knp->unp", weights.to(maps.dtype), maps).to(torch.float64)
