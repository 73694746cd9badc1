"""`Laplace`: a Gaussian posterior over the last linear layer, around the weights that training found.

With θ the weights and bias of the layer, h its input and z = W h + b the logits:

    θ^s ~ N(θ, (H + δ)⁻¹),      z^s = z + (W^s − W) h + (b^s − b)

H is the curvature of the training loss (`nescio.posteriors.laplace_curvature`), δ the precision of the prior. It is
given, or chosen as the one of largest marginal likelihood

    log p(D | δ) ≈ Σ_n log p(y_n | x_n) − ½ log det(H/δ + 1) − ½ δ‖θ‖²,

or as the one with the smallest negative log-likelihood on validation data (with the probit link). The values of a grid
are tried, and a parabola finds the least value between them. So δ moves little where two points of the grid are equally
good. With link="probit" there are no draws: p = softmax(z/√(1 + π v/8)), v the variance of each logit, and S = 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from nescio import inputs
from nescio._common.argument_checks import choice, integer, number
from nescio._common.chunking import at_once, in_chunks
from nescio._common.seeds import derived_seed
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier, ModelLike, named_modules
from nescio.modes import predicting, preserved
from nescio.posteriors.base import PosteriorBase, chunked, total
from nescio.posteriors.laplace_curvature import Curvature, Kind, Sums, lowest, most_exact_kind
from nescio.posteriors.laplace_layer import observed, padded, probabilities, probit
from nescio.posteriors.saving import about, check_tensors, same, saved
from nescio.progress import bar
from nescio.types import InputError, ModelError

Link = Literal["sample", "probit"]

_GRID = torch.logspace(-4, 4, 81, dtype=torch.float64)
_KEPT = 2**28  # numbers of drawn weights that are kept between two batches: 2 GiB
_AT_ONCE = 2**22  # numbers of drawn weights that are made together


@saved("laplace")
class Laplace(PosteriorBase):
    """Approximate the posterior of the last linear layer by a Gaussian (Daxberger et al. 2021).

    Fit it to the training data, then `predict`. After the fit it has `precision`, and `log_likelihood` of these data.

    Args:
        model: A PyTorch classifier, any callable that gives logits, or a `Classifier`; it is not changed.
        kind: The structure of the curvature: "full", "kron" or "diag"; "auto" takes the first that the size of the
            layer allows.
        prior: The precision δ of the prior, or how to choose it: "marglik" (marginal likelihood) or "validation".
        samples: S, the number of draws; all inputs share each of them.
        seed: Of the draws.
        link: "sample" draws weights; "probit" gives one prediction in closed form.
        output: What the model returns, as in `nescio.score`.

    Examples:
        >>> posterior = Laplace(torch.nn.Linear(4, 3), samples=10).fit((torch.rand(60, 4), torch.arange(60) % 3))
        >>> posterior.predict(torch.rand(5, 4)).shape
        torch.Size([10, 5, 3])
    """

    def __init__(
        self,
        model: Classifier | Callable[..., Any],
        kind: Kind | Literal["auto"] = "auto",
        prior: float | Literal["marglik", "validation"] = "marglik",
        samples: int = 100,
        seed: int = 0,
        link: Link = "sample",
        *,
        output: str | None = None,
    ) -> None:
        self.classifiers = (Classifier.of(model, output),)
        self.kind = choice("kind", kind, ("auto", *get_args(Kind)))
        self.prior: float | str = (
            choice("prior", prior, ("marglik", "validation"), hint="or give a number above 0")
            if isinstance(prior, str)
            else number("prior", prior, above=0.0)
        )
        self.samples, self.seed = integer("samples", samples, at_least=1), integer("seed", seed, at_least=0)
        self.link = choice("link", link, get_args(Link))
        self.precision = self.log_likelihood = math.nan
        self._curvature: Curvature | None = None
        self._layer, self._bias, self._square_norm = "", False, math.nan
        self._sums: Sums | None = None
        self._total = 0.0
        self._weights: tuple[tuple[float, int, int], Tensor] | None = None

    def fit(self, data: Data, validation: Data | None = None, *, progress: bool | None = None) -> Self:
        """Fit to labelled training data; the model stays as it is.

        Args:
            data: A pair (x, y), or an iterable of such pairs.
            validation: Labelled data that were not trained on, for prior="validation" and only then.
            progress: As in `nescio.score`.

        Returns:
            The posterior itself.
        """
        self._check_validation(validation)
        self._sums = None
        size = total(data[0]) if isinstance(data, tuple) and len(data) == 2 else total(data)
        with preserved(self), bar(size, show=progress, description="fitting") as shown:
            for x, y in inputs.labelled(data):
                self.absorb(x, y)
                shown.update(len(y))
            return self.finish(validation)

    def absorb(self, x: Inputs, y: Tensor) -> None:
        """Take in one batch of the training data; `finish` follows the last one.

        Args:
            x: Inputs.
            y: Their class indices ``[N]``.
        """

        def step(h: Tensor, z: Tensor, labels: Tensor) -> None:
            p, rest = probabilities(z)
            if self._sums is None:
                outputs, width = self._layer_module().out_features, h.shape[1]
                kind: Any = most_exact_kind(outputs, width) if self.kind == "auto" else self.kind
                self._sums, self._total = Sums(kind, outputs, width, self._bias), 0.0
            outputs = self._sums.outputs
            self._sums.add(h, p[:, -outputs:], rest[:, -outputs:])
            self._total += float(z.log_softmax(1).gather(1, labels[:, None]).sum())

        self._in_steps(x, y, step)

    def finish(self, validation: Data | None = None) -> Self:
        """Compute the posterior of all that was absorbed.

        Args:
            validation: As in `fit`.

        Returns:
            The posterior itself.
        """
        self._check_validation(validation)
        sums, self._sums = self._sums, None
        if sums is None:
            raise InputError("expected training data of at least one input, got none; give (x, y) or a data loader")
        curvature = sums.decomposed()
        norm = self._layer_norm()
        self.precision = self._chosen_precision(curvature, norm, validation)
        self._curvature, self._square_norm, self.log_likelihood = curvature, norm, self._total
        self._weights = None
        return self

    def log_marginal_likelihood(self, precision: float | None = None) -> float:
        """Compute log p(D | δ) of the training data.

        Args:
            precision: Another δ than the posterior's.

        Returns:
            The logarithm.
        """
        delta = self.precision if precision is None else number("precision", precision, above=0.0)
        ratio = self._fitted().log_det_ratio(delta)
        return self.log_likelihood - 0.5 * (ratio + delta * self._square_norm)

    def covariance(self) -> Tensor:
        """(H + δ)⁻¹ as a matrix, float64, in PyTorch's order of parameters: the weights row by row, then the bias."""
        curvature = self._fitted()
        if curvature.values.numel() > 20_000:
            raise InputError(
                f"expected at most 20000 parameters to write down a covariance, got {curvature.values.numel()}; "
                "use `variance`, or `predict`"
            )
        return curvature.covariance(self.precision, self._bias)

    def variance(self, x: Data) -> Tensor:
        """Compute the variance of each logit; the predicted logits are those of the model.

        Args:
            x: As in `predict`.

        Returns:
            The variances, float64 ``[N, C]``.
        """
        curvature, delta = self._fitted(), torch.tensor([self.precision], dtype=torch.float64)

        def step(part: Inputs) -> Tensor:
            h, z = self._observed(part)
            return padded(curvature.variance(h, delta)[0], z)

        with preserved(self), predicting(self):
            return torch.cat([chunked(self.classifiers[0].prepare(x), step) for x in inputs.batches(x)])

    def _logits(self, x: Inputs) -> Tensor:
        curvature = self._fitted()
        h, z = self._observed(x)
        if self.link == "probit":
            delta = torch.tensor([self.precision], dtype=torch.float64)
            return probit(z, padded(curvature.variance(h, delta), z))
        if self.samples * curvature.values.numel() > _KEPT:
            return z + torch.cat([padded(curvature.shift(h, weights), z) for weights in self._draws(curvature)])
        drawn_for = (self.precision, self.samples, self.seed)
        if self._weights is None or self._weights[0] != drawn_for:
            self._weights = drawn_for, torch.cat(list(self._draws(curvature)))
        return z + padded(curvature.shift(h, self._weights[1]), z)

    def _draws(self, curvature: Curvature) -> Iterator[Tensor]:
        """All draws, several at a time."""
        shape = curvature.values.shape
        for some in torch.arange(self.samples).split(max(1, _AT_ONCE // shape.numel())):
            noise = torch.cat([self._noise(sample, shape) for sample in some.tolist()])
            yield curvature.weights(noise, self.precision)

    def _noise(self, sample: int, shape: torch.Size) -> Tensor:
        """The noise of one sample, from a generator of its own: it does not depend on how many samples there are."""
        seed = derived_seed(self.seed, sample)
        return torch.randn(1, *shape, generator=torch.Generator("cpu").manual_seed(seed), dtype=torch.float64)

    def _observed(self, x: Inputs) -> tuple[Tensor, Tensor]:
        """Features with a 1 for the bias, and logits, both float64 on the CPU."""
        self._layer, layer, h, z = observed(self.classifiers[0], x)
        self._bias = layer.bias is not None
        return h, z

    def _in_steps(self, x: Inputs, y: Tensor, step: Callable[[Tensor, Tensor, Tensor], None]) -> None:
        """`step` of features, logits and labels, as many inputs at once as fit into memory."""
        batch = self.classifiers[0].prepare(x)

        def part(start: int, stop: int) -> None:
            h, z = self._observed(inputs.take(batch, slice(start, stop)))
            _check_labels(y[start:stop], z.shape[1])
            step(h, z, y[start:stop])

        with predicting(self):
            in_chunks(len(y), at_once(batch, None), part)

    def _layer_module(self) -> nn.Linear:
        module = self.classifiers[0].module
        assert module is not None
        layer = dict(named_modules(module))[self._layer]
        assert isinstance(layer, nn.Linear)
        return layer

    def _layer_norm(self) -> float:
        """‖θ‖² of the weights that multiply, which in a parametrised layer are not its parameters."""
        with preserved(self, again=False), predicting(self):
            layer = self._layer_module()
            values = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
            return sum(float(value.double().square().sum()) for value in values)

    def _fitted(self) -> Curvature:
        if self._curvature is None:
            raise InputError("expected a fitted Laplace, got one that was not; call .fit((x, y)) or .fit(loader) first")
        return self._curvature

    def _check_validation(self, validation: Data | None) -> None:
        if (self.prior == "validation") != (validation is not None):
            raise InputError(
                f"expected validation data with prior='validation', and only then, got prior={self.prior!r} and "
                f"{describe(validation)}"
            )

    def _chosen_precision(self, curvature: Curvature, square_norm: float, validation: Data | None) -> float:
        if not isinstance(self.prior, str):
            return self.prior
        if self.prior == "validation" and validation is not None:
            return self._validated(curvature, validation)
        if not (square_norm > 0 and float(curvature.values.sum()) > 0):
            raise ModelError(
                "expected weights that are not all zero and predictions that are not all certain, for otherwise the "
                "marginal likelihood has no maximum; give the precision of the prior: prior=1.0"
            )
        return curvature.evidence_precision(square_norm)

    def _validated(self, curvature: Curvature, validation: Data) -> float:
        """The precision with the smallest negative log-likelihood, by a grid."""
        loss, count = torch.zeros_like(_GRID), 0

        def step(h: Tensor, z: Tensor, y: Tensor) -> None:
            log_p = probit(z, padded(curvature.variance(h, _GRID), z)).log_softmax(-1)
            loss.sub_(log_p.gather(2, y[None, :, None].expand(len(_GRID), -1, 1)).sum((1, 2)))

        with preserved(self):
            for x, y in inputs.labelled(validation):
                self._in_steps(x, y, step)
                count += len(y)
        if not count:
            raise InputError("expected validation data of at least one input, got none")
        return lowest(_GRID, loss)

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        curvature = self._fitted()
        own = {"kind": self.kind, "prior": self.prior, "samples": self.samples, "seed": self.seed, "link": self.link}
        fitted = {
            "precision": self.precision,
            "log_likelihood": self.log_likelihood,
            "square_norm": self._square_norm,
            "layer": self._layer,
            "bias": self._bias,
            "shape": list(curvature.values.shape),
        }
        held = {
            "values": curvature.values,
            **{name: t for name in _BASES if (t := getattr(curvature, name)) is not None},
        }
        return {"model": about(self.classifiers[0]), "own": own, "found": fitted}, held

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        posterior, fitted = cls(same(model, settings["model"]), **settings["own"]), settings["found"]
        outputs, width = fitted["shape"]
        sizes = {"inner": width, "outer": outputs, "joint": outputs * width}
        bases = [("inner", "outer"), ("joint",), ()]
        names = next((names for names in bases if set(names) == tensors.keys() - {"values"}), ())
        check_tensors(tensors, {"values": (outputs, width), **{name: (sizes[name], sizes[name]) for name in names}})
        posterior._curvature = Curvature(**tensors)
        posterior.precision = number("precision", fitted["precision"], above=0.0)
        posterior.log_likelihood = number("log_likelihood", fitted["log_likelihood"])
        posterior._square_norm = number("square_norm", fitted["square_norm"])
        posterior._layer, posterior._bias = fitted["layer"], fitted["bias"]
        return posterior


_BASES = ("inner", "outer", "joint")


def _check_labels(y: Tensor, classes: int) -> None:
    if int(y.max()) >= classes:
        raise InputError(
            f"expected class indices below {classes}, as the model has {classes} classes, got {int(y.max())}"
        )
