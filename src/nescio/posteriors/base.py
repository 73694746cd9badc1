"""What every predictive distribution shares: from a data source to probabilities of S samples.

    z^s_n = logits of sample s for input n,   p^s_n = softmax(z^s_n),   predict(x) = p, float64 [S, N, C]

For a model that answers at every position, such as a pixel or a token, all of these are ``[S, N, *positions, C]``.

A distribution is a subclass of `PosteriorBase` that sets ``self.classifiers`` and writes one method, `_logits`: the
logits ``[S, N, C]`` of a batch that is on the model's device and fits into memory. What surrounds it is here: reading
of the data, the model's eval mode without gradients, its state put back bit for bit, chunks, the progress bar, checks.

The samples must not depend on the batch: draws come from generators of their own that know the seed, the sample and
shapes of the model alone, and all inputs share them.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Data, Inputs
from nescio.models import Classifier, ModelLike
from nescio.models.positions import accepting
from nescio.modes import predicting, preserved
from nescio.posteriors import saving
from nescio.progress import bar
from nescio.types import InputError, ModelError


@dataclass(frozen=True)
class ScaledNetwork:
    """Hold a whole network that is one sample of a distribution, and what is done to its logits: z ↦ scale ⊙ z + shift.

    Attributes:
        classifier: The network.
        scale: A number, or one for each class ``[C]``.
        shift: The same.

    Examples:
        >>> network = ScaledNetwork(nescio.Classifier.of(torch.nn.Linear(4, 3)), scale=0.5)
        >>> network.scaled(torch.tensor([[2.0, 4.0, 6.0]]))
        tensor([[1., 2., 3.]])
    """

    classifier: Classifier
    scale: Tensor | float = 1.0
    shift: Tensor | float = 0.0

    def scaled(self, logits: Tensor) -> Tensor:
        """Scale and shift the network's logits.

        Args:
            logits: ``[N, C]``, on any device.

        Returns:
            The logits of the sample.
        """
        scale, shift = (v.to(logits.device) if isinstance(v, Tensor) else v for v in (self.scale, self.shift))
        return logits * scale + shift


class PosteriorBase(ABC):
    """Base of the distributions over predictions: `predict` gives probabilities ``[S, N, C]`` of S samples.

    To write one, set ``self.classifiers`` in ``__init__`` and write `_logits`. To be saved, a class is registered with
    ``@saving.saved("its-name")`` and writes `_state` and `_from_state`.

    Examples:
        >>> class Halved(PosteriorBase):
        ...     def __init__(self, model):
        ...         self.classifiers = (nescio.Classifier.of(model),)
        ...     def _logits(self, x):
        ...         z = self.classifiers[0].logits(x)
        ...         return torch.stack([z, z / 2])
        >>> Halved(torch.nn.Linear(4, 3)).predict(torch.rand(5, 4)).shape
        torch.Size([2, 5, 3])
    """

    classifiers: tuple[Classifier, ...]
    """The models that are run; their state is put back after `predict`."""
    learnt: bool = True
    """Whether its spread was fitted or trained, so that disagreement of its samples means doubt of the model."""

    @property
    def roots(self) -> tuple[nn.Module, ...]:
        """The modules whose state matters, for `nescio.modes`."""
        return tuple(root for classifier in self.classifiers for root in classifier.roots)

    def predict(self, x: Data, *, progress: bool | None = None) -> Tensor:
        """Predict the class probabilities of each sample.

        Args:
            x: A batch, as `nescio.score` takes it, or an iterable of batches.
            progress: As in `nescio.score`.

        Returns:
            Probabilities, float64 ``[S, N, C]`` on the CPU; ``[S, N, *positions, C]`` of a model that answers at every
            position.
        """
        return self._over(x, progress, lambda z: z.softmax(-1))

    def logits(self, x: Data, *, progress: bool | None = None) -> Tensor:
        """Compute the logits of each sample, float64 ``[S, N, C]`` on the CPU: `predict` before the softmax.

        Args:
            x: As in `predict`.
            progress: As in `nescio.score`.

        Returns:
            The logits.
        """
        return self._over(x, progress, lambda z: z)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the fitted state to the folder; `nescio.posteriors.load` reads it.

        Args:
            folder: Where to write.
        """
        saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: ModelLike | Sequence[ModelLike]) -> Self:
        """Read what `save` wrote, where it is of this class; see `nescio.posteriors.load`.

        Args:
            folder: What `save` wrote.
            model: As in `nescio.posteriors.load`.

        Returns:
            The distribution.
        """
        posterior = saving.load(folder, model)
        if not isinstance(posterior, cls):
            raise InputError(
                f"expected a saved {cls.__name__} in {os.fspath(folder)}, got a {type(posterior).__name__}; "
                "nescio.posteriors.load takes either"
            )
        return posterior

    def networks(self) -> list[ScaledNetwork] | None:
        """Return the networks of which the samples are made, one for each; None where they are made in another way.

        Returns:
            The networks.
        """
        return None

    @abstractmethod
    def _logits(self, x: Inputs) -> Tensor:
        """Logits ``[S, N, C]`` of a batch prepared for the first classifier, in eval mode and without gradients."""

    def _batch(self, x: Inputs, moved: Callable[[int], object]) -> Tensor:
        """Logits ``[S, N, C]`` of a batch as it came; calls `moved` with the number of inputs that are done."""
        return chunked(self.classifiers[0].prepare(x), self._logits, moved, axis=1)

    def _running(self) -> AbstractContextManager[object]:
        """Entered around the work on one data source, for what a distribution holds while it lasts."""
        return nullcontext()

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Settings, which JSON can hold, and tensors: all that `_from_state` needs beside the model."""
        raise InputError(f"expected a distribution that can be saved, got {type(self).__name__}, which cannot")

    @classmethod
    def _from_state(cls, model: Any, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """The distribution again from what `_state` gave; `model` is what the user gave to `load`."""
        raise InputError(f"expected a distribution that can be loaded, got {cls.__name__}, which cannot")

    def _over(self, data: Data, progress: bool | None, finish: Callable[[Tensor], Tensor]) -> Tensor:
        parts: list[Tensor] = []
        shows = bar(total(data), show=progress, description="predicting")
        with preserved(self), predicting(self), self._running(), shows as shown:
            for batch in inputs.batches(data):
                count = inputs.size(batch)
                if count == 0:
                    raise InputError("expected batches of at least one input, got none; leave empty batches out")
                z = accepting(self.classifiers, partial(self._batch, batch, shown.update))
                _check(z, count, parts[0].shape if parts else None)
                parts.append(finish(z))
        return torch.cat(parts, dim=1)


def chunked(
    x: Inputs, step: Callable[[Inputs], Tensor], moved: Callable[[int], object] = lambda count: None, axis: int = 0
) -> Tensor:
    """Step of the batch, as many inputs at once as fit into memory: float64 on the CPU, joined over the inputs.

    Inputs are the dimension `axis` of what `step` gives.
    """

    def part(start: int, stop: int) -> Tensor:
        logits = step(inputs.take(x, slice(start, stop))).to("cpu", torch.float64)
        moved(stop - start)
        return logits

    return torch.cat(in_chunks(inputs.size(x), at_once(x, None), part), dim=axis)


def total(data: object) -> int | None:
    """How many inputs a data source gives, where that is known before it is read: for a progress bar."""
    data = inputs.plain(data)
    if isinstance(data, Tensor | np.ndarray | Mapping):
        return inputs.size(inputs.as_inputs(data))
    if isinstance(data, DataLoader) and isinstance(data.dataset, Sized) and data.batch_size:
        return min(len(data.dataset), len(data) * data.batch_size)
    if isinstance(data, list) and data and all(isinstance(batch, Tensor) and batch.ndim > 1 for batch in data):
        return sum(map(len, data))
    known = getattr(data, "total", None)
    return known if isinstance(known, int) else None


def _check(z: Tensor, count: int, before: torch.Size | None) -> None:
    """Raise a ModelError unless z is [S, count, ..., C], alike in all batches, and each row has a softmax."""
    if z.ndim < 3 or z.shape[1] != count or z.shape[0] < 1 or z.shape[-1] < 2:
        raise ModelError(f"expected logits [S, N, C] of N = {count} inputs, got {inputs.describe(z)}")
    if before is not None and (z.shape[0], z.shape[-1]) != (before[0], before[-1]):
        raise ModelError(
            f"expected {before[0]} samples and {before[-1]} classes as in the first batch, got {inputs.describe(z)}"
        )
    if before is not None and z.shape[2:] != before[2:]:
        raise InputError(
            f"expected inputs with {list(before[2:-1])} positions as in the first batch, got {list(z.shape[2:-1])}; "
            "bring them to one size, or predict the batches one by one"
        )
    if bool((z.isnan() | (z == torch.inf)).any()) or bool((z == -torch.inf).all(-1).any()):
        raise ModelError("expected finite logits, got NaN or infinite ones; look for an overflow in the state or model")
