"""The words that every room shares: errors, requests for quantities, and the tables that answer them.

A *score* is a float64 tensor ``[N]`` on the CPU, one number per input, and higher always means more uncertain.
A *request* names a quantity that a score is made from. It is hashable, so that two scores that need the same
quantity share it: the quantity is computed once in one pass over the data.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from torch import Tensor


class NescioError(Exception):
    """Base of every error that nescio raises on purpose."""


class InputError(NescioError, ValueError):
    """An argument or an input cannot be used; the message says what was expected, what came and what to do."""


class ModelError(NescioError, ValueError):
    """The model cannot be handled as asked; the message says why and what to do."""


class MissingExtra(NescioError, ImportError):
    """An optional package is missing; the message names the command that installs it."""


def need(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"expected the package '{module.partition('.')[0]}' for this, but it cannot be imported ({error}); "
            f"install it with: pip install 'nescio[{extra}]'"
        ) from error


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
    """The answer to `GradientNorms`: norms of R gradients for every input and layer, float64 ``[N, R, L]``.

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
DrawKind = Literal["inputs", "parameters", "attack", "dropout"]


@dataclass(frozen=True)
class Logits:
    """Request for the logits, float64 ``[N, C]``."""


@dataclass(frozen=True)
class GradientNorms:
    """Request for a `NormTable` of parameter-gradient norms by layer.

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
class SampledLogits:
    """Request for the logits of S perturbed predictions, float64 ``[S, N, C]``.

    kind says what is perturbed: "inputs" (x + size·ε), "parameters" (θ + size·ε), "attack" (x + ε·sign of the
    input gradient, ε ~ U[−size, size]) or "dropout" (before the last linear layer, at rate size). Every draw is
    shared by all inputs.
    """

    kind: DrawKind
    size: float
    samples: int = 100
    seed: int = 0
    layer: str | None = None


@dataclass(frozen=True)
class Features:
    """Request for features, float64 ``[N, D]``.

    layer=None: the input of the last `nn.Linear` that the model calls; else the output of the module of that name.
    Positions and tokens are averaged.
    """

    layer: str | None = None


@dataclass(frozen=True)
class Depth:
    """A place in a model: the public name of a module, and the dimension of the channels in what it gives."""

    layer: str
    axis: int


@dataclass(frozen=True)
class Activations:
    """Request for statistics of what the layers give, a tuple with one float64 ``[N, D]`` for each depth.

    They are the mean and the standard deviation of each channel over the positions, see `nescio.models.activations`.
    """

    depths: tuple[Depth, ...]


@dataclass(frozen=True)
class LastLayer:
    """Request for the weights of the last linear layer with its bias as the last column, float64 ``[C, D + 1]``.

    It is the same for every input, and answered only for a model whose logits are what this layer makes of the
    features of `Features()`. With one logit for two classes the first class has zeros.
    """


@dataclass(frozen=True)
class NudgedLogits:
    """Request for the logits of an input that was moved towards its own predicted class, float64 ``[N, C]``.

    They are those of x + size·sign(∂ log p_ŷ/∂x), ŷ the predicted class, p = softmax(z/temperature), sign(0) = 0.
    """

    size: float
    temperature: float = 1.0


@dataclass(frozen=True)
class ShiftedLogits:
    """Request for the logits of nine copies of a picture, float64 ``[9, N, C]``.

    They are shifted by 0 and ±`pixels` along both sides of the picture, which is reflected at its border. "auto" is a
    sixteenth of the shorter side, but 1 at least and 4 at most.
    """

    pixels: int | Literal["auto"] = "auto"


@dataclass(frozen=True)
class Predictions:
    """Request for the probabilities of a posterior, float64 ``[S, N, C]``.

    kind=None: of the one that is given in the place of a model. Otherwise of one that is fitted to training data: there
    the answer is the fitted posterior, and with it in `posterior` the request can be answered for other inputs.
    """

    kind: Literal["laplace"] | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    posterior: Posterior | None = None


Request = (
    Logits
    | GradientNorms
    | SampledLogits
    | Features
    | Activations
    | LastLayer
    | NudgedLogits
    | ShiftedLogits
    | Predictions
)


@runtime_checkable
class Posterior(Protocol):
    """A distribution over predictions, of which `predict` gives S samples for each input."""

    def predict(self, x: Any, *, progress: bool | None = None) -> Tensor:
        """Probabilities, float64 ``[S, N, C]`` on the CPU; x is a batch or an iterable of batches."""


@runtime_checkable
class Method(Protocol):
    """A score: what it needs, and a pure function from that to one float64 per input."""

    name: ClassVar[str]

    @property
    def needs(self) -> tuple[Request, ...]: ...

    def __call__(self, *values: Any) -> Tensor: ...
