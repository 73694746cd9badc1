"""Scores from the gradients of the log-probabilities, g_c = ∂ log p_c/∂θ, for one pre-trained network.

    negrad    ‖Σ_c p_c g_c‖
    ungrad    (1/C) Σ_c ‖g_c‖
    gradnorm  −‖(1/C) Σ_c g_c‖
    exgrad    Σ_c p_c ‖g_c‖
    regrad    Σ_c √p_c ‖g_c‖^k,  k = `power`

Two refinements compose with each of them. *Layer-selective*: the layers l = 1 … L that take part, in forward order,
are weighted by a_l = exp(λ(l − L)), which differs from exp(λl) by a factor common to all inputs and cannot overflow:

    variant="squares"  ‖g‖ = √(Σ_l a_l ‖g_l‖₂²)     the norm of the whole gradient when λ = 0
    variant="literal"  ‖g‖ = Σ_l a_l ‖g_l‖₂         the formula as printed
    norm=1             ‖g‖ = Σ_l a_l ‖g_l‖₁         in both variants

*Smoothed*: each gradient is averaged over the input and `samples` noisy copies x + σε before its norm is taken
(smoothing="log": the gradient of the mean log-probability; "mean": of the logarithm of the mean probability).
p_c is always taken at the input itself. No noise is used unless both `sigma` and `samples` are above 0.

Three settings trade exactness for time. With a sigma, samples="auto" averages over PAIRED copies x ± σε, without x
itself, which come closer to the limit of many copies than the same number of independent ones. `tolerance` estimates
the layers whose weight a_l is so small that they hardly change the score. Every input whose estimated error is larger
than the tolerance is computed exactly; one input in each call, and one in 64, is compared with exact values. `classes`
estimates the less likely of many classes. What was estimated has a standard error, which `nescio.score(...,
report=True)` hands out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from nescio.quantities import GradientNorms
from nescio.scores.base import HIGHER, Score
from nescio.scores.registry import register
from nescio.types import NormTable, Rows

PAIRED = 8
"""Copies that samples="auto" takes."""


@dataclass(frozen=True, kw_only=True)
class GradientScore(Score):
    """Base of the gradient scores, with the settings that they share.

    Args:
        layer_decay: λ; with None or 0 all layers count alike.
        sigma: σ of the noise, in the units of the input; 0 is no smoothing.
        samples: The number of noisy copies; 0 is no smoothing, and "auto" takes a few paired copies, none of tokens.
        norm: 1 or 2.
        layers: "module" takes a module's own parameters as one layer, "tensor" each parameter tensor.
        select: Names or patterns of the layers that take part; None for all.
        variant: "squares" or "literal", as above.
        smoothing: "log" or "mean", as above.
        seed: Of the noise.
        classes: How much is computed, in classes; "exact" is all, "auto" all of up to 40 and else as much as for 40.
        tolerance: The relative error that estimating layers of little weight may make; "auto" is 2 % with
            samples="auto" and otherwise 0.
        precision: "bfloat16" computes the gradients in that type.
        exclude: Names or patterns of the layers that do not take part.
    """

    layer_decay: float | None = None
    sigma: float = 0.0
    samples: int | Literal["auto"] = 0
    norm: int = 2
    layers: Literal["module", "tensor"] = "module"
    select: str | Sequence[str] | None = None
    variant: Literal["squares", "literal"] = "squares"
    smoothing: Literal["log", "mean"] = "log"
    seed: int = 0
    classes: int | Literal["auto", "exact"] = "auto"
    tolerance: float | Literal["auto"] = "auto"
    precision: Literal["bfloat16"] | None = None
    exclude: str | Sequence[str] | None = None

    requires = "gradients"
    cost = "(N + 1)·(1 + 2·C)"
    composes = ("layer-selective", "smoothed")
    rows: ClassVar[Rows] = "classes"

    def __post_init__(self) -> None:
        if self.layer_decay is not None:
            self._number("layer_decay", at_least=0.0)
        self._number("sigma", at_least=0.0)
        if self.samples != "auto":
            self._integer("samples", at_least=0)
        if self.classes not in ("auto", "exact"):
            self._integer("classes", at_least=3)
        if self.tolerance != "auto":
            self._number("tolerance", at_least=0.0, below=1.0)
        self._choice("precision", None, "bfloat16")
        self._choice("norm", 1, 2)
        self._choice("layers", "module", "tensor")
        self._names("select")
        self._names("exclude")
        self._choice("variant", "squares", "literal")
        self._choice("smoothing", "log", "mean")
        self._integer("seed", at_least=0)

    @property
    def needs(self) -> tuple[GradientNorms]:
        select, exclude = (None if names is None else tuple(names) for names in (self.select, self.exclude))
        wanted = GradientNorms(
            self.rows,
            int(self.norm),
            self.layers,
            select,
            classes=self.classes,
            precision=self.precision,
            exclude=exclude,
        )
        tolerance = (0.02 if self.samples == "auto" else 0.0) if self.tolerance == "auto" else self.tolerance
        if tolerance and self.layer_decay:  # otherwise no layer can be left out
            wanted = replace(wanted, decay=self.layer_decay, tolerance=tolerance)
        if not (self.sigma and self.samples):
            return (wanted,)  # without noise, seed and kind of smoothing make no difference: share the request
        pairs = self.samples == "auto"
        samples = PAIRED if isinstance(self.samples, str) else self.samples
        return (
            replace(wanted, sigma=self.sigma, samples=samples, seed=self.seed, smoothing=self.smoothing, pairs=pairs),
        )

    def error(self, table: NormTable) -> Tensor | None:
        """The estimated relative error of each score; None where nothing was estimated."""
        if table.spread is None:
            return None
        score, higher = self(table), self(replace(table, norms=table.norms + table.spread))
        return ((higher - score) / torch.where(score != 0, score, 1.0)).abs()

    def strength(self, norms: Tensor) -> Tensor:
        """‖g‖ for every input and row, from the norms by layer [N, R, L]."""
        if norms.shape[-1] == 1:  # its weight is 1
            return norms.squeeze(-1)
        steps = torch.arange(1 - norms.shape[-1], 1, dtype=torch.float64, device=norms.device)
        weights = (steps * (self.layer_decay or 0.0)).exp()
        if self.norm == 1 or self.variant == "literal":
            return (norms * weights).sum(-1)
        largest = norms.amax(-1, keepdim=True)  # taken out, so that the squares of tiny norms do not vanish
        shares = norms / torch.where(largest > 0, largest, 1.0)
        return (shares.square() * weights).sum(-1).sqrt() * largest.squeeze(-1)


@register
@dataclass(frozen=True, kw_only=True)
class NEGrad(GradientScore):
    """Compute the norm of the expected gradient, ‖Σ_c p_c g_c‖, which is zero for every input (Igoe et al. 2022).

    Σ_c p_c g_c = Jᵀ Σ_c p_c (e_c − p) = 0. The numbers that this score gives without smoothing are round-off of the
    backward pass, as those in the papers are; it is here for comparison.

    Args:
        layer_decay: λ; the other settings are those of `nescio.scores.gradients.GradientScore`.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), NEGrad()).shape
        torch.Size([5])
    """

    name = "negrad"
    summary = "Norm of the expected gradient: zero up to round-off for every input, offered for comparison only."
    cost = "(N + 1)·3"
    paper = "Igoe et al. 2022"
    sign = f"{HIGHER} (but it is round-off)"
    rows = "expected"

    def __call__(self, table: NormTable) -> Tensor:
        return self.strength(table.norms)[:, 0]


@register
@dataclass(frozen=True, kw_only=True)
class UNGrad(GradientScore):
    """Compute the mean norm of the classes' gradients, (1/C) Σ_c ‖g_c‖ (Igoe et al. 2022).

    Improbable classes count as much as probable ones. It fails where foreign inputs have small activations, with which
    the gradients shrink.

    Args:
        layer_decay: λ; the other settings are those of `nescio.scores.gradients.GradientScore`.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), UNGrad()).shape
        torch.Size([5])
    """

    name = "ungrad"
    summary = "Mean norm of the classes' gradients, all classes weighted alike."
    paper = "Igoe et al. 2022"

    def __call__(self, table: NormTable) -> Tensor:
        return self.strength(table.norms).mean(-1)


@register
@dataclass(frozen=True, kw_only=True)
class GradNorm(GradientScore):
    """Compute the norm of the gradient towards the uniform prediction, negated: −‖(1/C) Σ_c g_c‖ (Huang et al. 2021).

    The norm is large for confident inputs, so it is negated to grow with uncertainty. The original takes the last
    layer's weight alone, in the L1 norm: ``GradNorm(norm=1, layers="tensor", select="fc.weight")``, with the name of
    that weight. It fails where foreign inputs have large activations, with which the norm grows.

    Args:
        as_published: True gives the number of the papers' tables, which is not negated.
        layer_decay: λ; the other settings are those of `nescio.scores.gradients.GradientScore`.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), GradNorm()).shape
        torch.Size([5])
    """

    as_published: bool = False

    name = "gradnorm"
    summary = "Norm of the gradient towards the uniform prediction, negated."
    cost = "(N + 1)·3"
    paper = "Huang et al. 2021"
    sign = f"{HIGHER} (negated)"
    rows = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._instance("as_published", bool, "True or False")

    def __call__(self, table: NormTable) -> Tensor:
        strength = self.strength(table.norms)[:, 0]
        return strength if self.as_published else -strength


@register
@dataclass(frozen=True, kw_only=True)
class ExGrad(GradientScore):
    """Compute the expected norm of the classes' gradients, Σ_c p_c ‖g_c‖ (Igoe et al. 2022).

    It fails where the network is sure of a wrong answer: then the likely class has a small gradient.

    Args:
        layer_decay: λ; the other settings are those of `nescio.scores.gradients.GradientScore`.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), ExGrad()).shape
        torch.Size([5])
    """

    name = "exgrad"
    summary = "Expected norm of the classes' gradients."
    paper = "Igoe et al. 2022"

    def __call__(self, table: NormTable) -> Tensor:
        return (table.probabilities * self.strength(table.norms)).sum(-1)


@register
@dataclass(frozen=True, kw_only=True)
class REGrad(GradientScore):
    """Compute Σ_c √p_c ‖g_c‖^k, layer-selective, and smoothed where `sigma` is given (Wang & Ji 2024, Eq. 11).

    The paper's Eq. 11 is printed as √p_c·‖g_c‖₂², which is power=2, the default; read as √(p_c‖g_c‖₂²), with the
    norm under the root, it is power=1. The defaults come from shifted validation pictures and wrong answers on MNIST,
    CIFAR-10 and SVHN, three networks each (`nescio reproduce defaults`). The two readings are less than half a point
    of AUROC apart on average, so the printed form stays. On MNIST and SVHN λ from 0 to 0.5, σ up to 0.05 and the number
    of copies hardly matter; on CIFAR-10 λ from 0.3 to 1 is three to four points better than 0, and σ = 0.01 as good as
    none, 0.7 better than 0.02 and seven better than 0.05. Noise costs seven times as much, so there is none unless
    `sigma` says so; on CIFAR-100 it gained up to four points. The paper's λ: MNIST 0.3, CIFAR-10 and SVHN 0.2,
    CIFAR-100 0.4; σ = 0.02 with 100 copies throughout, which is sigma=0.02, samples=100. It fails for networks whose
    activations, and so gradients, shrink on foreign inputs; see `EvenGrad`.

    Args:
        power: k, 1 or 2.
        layer_decay: λ; the other settings are those of `nescio.scores.gradients.GradientScore`.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), REGrad()).shape
        torch.Size([5])
    """

    layer_decay: float | None = 0.3
    samples: int | Literal["auto"] = "auto"
    power: int = 2

    name = "regrad"
    summary = "Root-probability-weighted gradient norms, layer-selective and smoothed."
    paper = "Wang & Ji 2024"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._choice("power", 1, 2)

    def __call__(self, table: NormTable) -> Tensor:
        return (table.probabilities.sqrt() * self.strength(table.norms) ** self.power).sum(-1)
