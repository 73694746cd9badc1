"""`Temperature`: a distribution made honest on held-out data, by scaling the logits of every sample.

    "temperature"   z ↦ z/T                     one T > 0
    "platt"         z ↦ w ⊙ z + b               a scale and a shift for each class (vector scaling)
    minimise        −(1/N) Σ_n log (1/S) Σ_s softmax(z^s_n)_{y_n}

in float64, the same result every time. For one sample the first is convex in 1/T, and the zero of its slope in log T,

    (1/(T N)) Σ_n Σ_s r_ns (z^s_{n,y} − Σ_c p^s_{n,c} z^s_{n,c}),    r_ns = p^s_{n,y}/Σ_s' p^s'_{n,y},

is found by halving; for more samples a grid of T comes first. Where the held-out predictions are all right the best T
is 0: it ends at a bound, and a warning says so. "platt" starts from 1/T, by Newton's method with a ridge of 1e-6 on
(w − 1, b), which settles what the data leave open.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from nescio._common.argument_checks import choice, number
from nescio._common.arrays import Values
from nescio.inputs import Data, Inputs, describe, labelled
from nescio.models import Classifier, ModelLike
from nescio.posteriors.base import PosteriorBase, ScaledNetwork
from nescio.posteriors.deterministic import Deterministic
from nescio.posteriors.saving import check_tensors, pack, saved, unpack
from nescio.types import InputError, Posterior

LOWEST, HIGHEST = 1e-3, 1e3
"""Bounds of T."""
_RIDGE = 1e-6


@saved("temperature")
class Temperature(PosteriorBase):
    """Scale the logits of a distribution, or of a model, to make it honest on held-out data (Guo et al. 2017).

    With kind="temperature" and a single network the predicted class never changes. After `fit` or `fit_logits`,
    `temperature` has T, and for kind="platt" `scale` and `shift` have w and b.

    Args:
        base: The distribution, or the model.
        kind: "temperature" fits one T, "platt" a scale and a shift for each class.
        output: What the model returns, as in `nescio.score`; with a model only.

    Examples:
        >>> posterior = Temperature(torch.nn.Linear(4, 3)).fit((torch.rand(60, 4), torch.arange(60) % 3))
        >>> posterior.predict(torch.rand(5, 4)).shape
        torch.Size([1, 5, 3])
    """

    def __init__(
        self,
        base: Posterior | Classifier | Callable[..., Any],
        kind: Literal["temperature", "platt"] = "temperature",
        *,
        output: str | None = None,
    ) -> None:
        self.kind = choice("kind", kind, ("temperature", "platt"))
        self.base = _distribution(base, output)
        self.classifiers, self.learnt = self.base.classifiers, self.base.learnt
        self.temperature: float | None = None
        self.scale: Tensor | None = None
        self.shift: Tensor | None = None

    def fit(self, data: Data, *, progress: bool | None = None) -> Self:
        """Fit on held-out data.

        Args:
            data: A pair (inputs, labels), or an iterable of such pairs.
            progress: As in `nescio.score`.

        Returns:
            The distribution itself.
        """
        labels: list[Tensor] = []

        def only_inputs() -> Iterator[Inputs]:
            for x, y in labelled(data):
                labels.append(y)
                yield x

        logits = self.base.logits(only_inputs(), progress=progress)
        return self.fit_logits(logits, torch.cat(labels))

    def fit_logits(self, logits: Values, labels: Values) -> Self:
        """Fit on held-out logits.

        Args:
            logits: ``[N, C]``, or ``[S, N, C]`` of S samples.
            labels: Class indices ``[N]``.

        Returns:
            The distribution itself.
        """
        z, y = _checked_logits(logits, labels)
        if self.kind == "platt" and len(y.unique()) < 2:
            raise InputError("expected labels of at least 2 classes for kind='platt', got one; give more data")
        self.temperature = _best_temperature(z, y, told=self.kind == "temperature")
        if self.kind == "platt":
            self.scale, self.shift = _best_scales(z, y, self.temperature)
            self.temperature = None
        return self

    def networks(self) -> list[ScaledNetwork] | None:
        """Return the networks of the base, with their logits scaled.

        Returns:
            The networks; None where the base is not made of whole networks.
        """
        base = self.base.networks()
        if base is None:
            return None
        if self.scale is not None and self.shift is not None:
            scale, shift = self.scale.double(), self.shift.double()
            return [replace(one, scale=one.scale * scale, shift=one.shift * scale + shift) for one in base]
        t = self._fitted()
        return [replace(one, scale=one.scale / t, shift=one.shift / t) for one in base]

    def _logits(self, x: Inputs) -> Tensor:
        return self._scaled(self.base._logits(x))

    def _batch(self, x: Inputs, moved: Callable[[int], object]) -> Tensor:
        return self._scaled(self.base._batch(x, moved))

    def _running(self) -> AbstractContextManager[object]:
        return self.base._running()

    def _scaled(self, z: Tensor) -> Tensor:
        if self.scale is not None and self.shift is not None:
            if z.shape[-1] != len(self.scale):
                raise InputError(f"expected logits of {len(self.scale)} classes, as in the fit, got {describe(z)}")
            return z * self.scale + self.shift
        return z / self._fitted()

    def _fitted(self) -> float:
        if self.temperature is None:
            raise InputError("expected a temperature that was fitted, got none; call fit(held_out_data) first")
        return self.temperature

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        record, held = pack(self.base)
        tensors = {f"base.{name}": tensor for name, tensor in held.items()}
        if self.scale is not None and self.shift is not None:
            tensors |= {"scale": self.scale, "shift": self.shift}
        return {"kind": self.kind, "temperature": self.temperature, "base": record}, tensors

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        held = {name.removeprefix("base."): tensor for name, tensor in tensors.items() if name.startswith("base.")}
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith("base.")}
        posterior = cls(unpack(settings["base"], held, model), settings["kind"])
        temperature = settings["temperature"]
        posterior.temperature = None if temperature is None else number("temperature", temperature, above=0.0)
        if own:
            classes = own[next(iter(own))].shape
            check_tensors(own, {"scale": classes, "shift": classes})
            posterior.scale, posterior.shift = own["scale"], own["shift"]
        return posterior


class _Foreign(PosteriorBase):
    """Any object with `predict`: its logits are log p, which is the same up to a constant of each row."""

    def __init__(self, posterior: Posterior) -> None:
        self.classifiers, self.posterior = (), posterior

    def _logits(self, x: Inputs) -> Tensor:
        p = self.posterior.predict(x, progress=False)
        return p.to("cpu", torch.float64).clamp(min=torch.finfo(torch.float64).tiny).log()

    def _batch(self, x: Inputs, moved: Callable[[int], object]) -> Tensor:
        return self._logits(x)


def _distribution(base: Any, output: str | None) -> PosteriorBase:
    if isinstance(base, nn.Module | Classifier) or not isinstance(base, Posterior):
        return Deterministic(base, output=output)
    if output is not None:
        raise InputError(f"expected output with a model only, got output={output!r} with a {type(base).__name__}")
    return base if isinstance(base, PosteriorBase) else _Foreign(base)


def _checked_logits(logits: Values, labels: Values) -> tuple[Tensor, Tensor]:
    """Logits float64 [S, N, C] and labels [N] on the CPU."""
    z, y = (torch.as_tensor(a) if isinstance(a, np.ndarray | list) else a for a in (logits, labels))
    if not isinstance(z, Tensor) or not z.is_floating_point() or z.ndim not in (2, 3) or z.shape[-1] < 2:
        raise InputError(f"expected logits [N, C] or [S, N, C] with C >= 2 classes, got {describe(logits)}")
    z = z.detach().to("cpu", torch.float64)
    z = z[None] if z.ndim == 2 else z
    if z.numel() == 0:
        raise InputError(f"expected logits of at least one held-out input, got {describe(logits)}")
    if not bool(z.isfinite().all()):
        raise InputError("expected finite logits, got NaN or infinite ones; leave those inputs out")
    if not isinstance(y, Tensor) or y.is_floating_point() or y.dtype == torch.bool or y.shape != z.shape[1:2]:
        raise InputError(f"expected {z.shape[1]} labels, whole numbers and one for each input, got {describe(labels)}")
    y = y.to("cpu", torch.int64)
    if int(y.min()) < 0 or int(y.max()) >= z.shape[2]:
        raise InputError(
            f"expected labels from 0 to {z.shape[2] - 1} for {z.shape[2]} classes, got {int(y.min())} to {int(y.max())}"
        )
    return z, y


def _loss(z: Tensor, y: Tensor) -> Tensor:
    """Mean of −log of the mean probability of the label."""
    right = z.log_softmax(-1)[:, torch.arange(len(y)), y]
    return math.log(len(z)) - right.logsumexp(0).mean()


def _slope(z: Tensor, y: Tensor, log_t: float) -> float:
    """The derivative of the loss of z/T by log T."""
    beta = math.exp(-log_t)
    log_p = (z * beta).log_softmax(-1)
    right = log_p[:, torch.arange(len(y)), y]
    # the gap to the label before the mean: both terms are large and near each other where the model is sure
    gap = (log_p.exp() * (z[:, torch.arange(len(y)), y, None] - z)).sum(-1)
    return float((right.softmax(0) * gap).sum(0).mean() * beta)


def _best_temperature(z: Tensor, y: Tensor, told: bool) -> float:
    low, high = math.log(LOWEST), math.log(HIGHEST)
    at_low, at_high = _slope(z, y, low), _slope(z, y, high)
    if at_low == at_high == 0.0 and float(_loss(z / LOWEST, y)) == float(_loss(z / HIGHEST, y)):
        return 1.0  # all logits of an input are equal: no temperature changes anything
    if len(z) > 1:  # the loss may have several valleys: take the one beside the best point of a grid
        grid = torch.linspace(low, high, 49, dtype=torch.float64).tolist()
        best = min(range(49), key=lambda at: float(_loss(z * math.exp(-grid[at]), y)))
        falls = _slope(z, y, grid[best]) < 0.0
        low, high = (grid[best], grid[min(best + 1, 48)]) if falls else (grid[max(best - 1, 0)], grid[best])
        at_low, at_high = _slope(z, y, low), _slope(z, y, high)
    if at_low >= 0.0 or at_high <= 0.0:
        bound = math.exp(low if at_low >= 0.0 else high)
        if told:
            why = "0, as when every prediction is right" if at_low >= 0.0 else "infinity, as when logits tell nothing"
            warnings.warn(
                f"the loss on the held-out data falls towards a temperature of {why}, so it was set to the bound "
                f"{bound:g}; give more data, which the model was not trained on",
                UserWarning,
                stacklevel=4,
            )
        return bound
    return math.exp(_zero(lambda u: _slope(z, y, u), low, at_low, high, at_high))


def _zero(slope: Callable[[float], float], low: float, at_low: float, high: float, at_high: float) -> float:
    """Where a slope that is below 0 at `low` and above at `high` is 0: by halving, at last by straight lines."""
    middle = before = low
    for _ in range(100):
        near = high - low < 1e-3
        middle = low + (high - low) * (at_low / (at_low - at_high) if near else 0.5)
        value = slope(middle)
        if value == 0.0 or abs(middle - before) < 1e-14:
            break
        before = middle
        if value < 0.0:
            low, at_low = middle, value
        else:
            high, at_high = middle, value
    return middle


def _best_scales(z: Tensor, y: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Scale w and shift b by Newton's method; a step that does not lower the loss is halved."""
    classes = z.shape[-1]
    identity = torch.cat([torch.ones(classes), torch.zeros(classes)]).to(torch.float64)
    v = identity / min(max(temperature, 0.1), 10.0)

    def loss(v: Tensor) -> float:
        scaled = z * v[:classes] + v[classes:]
        return float(_loss(scaled, y) + _RIDGE * (v - identity).square().sum())

    value = loss(v)
    for _ in range(200):
        gradient, hessian = _curvature(z, y, v)
        gradient += 2.0 * _RIDGE * (v - identity)
        hessian.diagonal().add_(2.0 * _RIDGE)
        step = torch.linalg.solve(hessian, gradient)
        size, wanted = 1.0, float(gradient @ step)
        while (trial := loss(v - size * step)) > value - 1e-4 * size * wanted and size > 1e-10:
            size /= 2.0
        if trial >= value:
            break
        v, value = v - size * step, trial
    return v[:classes].clone(), v[classes:].clone()


def _curvature(z: Tensor, y: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient [2C] of the loss by (w, b) and its curvature [2C, 2C], without what could make that negative.

    With g = (p − e_y) of each sample the loss has the gradient Σ_s r g and the curvature Σ_s r (diag p − p pᵀ) less the
    variance of g over the samples, which is left out.
    """
    classes = len(v) // 2
    log_p = (z * v[:classes] + v[classes:]).log_softmax(-1)
    r = log_p[:, torch.arange(len(y)), y].softmax(0)[..., None] / len(y)
    p = log_p.exp()
    g = r * (p - nn.functional.one_hot(y, classes))
    gradient = torch.cat([(g * z).sum((0, 1)), g.sum((0, 1))])
    x = torch.cat([p * z, p], dim=-1).flatten(0, 1)
    hessian = -(x.T @ (x * r.flatten(0, 1)))
    for row, column, power in ((0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 1, 0)):
        block = hessian[row * classes : (row + 1) * classes, column * classes : (column + 1) * classes]
        block.diagonal().add_((r * p * z**power).sum((0, 1)))
    return gradient, hessian
