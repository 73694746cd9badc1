"""UA-Backprop (Wang et al. 2023): the uncertainty handed back through probabilities and logits to the input, complete.

    M = (1/S) Σ_s Σ_i U_{z_i^s} softmax_places(minmax(M_i^s)/τ₂),        Σ_places M = Σ_i U_{z_i^s} = U

U_{z_i^s} are the shares of the logits (`nescio.attribution.uncertainty`), M_i^s maps of each logit by one of the paths
of `nescio.attribution.paths`. All of them are positive, so a map is too. Of many classes the likeliest are followed
each by itself, and the others together as one (`nescio.attribution.merging`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nescio._common.argument_checks import integer, number
from nescio.attribution import merging, paths, uncertainty
from nescio.attribution.defaults import COPIES, NOISE, TAU1, TAU2
from nescio.attribution.members import Member
from nescio.attribution.noise import noisy
from nescio.attribution.passes import Run, forward, pulled
from nescio.attribution.places import Places
from nescio.attribution.problem import Problem, unchanged
from nescio.models import named_modules
from nescio.types import InputError

CLASSES_AT_ONCE = 64
"""Logits that go through one backward pass together."""


@dataclass(frozen=True)
class UABackprop:
    """Hand the uncertainty back through probabilities and logits to the input (Wang et al. 2023); it is complete.

    Args:
        path: How a logit's map is made: "fullgrad", "gradient", "smoothgrad" or "gradcam".
        tau1: The temperature by which a probability's share is divided over the logits.
        tau2: The temperature of a map; the smaller, the sharper.
        copies: Noisy copies, for path="smoothgrad".
        noise: Their noise, as a share of the range of each input.
        seed: Of the noise.
        layer: The module whose output is weighted, for path="gradcam".
        classes: As many of the likeliest are followed each by itself, the others as one. "exact" follows all, however
            many; "auto" all of up to 20, and of more the 9 likeliest.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> nescio.explain(model, torch.rand(2, 4), nescio.attribution.UABackprop(path="gradient")).maps.shape
        torch.Size([2, 4])
    """

    path: paths.Path = "fullgrad"
    tau1: float = TAU1
    tau2: float = TAU2
    copies: int = COPIES
    noise: float = NOISE
    seed: int = 0
    layer: str | None = None
    classes: merging.Classes = "auto"

    name = "ua_backprop"

    def __post_init__(self) -> None:
        if self.path not in paths.PATHS:
            raise InputError(f"expected path= to be one of {', '.join(map(repr, paths.PATHS))}, got {self.path!r}")
        number("tau1", self.tau1, above=1 / 500)
        number("tau2", self.tau2, above=1e-6)
        integer("copies", self.copies, at_least=1)
        number("noise", self.noise, above=0.0)
        integer("seed", self.seed, at_least=0)
        merging.check(self.classes)
        if self.layer is not None and self.path != "gradcam":
            raise InputError(f"expected layer= with path='gradcam' only, got it with path={self.path!r}")

    @property
    def words(self) -> str:
        """The method and its settings."""
        return f"UA-Backprop over {self.path} (tau1 = {self.tau1:g}, tau2 = {self.tau2:g})"

    def seen(self, logits: Tensor) -> Tensor:
        """Logits [S, N, K] of the classes that are followed, from those of all, [S, N, C]."""
        return merging.merged(logits, merging.staying(logits, self.classes))

    def several(self, problem: Problem, kinds: Sequence[str]) -> Tensor:
        """What each member gives for these kinds of uncertainty, float64 [K, S, N, *places]; it adds up to the maps.

        The maps of the logits serve all kinds.
        """
        places, stay = problem.places, merging.staying(problem.logits, self.classes)
        logits = merging.merged(problem.logits, stay)
        by_class = [merging.added(uncertainty.by_class(problem.logits, kind), stay) for kind in kinds]
        parts = [uncertainty.by_logit(logits, part, self.tau1) for part in by_class]
        shares = torch.stack(parts, 1) / len(logits)
        by_member = []
        for member, share in zip(problem.members, shares, strict=True):
            keep = paths.keeper(self.path, self._module(member.network().module))
            if self.path == "smoothgrad":
                flat = self._smooth(problem, member, share, stay)
            else:
                with forward(member, problem.x, problem.source, unchanged, keep) as run:
                    flat = _blocks(share, lambda part, run=run: self._maps(run, places, stay, part), places, self.tau2)  # type: ignore[misc]
            by_member.append(flat.unflatten(2, places.shape))
        return torch.stack(by_member, 1)

    def _gradients(self, run: Run, places: Places, stay: Tensor | None, part: slice) -> Tensor:
        """What the path's reader makes of these logits, [K, N, ...]."""
        maps: list[Tensor] = []
        pulled(run, merging.cotangents(run.logits, stay, part), lambda: paths.reader(self.path, run, places, maps))
        return torch.cat(maps)

    def _maps(self, run: Run, places: Places, stay: Tensor | None, part: slice) -> Tensor:
        """Maps of these logits, [K, N, *places]."""
        maps = self._gradients(run, places, stay, part)
        return places.mean(maps.abs()) if self.path == "gradient" else maps

    def _smooth(self, problem: Problem, member: Member, share: Tensor, stay: Tensor | None) -> Tensor:
        """Maps of the gradient's mean over noisy copies, weighted and added up."""
        places, sums = problem.places, list[Tensor]()
        for copy in range(self.copies):
            with forward(member, problem.x, problem.source, noisy(self.noise, self.seed, copy)) as run:
                gradients = [self._gradients(run, places, stay, part) / self.copies for part in _parts(share.shape[2])]
            sums = [a + b for a, b in zip(sums, gradients, strict=True)] if sums else gradients
        return _blocks(share, lambda part: places.mean(sums[part.start // CLASSES_AT_ONCE].abs()), places, self.tau2)

    def _module(self, root: nn.Module | None) -> nn.Module | None:
        if self.layer is None:
            return None
        known = {} if root is None else dict(named_modules(root))
        if self.layer not in known:
            some = ", ".join(name for name in known if name)
            raise InputError(f"expected layer= to name a module of the network, got {self.layer!r}; it has: {some}")
        return known[self.layer]


def _parts(count: int) -> list[slice]:
    """So many logits in parts that go through one backward pass together."""
    return [slice(start, min(start + CLASSES_AT_ONCE, count)) for start in range(0, count, CLASSES_AT_ONCE)]


def _blocks(share: Tensor, maps: Callable[[slice], Tensor], places: Places, tau2: float) -> Tensor:
    """Σ_i U_{z_i} softmax(M_i/τ₂), float64 [U, N, P], from U_{z_i} [U, N, C] and `maps` of some classes.

    It stays on the device of the maps, so that the next member need not wait for it.
    """
    # as shares of U, which may be smaller than the smallest float32
    whole = share.sum(2, keepdim=True)
    relative = share / whole.clamp(min=torch.finfo(torch.float64).tiny)
    total: Tensor | None = None
    for part in _parts(share.shape[2]):
        m = maps(part)
        m = m.float() if m.dtype in (torch.float16, torch.bfloat16) else m
        with torch.autocast(m.device.type, enabled=False):  # which would take the product in half precision
            shares = places.shares(m, tau2)
            weights = relative[:, :, part].transpose(1, 2).to(shares.device) / shares.sum(2, dtype=torch.float64)
            block = torch.einsum("ukn,knp->unp", weights.to(shares.dtype), shares).to(torch.float64)
        total = block if total is None else total + block
    assert total is not None
    return total * whole.to(total.device)
