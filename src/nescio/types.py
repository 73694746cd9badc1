"""What every room shares: errors, results, and the settings of the gradient norms.

A *score* is a float64 tensor ``[N]`` on the CPU, one number per input, and higher always means more uncertain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from nescio import notebook

__all__ = ["NescioError", "InputError", "ModelError", "MissingExtra", "ClassGradients", "Scored", "Check"]
__all__ += ["Decomposition", "NormSettings", "NormTable", "Depth", "Posterior"]


class NescioError(Exception):
    """Serve as the base of every error that nescio raises on purpose.

    Examples:
        >>> try:
        ...     nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), "entropie")
        ... except NescioError as error:
        ...     print(error)
        expected the name of a method, got 'entropie'; did you mean 'entropy'? ...
    """


class InputError(NescioError, ValueError):
    """Say that an argument or an input cannot be used: what was expected, what came and what to do.

    Examples:
        >>> nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), chunk=0)
        Traceback (most recent call last):
        nescio.types.InputError: expected chunk to be a whole number of at least 1, got 0; ...
    """


class ModelError(NescioError, ValueError):
    """Say that a model cannot be used in this way, why, and what to do.

    Examples:
        >>> nescio.Classifier("resnet18")
        Traceback (most recent call last):
        nescio.types.ModelError: ...
    """


class MissingExtra(NescioError, ImportError):
    """Say that an optional package is missing, and name the command that installs it.

    Examples:
        >>> issubclass(MissingExtra, ImportError)
        True
    """


@dataclass(frozen=True)
class ClassGradients:
    """Hold the norms of ∂ log p_c/∂θ_l for every input, class and layer.

    Attributes:
        norms: float64 ``[N, C, L]`` on the CPU.
        probabilities: float64 ``[N, C]``.
        layers: Their names in forward order.
        spread: The standard error of norms that were estimated, ``[N, C, L]``; None when all are exact.

    Examples:
        >>> nescio.trace.class_gradients(torch.nn.Linear(4, 3), torch.rand(5, 4)).norms.shape
        torch.Size([5, 3, 1])
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
    """Hold how estimates of layers compared with exact values.

    Attributes:
        inputs: How many inputs were compared; 0 where none was left that is estimated.
        worst: The largest relative error among them.
        exact: How many inputs were computed exactly in the end, because the error might be above the tolerance.

    Examples:
        >>> Check(inputs=2, worst=0.001, exact=0).worst
        0.001
    """

    inputs: int
    worst: float
    exact: int


@dataclass(frozen=True)
class NormTable:
    """Hold what `NormSettings` ask for: norms of R gradients for every input and layer.

    The tensors lie on the model's device, unless a score needs another kind of quantity too.

    Attributes:
        norms: float64 ``[N, R, L]``.
        probabilities: float64 ``[N, C]``.
        layers: Their names in forward order.
        spread: The standard error of what was estimated, ``[N, R, L]``; None when all is exact.
        check: How that compared with exact values; None when all is exact.
        logits: The inputs' logits ``[N, C]``, in the type of the model, for what needs nothing else of a forward pass.

    Examples:
        >>> NormTable(torch.ones(5, 3, 1), torch.full((5, 3), 1 / 3), ("fc",)).cpu().layers
        ('fc',)
    """

    norms: Tensor
    probabilities: Tensor
    layers: tuple[str, ...]
    spread: Tensor | None = None
    check: Check | None = None
    logits: Tensor | None = None

    def cpu(self) -> NormTable:
        """Return the table in the memory of the CPU."""
        spread, logits = (None if t is None else t.cpu() for t in (self.spread, self.logits))
        norms, probabilities = self.norms.cpu(), self.probabilities.cpu()
        return replace(self, norms=norms, probabilities=probabilities, spread=spread, logits=logits)


@dataclass(frozen=True)
class Scored:
    """Hold scores with what is known of their error: `nescio.score(..., report=True)`.

    Attributes:
        scores: float64 ``[N]``; maps ``[N, *positions]`` of a model that answers at every position.
        error: The estimated relative error of each score, 0 for inputs that were computed exactly; None if nothing was
            estimated. With `tolerance` it is a cautious estimate, and never larger than the tolerance. With `classes`
            it is a standard error, and nothing is computed again because of it.
        check: How estimates compared with exact values, for some inputs; None if no layer was estimated.

    Examples:
        >>> report = nescio.score(torch.nn.Linear(4, 3), torch.rand(5, 4), "entropy", report=True)
        >>> report.scores.shape, report.error
        (torch.Size([5]), None)
    """

    scores: Tensor
    error: Tensor | None = None
    check: Check | None = None

    def _repr_html_(self) -> str:
        """The most uncertain inputs, for a notebook."""
        scores = self.scores.reshape(len(self.scores), -1).mean(1) if self.scores.ndim > 1 else self.scores
        order = scores.argsort(descending=True, stable=True)[: notebook.MOST].tolist()
        largest = max((float(scores[i]) for i in order), default=0.0)
        rows: list[list[str | notebook.Cell]]
        rows = [[str(i), notebook.bar(float(scores[i]), largest)] for i in order]
        columns = ["input", "mean score over its positions" if self.scores.ndim > 1 else "score"]
        if self.error is not None:
            columns.append("estimated error")
            errors = [float(f"{100 * float(self.error[i]):.2g}") for i in order]
            rows = [[*row, f"{error:.6g} %"] for error, row in zip(errors, rows, strict=True)]
        many = len(self.scores)
        title = f"{many:,} score{'s' * (many != 1)}, higher = more uncertain; the most uncertain first"
        return notebook.card(title, columns=columns, rows=rows, more=notebook.rest(many, "input"))


@dataclass(frozen=True)
class Decomposition:
    """Hold the kinds of doubt, float64 ``[N]`` each, from the predictions p^s of S samples.

    Of a model that answers at every position each is a map, ``[N, *positions]``.

    Attributes:
        total: H(mean p), the entropy of the mean prediction.
        aleatoric: Mean H(p^s), doubt that lies in the data.
        epistemic: total − aleatoric, the mutual information: doubt of the model, which more data would remove.
        variance: Of p over the samples, summed over the classes.
        max_probability: 1 − the largest entry of mean p.
        bregman: −log Σ_c exp(mean log p_c^s), the epistemic part when samples are averaged in the space of logits.

    Examples:
        >>> nescio.decompose(torch.tensor([[[0.5, 0.5]], [[0.5, 0.5]]])).epistemic
        tensor([0.], dtype=torch.float64)
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    variance: Tensor
    max_probability: Tensor
    bregman: Tensor

    def _repr_html_(self) -> str:
        """The most doubtful inputs, for a notebook."""
        kinds = self.total, self.aleatoric, self.epistemic
        means = [kind.flatten(1).mean(1) if kind.dim() > 1 else kind for kind in kinds]
        order = means[0].argsort(descending=True, stable=True)[: notebook.MOST].tolist()
        largest = max((float(means[0][i]) for i in order), default=0.0) or 1.0
        rows: list[list[str | notebook.Cell]] = []
        for i in order:
            parts = float(means[1][i]), float(means[2][i])
            shares = tuple(min(1.0, max(0.0, part / largest)) for part in parts)
            total = notebook.Cell(notebook.short(float(means[0][i])), shares)
            rows.append([str(i), total, *(notebook.short(part) for part in parts)])
        many = len(self.total)
        return notebook.card(
            f"The doubt of {many:,} input{'s' * (many != 1)}; the most doubtful first",
            lines=[
                "total = aleatoric (blue: it lies in the data) + epistemic (orange: more data would remove it)"
                + ("; each is the mean over the positions" if self.total.ndim > 1 else "")
            ],
            columns=["input", "total", "aleatoric", "epistemic"],
            rows=rows,
            more=notebook.rest(many, "input"),
        )


Rows = Literal["classes", "uniform", "expected"]
Smoothing = Literal["log", "mean"]


@dataclass(frozen=True)
class NormSettings:
    """State which norms of parameter gradients are wanted; the answer is a `NormTable`.

    Args:
        rows: "classes" is ∂ log p_c/∂θ for each class, "uniform" is (1/C) Σ_c ∂ log p_c/∂θ, and "expected" is
            Σ_c p_c ∂ log p_c/∂θ.
        norm: 1 or 2.
        layers: "module" takes a module's own parameters as one layer, "tensor" each parameter tensor.
        select: Names or patterns of the layers that take part; None for all.
        sigma: σ of the noise, in the units of the input.
        samples: Above 0, each gradient is averaged over the input and so many noisy copies x + σε before the norm.
        seed: Of the noise.
        smoothing: "mean" takes the gradient of the logarithm of the mean probability instead.
        pairs: True averages over `samples` copies x ± σε alone.
        classes: How many rows are computed; "exact" is every class.
        decay: λ of `tolerance`.
        tolerance: By how much, relative, the sum of squares over layers weighted by exp(λ(l − L)) may change by
            estimating the layers of little weight. 0 estimates none; where rows are estimated, no layer is.
        precision: "bfloat16" computes the gradients in that type.
        exclude: Names or patterns of the layers that do not take part.

    Examples:
        >>> NormSettings("classes").norm
        2
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
    """Name a place in a model.

    Args:
        layer: The public name of a module.
        axis: The dimension of the channels in its output.

    Examples:
        >>> Depth("layer1.conv2", 1).axis
        1
    """

    layer: str
    axis: int


@runtime_checkable
class Posterior(Protocol):
    """Say what a distribution over predictions is: `predict` gives S samples for each input.

    Any object with this method can be given to `nescio.score` in the place of a model.

    Examples:
        >>> isinstance(nescio.posteriors.Deterministic(torch.nn.Linear(4, 3)), Posterior)
        True
    """

    def predict(self, x: Any, *, progress: bool | None = None) -> Tensor:
        """Predict probabilities.

        Args:
            x: A batch or an iterable of batches.
            progress: As in `nescio.score`.

        Returns:
            The probabilities, float64 ``[S, N, C]`` on the CPU.
        """


def refuse_estimator(model: object) -> None:
    """Raise a ModelError for an estimator of scikit-learn, which has a `predict` too, but gives classes by it.

    Args:
        model: What was given in the place of a model.

    Raises:
        ModelError: It is an estimator. The message says what to write instead.

    Examples:
        >>> refuse_estimator(torch.nn.Linear(4, 3))
    """
    if callable(model) or isinstance(model, type) or not hasattr(model, "fit") or not hasattr(model, "get_params"):
        return
    name = type(model).__name__
    if hasattr(model, "module_"):
        raise ModelError(f"expected a PyTorch model, got the estimator {name}; give the module in it: model.module_")
    remedy = "give the PyTorch module that it is made of"
    if hasattr(model, "predict_proba"):
        remedy = (
            "it has no layers or gradients to look into, but scores of its probabilities can be had: nescio.score("
            "lambda x: torch.from_numpy(model.predict_proba(x.numpy())), x, 'entropy', output='probabilities')"
        )
    raise ModelError(f"expected a PyTorch model, got the estimator {name} of scikit-learn; {remedy}")
