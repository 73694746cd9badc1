"""Counterfactuals: which input, near this one, would be less uncertain? Its difference from this one is the map.

    CLUE     w* = argmin_w U(f(w)) + λ mean|f(w) − x|,   from w = μ(x)                       (Antorán et al. 2021)
    δ-CLUE   the same without the distance, within ‖w − μ(x)‖ ≤ δ, from several random starts (Ley et al. 2021)
    map      mean_channels |x − f(w*)|, for δ-CLUE its mean over the starts

f is the decoder and μ the encoder of a `VAE` that was trained on inputs like these. Steps are those of Adam, each
input on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio._common.argument_checks import integer, number
from nescio.attribution.base import MapMethod
from nescio.attribution.problem import Problem
from nescio.attribution.vae import VAE
from nescio.inputs import describe
from nescio.modes import predicting, preserved
from nescio.training import spawned
from nescio.types import InputError


@dataclass(frozen=True)
class CLUE(MapMethod):
    """Search for the least uncertain input nearby, and take the change to it as the map (Antorán et al. 2021).

    Args:
        vae: An auto-encoder of such inputs, in whose latent space the search goes on.
        steps: Steps of the search.
        lr: Their size.
        weight: λ, how much the distance from the input weighs.

    Examples:
        >>> vae = nescio.attribution.VAE(nescio.attribution.vae.Shape((4,), latent=2, width=2))
        >>> posterior = nescio.posteriors.InsertedDropout(torch.nn.Linear(4, 3), samples=2)
        >>> nescio.explain(posterior, torch.rand(2, 4), nescio.attribution.CLUE(vae, steps=2)).maps.shape
        torch.Size([2, 4])
    """

    vae: VAE | None = None
    steps: int = 40
    lr: float = 0.1
    weight: float = 1.5

    name = "clue"

    def __post_init__(self) -> None:
        _check(self.vae, self.steps, self.lr)
        number("weight", self.weight, at_least=0)

    @property
    def words(self) -> str:
        return f"CLUE: the change to a less uncertain input, {self.steps} steps in the latent space of a VAE"

    def attribute(self, problem: Problem) -> Tensor:
        assert self.vae is not None
        search = _Search(problem, self.vae, self.steps, self.lr)
        return search.change(search.least_uncertain(search.origin, self.weight))


@dataclass(frozen=True)
class DeltaCLUE(MapMethod):
    """Search for several less uncertain inputs within a ball, and take the mean change (Ley et al. 2021).

    Args:
        vae: An auto-encoder of such inputs, in whose latent space the search goes on.
        steps: Steps of each search.
        lr: Their size.
        delta: The radius of the ball in the latent space.
        starts: How many searches.
        seed: Of the places at which they start.

    Examples:
        >>> vae = nescio.attribution.VAE(nescio.attribution.vae.Shape((4,), latent=2, width=2))
        >>> method = nescio.attribution.DeltaCLUE(vae, steps=2, starts=2)
        >>> posterior = nescio.posteriors.InsertedDropout(torch.nn.Linear(4, 3), samples=2)
        >>> nescio.explain(posterior, torch.rand(2, 4), method).maps.shape
        torch.Size([2, 4])
    """

    vae: VAE | None = None
    steps: int = 40
    lr: float = 0.1
    delta: float = 3.5
    starts: int = 5
    seed: int = 0

    name = "delta_clue"

    def __post_init__(self) -> None:
        _check(self.vae, self.steps, self.lr)
        number("delta", self.delta, above=0.0)
        integer("starts", self.starts, at_least=1)
        integer("seed", self.seed, at_least=0)

    @property
    def words(self) -> str:
        return f"delta-CLUE: the mean change to {self.starts} less uncertain inputs within {self.delta:g} in a VAE"

    def attribute(self, problem: Problem) -> Tensor:
        assert self.vae is not None
        search = _Search(problem, self.vae, self.steps, self.lr)
        origin = search.origin

        def within(w: Tensor) -> Tensor:
            away = w - origin
            length = away.norm(dim=1, keepdim=True)
            result: Tensor = origin + away * (self.delta / length.clamp(min=self.delta))
            return result

        maps = []
        for start in range(self.starts):
            random = torch.Generator("cpu").manual_seed(spawned(self.seed, start))
            away = torch.randn(origin.shape[1], generator=random)
            radius = self.delta * torch.rand(1, generator=random) ** (1.0 / origin.shape[1])  # uniform in the ball
            w = origin + (radius * away / away.norm()).to(origin)
            maps.append(search.change(search.least_uncertain(w, 0.0, within)))
        return torch.stack(maps).mean(0)


class _Search:
    """The search for a batch of inputs."""

    def __init__(self, problem: Problem, vae: VAE, steps: int, lr: float) -> None:
        self.problem, self.vae, self.steps, self.lr = problem, vae, steps, lr
        member, source = problem.members[0], problem.source
        start = source.tensor(member.before(problem.x))
        if source.tokens or tuple(start.shape[1:]) != vae.shape.shape:
            raise InputError(
                f"expected inputs like those of the VAE, floats of shape [N, {', '.join(map(str, vae.shape.shape))}], "
                f"got {describe(start)}; train one on such inputs: nescio.attribution.VAE.train_on(x)"
            )
        self.x = start.detach().to(vae.center)
        with preserved(vae), predicting(vae):
            self.origin = vae.encode(self.x)[0]

    def least_uncertain(self, w: Tensor, weight: float, within: Callable[[Tensor], Tensor] = lambda w: w) -> Tensor:
        """The end of the search, as inputs; it starts at w."""
        w = w.detach().clone().requires_grad_()
        optimizer = torch.optim.Adam([w], lr=self.lr)
        with preserved(self.vae), torch.enable_grad():
            self.vae.eval()
            for _ in range(self.steps):
                y = self.vae.decode(w)
                slope = self.problem.gradient(lambda value, y=y: y.detach().to(value))[0].to(y)  # type: ignore[misc]
                slope = slope + weight * (y - self.x).detach().sign() / self.x[0].numel()
                (w.grad,) = torch.autograd.grad(y, w, slope)
                optimizer.step()
                with torch.no_grad():
                    w.copy_(within(w))
            return self.vae.decode(w).detach()

    def change(self, y: Tensor) -> Tensor:
        """The magnitude of what changed, [1, N, *places]."""
        return self.problem.places.mean((self.x - y).abs().to("cpu", torch.float64).unsqueeze(0))


def _check(vae: object, steps: int, lr: float) -> None:
    if not isinstance(vae, VAE):
        raise InputError(
            f"expected vae= to be a nescio.attribution.VAE, got {describe(vae)}; train one on inputs like these: "
            "nescio.attribution.VAE.train_on(x_train)"
        )
    integer("steps", steps, at_least=1)
    number("lr", lr, above=0.0)
