"""UA-Backprop (Wang et al. 2023): the uncertainty handed back through probabilities and logits to the input, complete.

    M = (1/S) Σ_s Σ_i U_{z_i^s} softmax_places(minmax(M_i^s)/τ₂),        Σ_places M = Σ_i U_{z_i^s} = U

U_{z_i^s} are the shares of the logits (`nescio.attribution.uncertainty`), M_i^s maps of each logit by one of the paths
of `nescio.attribution.paths`. All of them are positive, so a map is too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nescio.attribution import paths, uncertainty
from nescio.attribution.defaults import COPIES, NOISE, TAU1, TAU2
from nescio.attribution.members import Member
from nescio.attribution.noise import noisy
from nescio.attribution.passes import Run, forward, pulled
from nescio.attribution.places import Places
from nescio.attribution.problem import Problem, unchanged
from nescio.models import named_modules
from nescio.posteriors.base import number, whole_number
from nescio.types import InputError

CLASSES_AT_ONCE = 64
"""Logits that go through one backward pass together."""


@dataclass(frozen=True)
class UABackprop:
    """The settings of UA-Backprop. copies, noise and seed are for path="smoothgrad", layer for path="gradcam"."""

    path: paths.Path = "fullgrad"
    tau1: float = TAU1
    tau2: float = TAU2
    copies: int = COPIES
    noise: float = NOISE
    seed: int = 0
    layer: str | None = None

    name = "ua_backprop"

    def __post_init__(self) -> None:
        if self.path not in paths.PATHS:
            raise InputError(f"expected path= to be one of {', '.join(map(repr, paths.PATHS))}, got {self.path!r}")
        number("tau1", self.tau1, above=1 / 500)
        number("tau2", self.tau2, above=0.0)
        whole_number("copies", self.copies, 1)
        number("noise", self.noise, above=0.0)
        whole_number("seed", self.seed, 0)
        if self.layer is not None and self.path != "gradcam":
            raise InputError(f"expected layer= with path='gradcam' only, got it with path={self.path!r}")

    @property
    def words(self) -> str:
        """The method and its settings."""
        return f"UA-Backprop over {self.path} (tau1 = {self.tau1:g}, tau2 = {self.tau2:g})"

    def attribute(self, problem: Problem) -> Tensor:
        """What each member gives, float64 [S, N, *places], which add up to the map."""
        return self.several(problem, (problem.of,))[0]

    def several(self, problem: Problem, kinds: Sequence[str]) -> Tensor:
        """The same for several kinds of uncertainty, [K, S, N, *places]: the maps of the logits serve all of them."""
        logits, places = problem.logits, problem.places
        parts = [uncertainty.by_logit(logits, uncertainty.by_class(logits, kind), self.tau1) for kind in kinds]
        shares = torch.stack(parts, 1) / len(logits)
        found = []
        for member, share in zip(problem.members, shares, strict=True):
            keep = paths.keeper(self.path, self._module(member.network().module))
            if self.path == "smoothgrad":
                flat = self._smooth(problem, member, share)
            else:
                with forward(member, problem.x, problem.source, unchanged, keep) as run:
                    flat = _blocks(share, lambda part, run=run: self._maps(run, places, part), places, self.tau2)  # type: ignore[misc]
            found.append(flat.unflatten(2, places.shape))
        return torch.stack(found, 1)

    def _gradients(self, run: Run, places: Places, classes: Tensor) -> Tensor:
        """What the path's reader makes of these logits, [K, N, ...]."""
        maps: list[Tensor] = []
        pulled(run, _hot(run, classes), lambda: paths.reader(self.path, run, places, maps))
        return torch.cat(maps)

    def _maps(self, run: Run, places: Places, classes: Tensor) -> Tensor:
        """Maps of these logits, [K, N, *places]."""
        found = self._gradients(run, places, classes)
        return places.mean(found.abs()) if self.path == "gradient" else found

    def _smooth(self, problem: Problem, member: Member, share: Tensor) -> Tensor:
        """Maps of the gradient's mean over noisy copies, weighted and added up."""
        places, sums = problem.places, list[Tensor]()
        for copy in range(self.copies):
            with forward(member, problem.x, problem.source, noisy(self.noise, self.seed, copy)) as run:
                parts = torch.arange(share.shape[-1]).split(CLASSES_AT_ONCE)
                found = [self._gradients(run, places, part) / self.copies for part in parts]
            sums = [a + b for a, b in zip(sums, found, strict=True)] if sums else found
        return _blocks(share, lambda part: places.mean(sums[int(part[0]) // CLASSES_AT_ONCE].abs()), places, self.tau2)

    def _module(self, root: nn.Module | None) -> nn.Module | None:
        if self.layer is None:
            return None
        known = {} if root is None else dict(named_modules(root))
        if self.layer not in known:
            some = ", ".join(name for name in known if name)
            raise InputError(f"expected layer= to name a module of the network, got {self.layer!r}; it has: {some}")
        return known[self.layer]


def _hot(run: Run, classes: Tensor) -> Tensor:
    """e_i for each of these classes and every input, [K, N, C]."""
    one = torch.eye(run.logits.shape[1], dtype=run.logits.dtype, device=run.logits.device)[
        classes.to(run.logits.device)
    ]
    return one.unsqueeze(1).expand(-1, len(run.logits), -1).contiguous()


def _blocks(share: Tensor, maps: Callable[[Tensor], Tensor], places: Places, tau2: float) -> Tensor:
    """Σ_i U_{z_i} softmax(M_i/τ₂), float64 [U, N, P], from U_{z_i} [U, N, C] and `maps` of some classes."""
    # as shares of U, which may be smaller than the smallest float32
    whole = share.sum(2, keepdim=True)
    relative = share / whole.clamp(min=torch.finfo(torch.float64).tiny)
    total: Tensor | None = None
    for part in torch.arange(share.shape[2]).split(CLASSES_AT_ONCE):
        m = maps(part)
        m = m.float() if m.dtype in (torch.float16, torch.bfloat16) else m
        shares = places.shares(m, tau2)
        weights = relative[:, :, part].transpose(1, 2).to(shares.device) / shares.sum(2, dtype=torch.float64)
        found = torch.einsum("ukn,knp->unp", weights.to(shares.dtype), shares).to("cpu", torch.float64)
        total = found if total is None else total + found
    assert total is not None
    return total * whole
