"""`surface`: a score over a plane of inputs, and how large its gradient by the input is there.

    x(u, v) = p_0 + u (p_1 − p_0) + v (p_2 − p_0),     for inputs of two numbers without points: x(u, v) = (u, v)

The gradient is autograd's, ‖∂ score/∂x‖ over all entries of the input, where the score is differentiable (as those of
`uncertainty` are). Otherwise it is the gradient within the plane, by central differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio._common.arrays import Values
from nescio.inputs import describe
from nescio.limits.settling import SCORES
from nescio.models import Classifier, ModelLike
from nescio.modes import preserved, tracing
from nescio.posteriors.base import PosteriorBase, ScaledNetwork
from nescio.trace.backward.substitutes.corrected import CorrectedOps
from nescio.types import InputError


@dataclass(frozen=True)
class Surface:
    """Hold values on a grid: ``values[i, j]`` at (u_j, v_i), as matplotlib's contour takes them.

    Attributes:
        u: The first coordinates, float64 ``[n]``.
        v: The second coordinates, float64 ``[n]``.
        values: float64 ``[n, n]``.
        gradient: ‖∂ score/∂x‖, float64 ``[n, n]``.
        differentiated: True: by autograd, over the whole input; False: by central differences, within the plane.

    Examples:
        >>> field = nescio.limits.surface(lambda x: x.sum(1), (0, 1), (0, 1), n=2)
        >>> field.values
        tensor([[0., 1.],
                [1., 2.]], dtype=torch.float64)
    """

    u: Tensor
    v: Tensor
    values: Tensor
    gradient: Tensor
    differentiated: bool


def surface(
    score: Callable[[Tensor], Tensor],
    xlim: tuple[float, float],
    ylim: tuple[float, float],
    n: int = 100,
    *,
    points: Values | None = None,
    batch: int = 4096,
    dtype: torch.dtype = torch.float64,
) -> Surface:
    """Compute a score on an n × n grid of a plane.

    Args:
        score: A function from a batch of inputs to one number each, such as ``limits.uncertainty(model, "entropy")`` or
            ``lambda x: nescio.score(model, x)``.
        xlim: Where the first coordinate begins and ends.
        ylim: Where the second coordinate begins and ends.
        n: Points along each side.
        points: Three inputs ``[3, ...]``, which lie at (0, 0), (1, 0) and (0, 1); None for inputs of two numbers.
        batch: Inputs at a time.
        dtype: The type of the inputs that the score is given.

    Returns:
        The values, and the norms of their gradients.

    Examples:
        >>> score = nescio.limits.uncertainty(torch.nn.Linear(2, 3), "entropy")
        >>> nescio.limits.surface(score, (-3, 3), (-3, 3), n=10).values.shape
        torch.Size([10, 10])
    """
    integer("n", n, at_least=2)
    for name, bounds in (("xlim", xlim), ("ylim", ylim)):
        if len(bounds) != 2 or not -float("inf") < bounds[0] < bounds[1] < float("inf"):
            raise InputError(f"expected {name} to be two finite numbers in rising order, got {bounds!r}")
    origin, first, second = _plane(points)
    u, v = (torch.linspace(*bounds, n, dtype=torch.float64) for bounds in (xlim, ylim))
    grid = torch.cartesian_prod(v, u).flip(1)
    basis = torch.stack([first, second])

    def inputs_at(places: Tensor) -> Tensor:
        result: Tensor = (origin + torch.tensordot(places, basis, 1)).to(dtype)
        return result

    values, slopes, exact = [], [], True
    for places in grid.split(batch):
        x = inputs_at(places).requires_grad_(True)
        with torch.enable_grad():
            scores = _checked_scores(score(x), len(places))
            if scores.requires_grad:
                (slope,) = torch.autograd.grad(scores.sum(), x)
                slopes.append(slope.double().flatten(1).norm(dim=1).cpu())
            else:
                exact = False
        values.append(scores.detach())
    if not exact:
        slopes = [_differences(score, inputs_at, places, basis, (xlim, ylim), dtype) for places in grid.split(batch)]
    return Surface(u, v, torch.cat(values).view(n, n), torch.cat(slopes).view(n, n), exact)


def uncertainty(model: ModelLike, score: str = "entropy", *, output: str | None = None) -> Callable[[Tensor], Tensor]:
    """Return a score of a model as a differentiable function of the input.

    Args:
        model: A model, a list of models, or a distribution that is made of networks, such as a `DeepEnsemble`.
        score: "max_probability", "entropy", "mutual_information", "variance" or "aleatoric".
        output: What the model returns, as in `nescio.score`.

    Returns:
        A function from inputs ``[N, ...]`` to the score, float64 ``[N]``; it works in the type of the model.

    Examples:
        >>> x = torch.rand(5, 2, requires_grad=True)
        >>> nescio.limits.uncertainty(torch.nn.Linear(2, 3))(x).sum().backward()
        >>> x.grad.shape
        torch.Size([5, 2])
    """
    if score not in SCORES:
        raise InputError(f"expected a score among {', '.join(SCORES)}, got {score!r}")
    networks = model.networks() if isinstance(model, PosteriorBase) else None
    if networks is None:
        models = model if isinstance(model, list | tuple) else [model]
        networks = [ScaledNetwork(Classifier.of(one, output)) for one in models]

    def value(x: Tensor) -> Tensor:
        logits = []
        for network in networks:
            own = network.classifier
            with preserved(own), tracing(own), CorrectedOps():
                logits.append(network.scaled(own.logits(x.to(own.device, own.dtype)).double()))
        log_p = torch.stack(logits).log_softmax(-1)
        p = log_p.exp()
        mean = p.mean(0)
        log_mean = log_p.logsumexp(0) - math.log(len(p))
        if score == "max_probability":
            return 1 - mean.amax(-1)
        if score == "variance":
            return (p - mean).square().sum(-1).mean(0)
        total, aleatoric = -(mean * log_mean).sum(-1), -(p * log_p).sum(-1).mean(0)
        return {"entropy": total, "aleatoric": aleatoric, "mutual_information": total - aleatoric}[score]

    return value


def _plane(points: Values | None) -> tuple[Tensor, Tensor, Tensor]:
    if points is None:
        return torch.zeros(2).double(), torch.tensor([1.0, 0.0]).double(), torch.tensor([0.0, 1.0]).double()
    plane = torch.as_tensor(points).detach().to("cpu", torch.float64)
    if plane.ndim < 2 or len(plane) != 3 or not bool(plane.isfinite().all()):
        raise InputError(f"expected three inputs [3, ...] of finite numbers as points, got {describe(points)}")
    first, second = plane[1] - plane[0], plane[2] - plane[0]
    if torch.linalg.matrix_rank(torch.stack([first.flatten(), second.flatten()])) < 2:
        raise InputError("expected three points that span a plane, got points on one line; choose others")
    return plane[0], first, second


def _checked_scores(scores: object, count: int) -> Tensor:
    if not isinstance(scores, Tensor) or scores.shape != (count,):
        raise InputError(f"expected the score to give one number for each of {count} inputs, got {describe(scores)}")
    return scores.double().cpu()


def _differences(score: Any, inputs_at: Any, places: Tensor, basis: Tensor, limits: Any, dtype: torch.dtype) -> Tensor:
    """The norm of the gradient in the plane: differences along u and v, in the geometry of the input space."""
    parts = []
    for axis, (low, high) in enumerate(limits):
        step = torch.zeros(2, dtype=torch.float64)
        step[axis] = (high - low) * 6e-3 if dtype != torch.float64 else (high - low) * 1e-4
        with torch.no_grad():
            ahead, behind = (_checked_scores(score(inputs_at(places + s * step)), len(places)) for s in (1, -1))
        parts.append((ahead - behind) / (2 * step[axis]))
    slopes = torch.stack(parts, 1)
    flat = basis.flatten(1)
    metric = torch.linalg.inv(flat @ flat.T)
    return torch.einsum("ni,ij,nj->n", slopes, metric, slopes).clamp(min=0).sqrt()
