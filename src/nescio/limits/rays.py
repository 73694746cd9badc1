"""`ray`: where a piecewise-linear network goes along x + α d, α from 0 to infinity, and what its softmax tends to.

Behind the last breakpoint the logits are z + α s, s = V d with the V of the last region. With T = {c: s_c = max s}

    p_c → exp(z_c) / Σ_{k in T} exp(z_k)  for c in T,   0 for all others:

one-hot, unless several classes tie. So every uncertainty that is made from probabilities tends to a fixed number, and
from nescio._common.arrays import Values
from there on knows nothing of how far away the input is (Ulmer & Cinà 2021, Propositions 1 and 2, Lemmas 4 to 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio._common.arrays import Values
from nescio.inputs import Data
from nescio.limits.members import Models, members
from nescio.limits.settling import SCORES, settling_alpha
from nescio.limits.walk import Path
from nescio.progress import bar
from nescio.scores.decomposition import decompose
from nescio.types import Decomposition, InputError

_TIED = 1e-12  # slopes of logits that differ by less, relative to the largest, are equal


@dataclass(frozen=True)
class Ray:
    """Hold N rays of S networks. All tensors are float64 and on the CPU.

    Attributes:
        x: Where the rays start, ``[N, ...]``.
        direction: Where they go, ``[N, ...]``.
        paths: The logits along each ray, ``paths[s][n]``.
        samples: ``[S, N, C]``: the limit of each network's softmax.
        tied: ``[S, N, C]``: the classes that share that limit; one for each network and ray, unless slopes tie.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> along = nescio.limits.ray(model, torch.rand(5, 2), torch.tensor([1.0, 0.0]), progress=False)
        >>> along.probabilities.sum(1)
        tensor([1., 1., 1., 1., 1.], dtype=torch.float64)
    """

    x: Tensor
    direction: Tensor
    paths: tuple[tuple[Path, ...], ...]
    samples: Tensor
    tied: Tensor

    @cached_property
    def breakpoints(self) -> tuple[Tensor, ...]:
        """For each ray every α > 0 at which it leaves a linear region of any network, in order."""
        return tuple(
            torch.cat([path.breakpoints for path in paths]).unique(sorted=True)
            for paths in zip(*self.paths, strict=True)
        )

    @property
    def probabilities(self) -> Tensor:
        """The limit of the predicted probabilities, the mean over the networks, ``[N, C]``."""
        return self.samples.mean(0)

    @cached_property
    def limits(self) -> Decomposition:
        """The limit of every uncertainty: max_probability, total (entropy), epistemic (mutual information) …"""
        return decompose(self.samples)

    @property
    def slopes(self) -> Tensor:
        """V d in the last region: the change of the logits with α, ``[S, N, C]``."""
        return torch.stack([torch.stack([path.slope for path in paths]) for paths in self.paths])

    def logits(self, alpha: Values) -> Tensor:
        """Compute the logits at x + α d, read from the paths.

        Args:
            alpha: One α or several.

        Returns:
            The logits ``[S, N, A, C]``.
        """
        a = torch.as_tensor(alpha, dtype=torch.float64).reshape(-1)
        if not bool((a >= 0).all()) or not bool(a.isfinite().all()):
            raise InputError("expected finite α of at least 0, got others; for what lies behind give -direction")
        return torch.stack([torch.stack([path.at(a) for path in paths]) for paths in self.paths])

    def settles(self, score: str = "max_probability", within: float = 0.01, *, progress: bool | None = None) -> Tensor:
        """Return the α behind which the score stays near its limit.

        Args:
            score: max_probability, entropy, mutual_information, variance or aleatoric.
            within: How near.
            progress: True shows a bar of the rays, False none, None one where it takes long.

        Returns:
            The α of each ray, ``[N]``; 0 where the score never leaves its limit.
        """
        if score not in SCORES:
            raise InputError(f"expected a score among {', '.join(SCORES)}, got {score!r}")
        if not 0 < within < 1:
            raise InputError(f"expected within to be a number between 0 and 1, got {within!r}")
        if (score, within) not in self._settled:
            alphas, every = [], list(zip(*self.paths, strict=True))
            with bar(len(every), show=progress, description=f"following {score}", unit="ray") as shown:
                for n, paths in enumerate(every):
                    alphas.append(settling_alpha(list(paths), self.samples[:, n], self.tied[:, n], score, within))
                    shown.update(1)
            self._settled[score, within] = torch.tensor(alphas, dtype=torch.float64)
        return self._settled[score, within].clone()

    @cached_property
    def _settled(self) -> dict[tuple[str, float], Tensor]:
        return {}


def ray(
    model: Models,
    x: Data,
    direction: Values,
    *,
    most: int = 100_000,
    output: str | None = None,
    progress: bool | None = None,
) -> Ray:
    """Find every breakpoint along x + α·direction, α > 0, exactly, and the limits behind the last.

    Many rays at once take far less time than one after another.

    Args:
        model: A piecewise-linear classifier, a list of them, a `DeepEnsemble`, or a `Temperature` on one.
        x: Inputs ``[N, ...]``.
        direction: One for all inputs, or one for each.
        most: Breakpoints along a ray beyond which it gives up.
        output: What the model returns, as in `nescio.score`.
        progress: True shows a bar of the faces crossed, False none, None one where it takes long.

    Returns:
        The rays.

    Raises:
        ModelError: The network is not linear piece by piece.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> along = nescio.limits.ray(model, torch.rand(5, 2), torch.tensor([1.0, 0.0]), progress=False)
        >>> along.settles("entropy").shape
        torch.Size([5])
    """
    networks = members(model, output)
    integer("most", most, at_least=1)
    network = networks[0].network
    starts = network.checked_batch(x)
    d = network.along(starts, direction)
    with bar(None, show=progress, description="walking rays", unit="face") as shown:
        paths = tuple(
            tuple(m.paths(m.network.checked_batch(starts), m.network.checked_batch(d, "direction"), most, shown.update))
            for m in networks
        )
    if len({path.slope.shape for each in paths for path in each}) > 1:
        raise InputError("expected models with the same classes, got others")
    slopes = torch.stack([torch.stack([path.slope for path in each]) for each in paths])
    ends = torch.stack([torch.stack([path.logits[-1] for path in each]) for each in paths])
    tied = slopes >= slopes.amax(-1, keepdim=True) - _TIED * slopes.abs().amax(-1, keepdim=True)
    samples = ends.masked_fill(~tied, -torch.inf).softmax(-1)
    return Ray(starts.cpu(), d.cpu(), paths, samples, tied)
