"""SWAG (Maddox et al. 2019): the Gaussian through which SGD with a constant rate moves, around a trained network.

With θ_1 … θ_T the weights after each epoch, θ̄ their mean, and K = min(rank, T):

    v = (1/T) Σ_t (θ_t − θ̄)²,     D = [θ_t − θ̄_t for the last K epochs],   θ̄_t the mean of the first t
    θ^s = θ̄ + √scale (√v ⊙ ε₁ + D ε₂/√(K − 1)),   ε₁, ε₂ standard normal; scale ½ as in the paper

Batch-norm statistics belong to weights: they are computed anew for every sample by one pass over the training data.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nescio._common.argument_checks import integer, number
from nescio.inputs import Data
from nescio.models import Classifier, ModelLike, named_modules
from nescio.models.structure import replaced
from nescio.modes import predicting, preserved
from nescio.posteriors.sampled import SampledWeights, copied
from nescio.posteriors.saving import check_tensors, refilled, saved, weights
from nescio.progress import bar
from nescio.training import Epoch, Recipe, seeded, train
from nescio.training.feed import feed
from nescio.training.run import outputs
from nescio.types import InputError

RECIPE = Recipe(epochs=30, optimizer="sgd", lr=1e-2, weight_decay=5e-4, schedule="constant")


@saved("swag")
class SWAG(SampledWeights):
    """Draw networks from the Gaussian that the weights of an SGD run form (Maddox et al. 2019).

    `SWAG.train` makes one.

    Args:
        model: The network with the mean weights θ̄.
        variances: The variances v, by name of parameter.
        deviations: The deviations D ``[K, ...]``, by name of parameter.
        samples: S, the number of networks that `predict` draws.
        scale: By how much the covariance is scaled.
        seed: Of the draws.
        statistics: The buffers of batch-norm layers by name, ``[samples, ...]``; `fit_statistics` computes them.

    Examples:
        >>> data, recipe = (torch.rand(20, 4), torch.arange(20) % 3), nescio.training.Recipe(epochs=2)
        >>> swag = nescio.posteriors.SWAG.train(torch.nn.Linear(4, 3), data, recipe=recipe, samples=5, progress=False)
        >>> swag.predict(torch.rand(6, 4)).shape
        torch.Size([5, 6, 3])
    """

    def __init__(
        self,
        model: Classifier | nn.Module,
        variances: dict[str, Tensor],
        deviations: dict[str, Tensor],
        *,
        samples: int = 30,
        scale: float = 0.5,
        seed: int = 0,
        statistics: dict[str, Tensor] | None = None,
    ) -> None:
        super().__init__(Classifier.of(model, dense=True), samples, seed)
        self.scale = number("scale", scale, above=0)
        self.rank = len(next(iter(deviations.values()), ()))
        if self.rank < 2 or deviations.keys() != variances.keys():
            raise InputError(
                "expected variances and deviations of at least 2 epochs for the same parameters, got "
                f"{len(variances)} variances and {len(deviations)} deviations of {self.rank} epochs"
            )
        self.variances, self.deviations = self._by_name(variances), self._by_name(deviations, self.rank)
        buffers = {} if statistics is None else statistics
        check_tensors(
            buffers, {name: (self.samples, *b.shape) for name, b in self._buffers().items()} if buffers else {}
        )
        self.statistics = {name: value.detach().cpu() for name, value in buffers.items()}
        self._statistics_for = self._settings()
        self.history: list[Epoch] = []

    @classmethod
    def train(
        cls,
        model: nn.Module,
        data: Data,
        *,
        rank: int = 20,
        samples: int = 30,
        scale: float = 0.5,
        recipe: Recipe | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: bool | None = None,
        on_epoch: Callable[[Epoch], object] | None = None,
    ) -> Self:
        """Collect the distribution of the weights in an SGD run.

        Args:
            model: A trained network; the run starts from a deep copy of it.
            data: Labelled training data, as in `nescio.training.train`.
            rank: How many of the last epochs give deviations, at least 2.
            samples: S, the number of networks that `predict` draws.
            scale: By how much the covariance is scaled.
            recipe: How to train. The rate should be constant and large enough to move about; the epochs, at least 2,
                are what is collected. There is no best epoch here, and so no validation data.
            seed: As in `nescio.training.train`; so are folder, progress and on_epoch.
            folder: Where the state is kept.
            progress: As in `nescio.score`.
            on_epoch: Called after every epoch.

        Returns:
            The distribution.
        """
        integer("rank", rank, at_least=2)
        integer("samples", samples, at_least=1)
        number("scale", scale, above=0)
        recipe = RECIPE if recipe is None else recipe
        if recipe.epochs < 2:
            raise InputError(f"epochs: expected at least 2 to have a variance, but got {recipe.epochs}")
        network = Collector(copied(model, seed), min(rank, recipe.epochs))

        def collect(epoch: Epoch) -> None:
            network.collect()
            if on_epoch is not None:
                on_epoch(epoch)

        more: Any = {"seed": seed, "folder": folder, "progress": progress, "on_epoch": collect}
        history = train(network, data, recipe=replace(recipe, patience=None), **more)
        inner, variances, deviations = network.moments()
        classifier = Classifier(inner, preprocess=recipe.transform)
        fitted = cls(classifier, variances, deviations, samples=samples, scale=scale, seed=seed)
        fitted.history = history
        fitted.fit_statistics(data, batch_size=recipe.batch_size, progress=progress)
        return fitted

    def fit_statistics(self, data: Data, *, batch_size: int = 128, progress: bool | None = None) -> None:
        """Compute the statistics of batch-norm layers for every sample: the mean over the batches of the data.

        Args:
            data: Training data; labels are not needed.
            batch_size: Inputs at a time, where the data are one batch.
            progress: As in `nescio.score`.
        """
        buffers, module = self._buffers(), self.classifiers[0].module
        norms = [part for _, part in named_modules(module) if isinstance(part, _BatchNorm)]  # type: ignore[arg-type]
        device, dtype = self.classifiers[0].device, self.classifiers[0].dtype
        if not buffers or module is None or device is None or dtype is None:
            return
        transform = self.classifiers[0].preprocess
        source = feed(data, device, dtype, batch_size, "training", transform is not None)
        collected: dict[str, list[Tensor]] = {name: [] for name in buffers}
        momenta = [part.momentum for part in norms]
        show = bar(self.samples, show=progress, description="batch-norm statistics", unit="sample")
        with preserved(self), predicting(self), show as shown:
            try:
                for part in norms:
                    part.training, part.momentum = True, None  # a plain mean over the batches; dropout stays off
                for sample in range(self.samples):
                    for part in norms:
                        part.reset_running_stats()
                    # shuffled: batches of one class alone would vary less than the data
                    with seeded(self.seed, device), replaced(module, self.weights(sample)):
                        for x, _ in source.batches(True):
                            outputs(module, x, transform)
                    for name, buffer in buffers.items():
                        collected[name].append(buffer.detach().cpu().clone())
                    shown.update(1)
            finally:
                for part, momentum in zip(norms, momenta, strict=True):
                    part.momentum = momentum
        self.statistics = {name: torch.stack(values) for name, values in collected.items()}
        self._statistics_for = self._settings()

    def _settings(self) -> tuple[float, ...]:
        return (self.samples, self.seed, self.scale)

    def _buffers(self) -> dict[str, Tensor]:
        """Running means and variances of the batch-norm layers by name."""
        module = self.classifiers[0].module
        assert module is not None
        return {
            f"{name}.{key}".removeprefix("."): part._buffers[key]  # type: ignore[misc]
            for name, part in named_modules(module)
            if isinstance(part, _BatchNorm)
            for key in ("running_mean", "running_var")
            if part._buffers.get(key) is not None
        }

    def _enter(self, sample: int) -> None:
        buffers = self._buffers()
        if buffers and (not self.statistics or self._statistics_for != self._settings()):
            raise InputError(
                "expected batch-norm statistics for every sample, got none, or those for other samples, seed or "
                "scale; call fit_statistics(training_data) first"
            )
        for name, buffer in buffers.items():
            buffer.copy_(self.statistics[name][sample])

    def _draw(self, sample: int, random: torch.Generator) -> dict[str, Tensor]:
        means, drawn = self.classifiers[0].parameters(), {}
        common = torch.randn(self.rank, generator=random, dtype=torch.float64) / (self.rank - 1) ** 0.5
        for name, variance in self.variances.items():
            own = torch.randn(variance.shape, generator=random, dtype=variance.dtype)
            shared = torch.tensordot(common.to(variance.dtype), self.deviations[name], dims=1)
            drawn[name] = means[name].detach().cpu() + self.scale**0.5 * (variance.sqrt() * own + shared)
        return drawn

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        classifier = self.classifiers[0]
        kinds = {"variance": self.variances, "deviations": self.deviations, "statistics": self.statistics}
        tensors = {f"{kind}.{name}": value for kind, values in kinds.items() for name, value in values.items()}
        settings = {"samples": self.samples, "scale": self.scale, "seed": self.seed, "output": classifier.output}
        return settings, weights(classifier, "model.") | tensors

    @classmethod
    def _from_state(cls, model: ModelLike, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        def kind(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        classifier = refilled(model, tensors, "model.", settings["output"])
        more: Any = {key: settings[key] for key in ("samples", "scale", "seed")}
        return cls(classifier, kind("variance."), kind("deviations."), statistics=kind("statistics."), **more)


class Collector(nn.Module):
    """A network with the moments of its weights, which are buffers, and so part of a checkpoint."""

    count: Tensor

    def __init__(self, network: nn.Module, rank: int) -> None:
        super().__init__()
        self.inner, self.rank = network, rank
        trained = [(n, p) for n, p in Classifier.of(network).parameters().items() if p.requires_grad]
        self.names = [name for name, _ in trained]
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        for place, (_, parameter) in enumerate(trained):
            self.register_buffer(f"mean{place}", torch.zeros_like(parameter))
            self.register_buffer(f"scatter{place}", torch.zeros_like(parameter))
            self.register_buffer(f"deviations{place}", parameter.detach().new_zeros((rank, *parameter.shape)))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the network returns."""
        return self.inner(*args, **kwargs)

    @torch.no_grad()
    def collect(self) -> None:
        """Take the weights as they are now into the moments (Welford: no difference of large squares)."""
        parameters = Classifier.of(self.inner).parameters()
        self.count += 1
        count = int(self.count)
        for place, name in enumerate(self.names):
            mean, scatter, deviations = (self._buffers[f"{k}{place}"] for k in ("mean", "scatter", "deviations"))
            assert mean is not None and scatter is not None and deviations is not None
            before = parameters[name] - mean
            mean += before / count
            scatter += before * (parameters[name] - mean)
            deviations[(count - 1) % self.rank] = parameters[name] - mean

    @torch.no_grad()
    def moments(self) -> tuple[nn.Module, dict[str, Tensor], dict[str, Tensor]]:
        """The network with the means as weights, the variances and the deviations by name."""
        parameters, count = Classifier.of(self.inner).parameters(), int(self.count)
        buffers: Any = self._buffers
        for place, name in enumerate(self.names):
            parameters[name].copy_(buffers[f"mean{place}"])
        variances = {name: buffers[f"scatter{place}"] / count for place, name in enumerate(self.names)}
        return self.inner, variances, {name: buffers[f"deviations{place}"] for place, name in enumerate(self.names)}
