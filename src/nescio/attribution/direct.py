"""Methods that attribute the uncertainty itself, as if it were a network's one output; the baselines of UA-Backprop.

    gradient              mean_channels |∂U/∂x|
    smoothgrad            mean_channels |mean over copies x + σε of ∂U/∂x|
    fullgrad              mean_channels |∂U/∂x ⊙ x| + Σ_s Σ_l mean_channels |∂U/∂b^s_l ⊙ b^s_l|
    integrated_gradients  Σ_channels (x − x') ∫₀¹ ∂U/∂x (x' + α(x − x')) dα       = U(x) − U(x') when added up
    blur_ig               Σ_channels ∫ ∂U/∂x (blur_σ x) d(blur_σ x), σ from large to 0,  likewise
    blur_gradient         Σ_channels ∂U/∂x (x − blur_σ x):  what blurring a pixel takes away, to first order

Only integrated gradients and Blur IG are complete, up to the uncertainty of where their path starts. The integral of
the first is a Gauss–Legendre sum; that of the second is taken between neighbours on a grid of σ, with the gradient
half-way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio._common.argument_checks import integer, number
from nescio.attribution import logit_maps
from nescio.attribution.base import MapMethod
from nescio.attribution.blur import blurred
from nescio.attribution.defaults import BLUR, BLUR_STEPS, COPIES, NOISE, STEPS
from nescio.attribution.noisy_copies import mean, noisy
from nescio.attribution.places import Places
from nescio.attribution.problem import Problem, in_float64
from nescio.inputs import describe
from nescio.types import InputError


@dataclass(frozen=True)
class Gradient(MapMethod):
    """Take the magnitude of the gradient of the uncertainty at the input. It adds up to nothing in particular.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> nescio.explain(model, torch.rand(2, 4), nescio.attribution.Gradient()).maps.shape
        torch.Size([2, 4])
    """

    name = "gradient"
    words = "the magnitude of the gradient"

    def attribute(self, problem: Problem) -> Tensor:
        return _magnitude(problem.gradient(), problem.places)


@dataclass(frozen=True)
class SmoothGrad(MapMethod):
    """Take the magnitude of the gradient's mean over noisy copies (Smilkov et al. 2017).

    Args:
        copies: How many.
        noise: Their noise, as a share of the range of each input.
        seed: Of the noise.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> nescio.explain(model, torch.rand(2, 4), nescio.attribution.SmoothGrad(copies=3)).maps.shape
        torch.Size([2, 4])
    """

    copies: int = COPIES
    noise: float = NOISE
    seed: int = 0

    name = "smoothgrad"

    def __post_init__(self) -> None:
        integer("copies", self.copies, at_least=1)
        number("noise", self.noise, above=0.0)
        integer("seed", self.seed, at_least=0)

    @property
    def words(self) -> str:
        return f"the mean gradient of {self.copies} noisy copies (noise {self.noise:g} of the range)"

    def attribute(self, problem: Problem) -> Tensor:
        copies = [problem.gradient(noisy(self.noise, self.seed, copy)) for copy in range(self.copies)]
        return _magnitude([mean(list(parts)) for parts in zip(*copies, strict=True)], problem.places)


@dataclass(frozen=True)
class FullGrad(MapMethod):
    """Add up the gradients at the input and at all biases, each times its value (Srinivas & Fleuret 2019).

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> nescio.explain(model, torch.rand(2, 4), nescio.attribution.FullGrad()).maps.shape
        torch.Size([2, 4])
    """

    name = "fullgrad"
    words = "FullGrad: gradients at the input and at the biases"

    def attribute(self, problem: Problem) -> Tensor:
        places, bias_maps, inner = problem.places, [], []
        for slope in problem.gradients(keep=logit_maps.bias_of):
            maps: list[Tensor] = []
            held: list[Tensor] = []
            full = logit_maps.reader("fullgrad", slope.run, places, maps)

            def read(call: Any, g: Tensor, full: Any = full, held: list[Tensor] = held) -> None:
                if call is None:  # members share the input: their gradients there are added up before the magnitude
                    held.append(g)
                    g = torch.zeros_like(g)
                full(call, g)

            slope.each(read)
            bias_maps.append(maps[0].to("cpu", torch.float64))
            inner.append((held[0] * slope.run.root)[0].to("cpu", torch.float64))
        parts = inner if problem.source.tokens else [torch.stack(inner).sum(0)]
        return _magnitude(parts, places) + torch.stack(bias_maps).sum(0)


@dataclass(frozen=True)
class IntegratedGradients(MapMethod):
    """Integrate the gradients along the straight path from a baseline (Sundararajan et al. 2017).

    Args:
        baseline: A number, or a tensor like one input; 0 is black.
        steps: Points on the path.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> nescio.explain(model, torch.rand(2, 4), nescio.attribution.IntegratedGradients(steps=5)).maps.shape
        torch.Size([2, 4])
    """

    baseline: Any = 0.0
    steps: int = STEPS

    name = "integrated_gradients"

    def __post_init__(self) -> None:
        integer("steps", self.steps, at_least=1)
        if isinstance(self.baseline, Tensor):
            if not self.baseline.is_floating_point() or not bool(self.baseline.isfinite().all()):
                raise InputError(f"expected a baseline of finite floats, got {describe(self.baseline)}")
        else:
            number("baseline", self.baseline)

    @property
    def words(self) -> str:
        start = "a given one" if isinstance(self.baseline, Tensor) else f"{self.baseline:g}"
        return f"integrated gradients in {self.steps} steps from the baseline {start}"

    def attribute(self, problem: Problem) -> Tensor:
        nodes, weights = np.polynomial.legendre.leggauss(self.steps)

        def start(value: Tensor) -> Tensor:
            baseline = torch.as_tensor(self.baseline, dtype=torch.float64).to(value)
            try:
                return baseline.expand(value.shape[1:])
            except RuntimeError as error:
                raise InputError(
                    f"expected a baseline like one input, of shape {list(value.shape[1:])}, got {describe(baseline)}"
                ) from error

        def point(alpha: float, weight: float) -> _Point:
            return (
                lambda value: start(value) + alpha * (value - start(value)),
                lambda value: weight * (value - start(value)),
            )

        points = [point(float(0.5 * (1.0 + node)), float(0.5 * w)) for node, w in zip(nodes, weights, strict=True)]
        return _integral(problem, points)


@dataclass(frozen=True)
class BlurIG(MapMethod):
    """Integrate the gradients along the path from a blurred picture (Xu et al. 2020).

    Args:
        steps: Points on the path.
        sigma: The width of the blur at its start, in pixels; None for half of the longer side.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        >>> nescio.explain(model, torch.rand(2, 1, 8, 8), nescio.attribution.BlurIG(steps=3)).maps.shape
        torch.Size([2, 8, 8])
    """

    steps: int = BLUR_STEPS
    sigma: float | None = None

    name = "blur_ig"

    def __post_init__(self) -> None:
        integer("steps", self.steps, at_least=1)
        if self.sigma is not None:
            number("sigma", self.sigma, above=0.0)

    @property
    def words(self) -> str:
        return f"blur integrated gradients in {self.steps} steps"

    def attribute(self, problem: Problem) -> Tensor:
        places = _to_blur(problem)
        most = max(places.shape) / 2 if self.sigma is None else self.sigma
        # denser towards 0, where a picture changes most
        sigmas = [most * (step / self.steps) ** 2 for step in range(self.steps + 1)]

        def point(low: float, high: float) -> _Point:
            return (
                lambda value: blurred(value, (low + high) / 2, places.features),
                lambda value: blurred(value, low, places.features) - blurred(value, high, places.features),
            )

        return _integral(problem, [point(a, b) for a, b in pairwise(sigmas)])


@dataclass(frozen=True)
class BlurGradient(MapMethod):
    """Take the gradient times what blurring would change: how much uncertainty a blurred pixel takes away, or adds.

    It is a first-order answer to the very question of the blurring test (`nescio.evaluate.blurring`), for one gradient:
    a pixel above 0 adds doubt that blurring takes away. It says nothing of what else could be done to the pixel.

    Args:
        sigma: The width of the blur, in pixels.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
        >>> nescio.explain(model, torch.rand(2, 1, 8, 8), nescio.attribution.BlurGradient()).maps.shape
        torch.Size([2, 8, 8])
    """

    sigma: float = BLUR

    name = "blur_gradient"

    def __post_init__(self) -> None:
        number("sigma", self.sigma, above=0.0)

    @property
    def words(self) -> str:
        return f"the gradient times what a blur of {self.sigma:g} pixels changes"

    def attribute(self, problem: Problem) -> Tensor:
        places = _to_blur(problem)
        return _integral(
            problem, [(lambda value: value, lambda value: value - blurred(value, self.sigma, places.features))]
        )


def _to_blur(problem: Problem) -> Places:
    """The places of pictures, or an InputError."""
    places = problem.places
    if not places.picture or problem.source.tokens:
        raise InputError(
            f"expected pictures [N, channels, H, W] to blur, got inputs with places {list(places.shape)}; take "
            "method='integrated_gradients'"
        )
    return places


_Point = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]
"""A point of a path, and the step of the path there, both from what is attributed."""


def _integral(problem: Problem, points: list[_Point]) -> Tensor:
    """Σ_points ∂U/∂x(point) · step, added up over features and members: [1, N, *places]."""
    places, total = problem.places, torch.zeros(())
    for at, step in points:
        steps: list[Tensor] = []

        def change(value: Tensor, at: Any = at, step: Any = step, steps: list[Tensor] = steps) -> Tensor:
            steps[:] = [in_float64(step(value))]
            result: Tensor = at(value)
            return result

        for slope in problem.gradients(change):
            part = places.sum((slope.gradient() * steps[0]).unsqueeze(0))
            total = total.to(part) + part
    return total


def _magnitude(gradients: list[Tensor], places: Places) -> Tensor:
    """The mean over features of magnitudes, added up over what has gradients of its own: [1, N, *places]."""
    maps = torch.stack([places.mean(g.abs().unsqueeze(0)) for g in gradients]).sum(0)
    return maps if places.absent is None else maps.masked_fill(places.absent.to(maps.device), 0.0)
