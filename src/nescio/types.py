"""What every room shares: errors, results, and the settings of the gradient norms.

A *score* is a float64 tensor ``[N]`` on the CPU, one number per input, and higher always means more uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor


class NescioError(Exception):
    """Base of every error that nescio raises on purpose."""


class InputError(NescioError, ValueError):
    """An argument or an input cannot be used; the message says what was expected, what came and what to do."""


class ModelError(NescioError, ValueError):
    """The model cannot be handled as asked; the message says why and what to do."""


class MissingExtra(NescioError, ImportError):
    """An optional package is missing; the message names the command that installs it."""


@dataclass(frozen=True)
class ClassGradients:
    """Norms of ∂ log p_c/∂θ_l for every input, class and layer.

    norms: float64 ``[N, C, L]`` on the CPU; probabilities: float64 ``[N, C]``; layers: names in forward order; spread:
    the standard error of norms that were estimated, ``[N, C, L]``, or None when all are exact.
    """

    norms: Tensor
    probabilities: Tensor
    layers: tuple[str, ...]
    spread: Tensor | None = None

    @property
    def error(self) -> Tensor | None:
        """The estimated relative error of each input's norms together, ``[N]``; None when all are exact."""
        if self.spread is None:
            return None
        weights = self.probabilities.sqrt().unsqueeze(2)
        return (weights * self.spread).sum((1, 2)) / (weights * self.norms).sum((1, 2)).clamp(min=1e-300)


@dataclass(frozen=True)
class Check:
    """What came out where estimates of layers were compared with exact values."""

    inputs: int
    """How many inputs were compared (0: none was left that is estimated)."""
    worst: float
    """The largest relative error among them."""
    exact: int
    """How many inputs were computed exactly in the end, because the error might be larger than asked for."""


@dataclass(frozen=True)
class NormTable:
    """What `NormSettings` ask for: norms of R gradients for every input and layer, float64 ``[N, R, L]``.

    ``spread`` is the standard error of what was estimated, and ``check`` how that compared with exact values; both None
    when all is exact. The tensors lie on the model's device, unless a score needs another kind of quantity too.
    """

    norms: Tensor
    probabilities: Tensor
    layers: tuple[str, ...]
    spread: Tensor | None = None
    check: Check | None = None

    def cpu(self) -> NormTable:
        """The table in the memory of the CPU."""
        spread = None if self.spread is None else self.spread.cpu()
        return replace(self, norms=self.norms.cpu(), probabilities=self.probabilities.cpu(), spread=spread)


@dataclass(frozen=True)
class Scored:
    """Scores with what is known of their error: `nescio.score(..., report=True)`.

    ``scores`` float64 ``[N]``. ``error``: the estimated relative error of each, 0 for inputs that were computed exactly
    in the end, None where nothing was estimated. Of layers (`tolerance`) it is a cautious estimate, and none is larger
    than the tolerance; of classes (`classes`) it is a standard error, which nothing acts on. ``check``: what some
    inputs showed whose layers were computed exactly too, None where no layer was estimated.
    """

    scores: Tensor
    error: Tensor | None = None
    check: Check | None = None


@dataclass(frozen=True)
class Decomposition:
    """What kind of doubt: one float64 for each input in each field, from the predictions p^s of S samples.

    total = H(mean p), aleatoric = mean H(p^s), epistemic = total − aleatoric (mutual information).
    variance: of p over the samples, summed over the classes; max_probability: 1 − the largest entry of mean p;
    bregman: −log Σ_c exp(mean log p_c^s), the epistemic part when samples are averaged in the space of logits.
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    variance: Tensor
    max_probability: Tensor
    bregman: Tensor


Rows = Literal["classes", "uniform", "expected"]
Smoothing = Literal["log", "mean"]


@dataclass(frozen=True)
class NormSettings:
    """State which norms of parameter gradients are wanted; the answer is a `NormTable`.

    rows: "classes" is ∂ log p_c/∂θ for each class, "uniform" is (1/C) Σ_c ∂ log p_c/∂θ, and "expected" is
    Σ_c p_c ∂ log p_c/∂θ. With samples > 0 each gradient is averaged over the input and its noisy copies x + σε
    before the norm; smoothing="mean" takes the gradient of the logarithm of the mean probability instead; pairs=True
    averages over `samples` copies x ± σε alone.

    classes is how many rows are computed ("exact": every class); tolerance is by how much, relative, the sum of squares
    over layers weighted by exp(decay·(l − L)) may change by estimating the layers of little weight (0: none is; where
    rows are estimated no layer is, beside them).
    precision="bfloat16" works out the gradients in that type. select and exclude name the layers that take part.
    """

    rows: Rows
    norm: int = 2
    layers: str = "module"
    select: tuple[str, ...] | None = None
    sigma: float = 0.0
    samples: int = 0
    seed: int = 0
    smoothing: Smoothing = "log"
    pairs: bool = False
    classes: int | Literal["exact", "auto"] = "exact"
    decay: float = 0.0
    tolerance: float = 0.0
    precision: Literal["bfloat16"] | None = None
    exclude: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Depth:
    """A place in a model: the public name of a module, and the dimension of the channels in what it gives."""

    layer: str
    axis: int


@runtime_checkable
class Posterior(Protocol):
    """A distribution over predictions, of which `predict` gives S samples for each input."""

    def predict(self, x: Any, *, progress: bool | None = None) -> Tensor:
        """Probabilities, float64 ``[S, N, C]`` on the CPU; x is a batch or an iterable of batches."""
