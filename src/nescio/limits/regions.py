"""`region`: the affine map of a piecewise-linear network around x, and the polytope on which it holds.

    f(z) = V z + a   for all z with  A_u z + b_u ≥ 0,  u = 1 … U,    z flattened to D numbers

The map comes from one pass with the D unit vectors as directions. Row u of A is the normal of a half-space: the margin
of a pre-activation to a knot of its activation, or of a max-pool's choice to another entry of its window. The distance
to the face u is (A_u x + b_u)/‖A_u‖, and the region is unbounded along d if A d ≥ 0. Where x lies on a face, the region
is one of those that meet there: that which a fixed direction leads into.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from nescio._common.arrays import Values
from nescio.inputs import Data
from nescio.limits.network import Network
from nescio.limits.pieces import Site
from nescio.models import ModelLike
from nescio.types import InputError

_MOST_BYTES = 2**32  # of half-spaces that are written down
_AT_ONCE = 2**24  # numbers that a pass may make at a time


@dataclass(frozen=True)
class Region:
    """Hold the linear regions around N inputs.

    D is the number of entries of an input, in the order of `x.flatten(1)`.

    Attributes:
        x: The inputs, float64 ``[N, ...]``.
        V: ``[N, C, D]``: the logits are V x + a throughout the region.
        a: The offset of the logits, ``[N, C]``.
        distance: ``[N]``, to the nearest face; infinite where there is none.
        network: The network, piece by piece.
        sites: Its activations, and on which piece of each the inputs lie.

    Examples:
        >>> around = nescio.limits.region(torch.nn.Linear(2, 3), torch.rand(5, 2))
        >>> around.V.shape, around.distance
        (torch.Size([5, 3, 2]), tensor([inf, inf, inf, inf, inf], dtype=torch.float64))
    """

    x: Tensor
    V: Tensor
    a: Tensor
    distance: Tensor
    network: Network = field(repr=False)
    sites: list[Site] = field(repr=False)

    def halfspaces(self) -> tuple[Tensor, Tensor]:
        """Normals A ``[N, U, D]`` and offsets b ``[N, U]``: the region is where A z + b ≥ 0.

        Rows of zeros belong to units that no input of the region can change, and to the entries that a max-pool chose.
        """
        margins = self._margins()
        need = 8 * margins.numel() * self.V.shape[2]
        if need > _MOST_BYTES:
            raise InputError(
                f"expected half-spaces of at most {_MOST_BYTES / 1e9:.1f} GB, got {need / 1e9:.1f} GB; give fewer "
                "inputs, or use .distance and .reach(direction), which do not write them down"
            )
        parts: list[Tensor] = []
        with self.network.working():
            _unit_passes(self.network, self.sites, self.x, 1, lambda rates: parts.append(rates.permute(1, 2, 0)))
        normals = torch.cat(parts, 2) if parts else self.V.new_zeros(len(self.x), 0, self.V.shape[2])
        return normals, margins - (normals @ self.x.flatten(1)[:, :, None]).squeeze(2)

    def reach(self, direction: Values) -> Tensor:
        """Compute how far x + α·direction stays in the region.

        Args:
            direction: One for all inputs, or one for each.

        Returns:
            The largest α, ``[N]``; infinite where it never leaves the region.
        """
        d = self.network.along(self.x, direction)
        margins, rates = self._margins(), []
        with self.network.working():
            self.network.rates(self.sites, d[None], lambda site, h: rates.append(site.measure(h, False)[0]))
        r = torch.cat(rates, 1) if rates else margins
        steps = torch.where(r < 0, margins / -r, torch.inf)
        return steps.amin(1).cpu() if steps.shape[1] else torch.full((len(d),), torch.inf, dtype=torch.float64)

    def unbounded(self, direction: Values) -> Tensor:
        """Return whether the region goes on for ever along the direction.

        Args:
            direction: One for all inputs, or one for each.

        Returns:
            True where it does, bool ``[N]``.
        """
        return self.reach(direction).isinf()

    def _margins(self) -> Tensor:
        margins: list[Tensor] = []
        with self.network.working():
            self.network.values(self.sites, self.x, lambda site, h: margins.append(site.measure(h, True)[0]))
        return torch.cat(margins, 1).clamp(min=0.0) if margins else self.x.new_zeros(len(self.x), 0)


def region(model: ModelLike, x: Data, *, output: str | None = None) -> Region:
    """Find the affine map and the polytope around each input of a piecewise-linear classifier.

    Everything is in float64 and exact but for round-off, whatever the type of the model.

    Args:
        model: The classifier.
        x: Inputs ``[N, ...]``.
        output: What the model returns, as in `nescio.score`.

    Returns:
        The regions.

    Raises:
        ModelError: The network is not linear piece by piece; the message names the first operation that is not.

    Examples:
        >>> model, x = torch.nn.Linear(2, 3), torch.rand(5, 2)
        >>> torch.allclose(region(model, x).V[0].float(), model.weight)
        True
    """
    network = Network(model, output)
    x = network.checked_batch(x)
    margins: list[Tensor] = []
    norms: list[Tensor] = []
    rows: list[Tensor] = []
    towards = torch.randn(x.shape[1:], dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(x.device)
    with network.working():
        sites, z = network.settle(x, towards.expand_as(x))
        network.values(sites, x, lambda site, h: margins.append(site.measure(h, True)[0]))
        network.check(x, z[0])

        def add(rates: Tensor) -> None:
            squares = rates.square().sum(0)
            norms[:] = [norms[0] + squares] if norms else [squares]

        _unit_passes(network, sites, x, 2**3, add, rows)
    V = torch.cat(rows).permute(1, 2, 0)
    a = z[0] - (V @ x.flatten(1)[:, :, None]).squeeze(2)
    distance = x.new_full((len(x),), torch.inf)
    if margins:
        m, norm = torch.cat(margins, 1).clamp(min=0.0), norms[0].sqrt()
        far = torch.where(norm > 0, m / norm, torch.inf)
        distance = far.amin(1)
    return Region(x, V, a, distance, network, sites)


def _unit_passes(
    network: Network, sites: list[Site], x: Tensor, share: int, take: Any, rows: list[Tensor] | None = None
) -> None:
    """Passes along the unit vectors, a few at a time: `take` is given the rates of the margins, [K, N, U]."""
    size = x[0].numel()
    step = max(1, min(size, _AT_ONCE // max(1, share * network.numbers * len(x))))
    for start in range(0, size, step):
        units = torch.zeros(min(step, size - start), size, dtype=torch.float64, device=x.device)
        units[:, start : start + step].fill_diagonal_(1.0)
        tangents = units.view(-1, 1, *x.shape[1:]).expand(-1, len(x), *x.shape[1:])
        rates: list[Tensor] = []
        z = network.rates(sites, tangents, lambda site, h, rates=rates: rates.append(site.measure(h, False)))  # type: ignore[misc]
        if rows is not None:
            rows.append(z)
        if rates:
            take(torch.cat(rates, 2))
