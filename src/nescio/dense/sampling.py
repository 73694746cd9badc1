"""Labelled positions of held-out inputs: what calibration and metrics are made from, without keeping every logit.

A picture has a million positions that know much the same. A few thousand of each, drawn once, are enough to fit a
temperature or to measure calibration, and many pictures fit into memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nescio import inputs
from nescio._common.argument_checks import integer
from nescio._common.chunking import at_once
from nescio.dense.summaries import counting
from nescio.inputs import Data, Inputs, describe
from nescio.models import Classifier, ModelLike
from nescio.posteriors import Deterministic
from nescio.posteriors.base import PosteriorBase
from nescio.types import InputError


class Positions(NamedTuple):
    """Hold M labelled positions.

    Attributes:
        logits: float64 ``[S, M, C]`` of S samples.
        labels: int64 ``[M]``.
        input: The number of the input that each is from, int64 ``[M]``.

    Examples:
        >>> Positions(torch.zeros(1, 2, 4), torch.tensor([0, 3]), torch.tensor([0, 0])).probabilities.shape
        torch.Size([2, 4])
    """

    logits: Tensor
    labels: Tensor
    input: Tensor

    @property
    def probabilities(self) -> Tensor:
        """The mean probabilities over the S samples, ``[M, C]``."""
        return self.logits.softmax(-1).mean(0)


def labelled_positions(
    model: ModelLike, data: Data, *, each: int | None = 2000, ignore_index: int | None = None, seed: int = 0
) -> Positions:
    """Draw labelled positions of held-out inputs, with the logits there.

    Args:
        model: A model that answers at every position, a `Classifier` or a posterior.
        data: A pair (inputs, labels ``[N, *positions]``), or an iterable of such pairs.
        each: How many positions of each input are drawn, without repetition; None for all of them.
        ignore_index: A label; positions with it are left out.
        seed: Of the draws, which depend on it and on the place of the input alone.

    Returns:
        Logits, labels, and the number of the input of each position.

    Raises:
        InputError: The labels do not fit the positions, or no position is left.

    Examples:
        >>> network, x = torch.nn.Conv2d(3, 4, 1), torch.rand(5, 3, 8, 8)
        >>> held_out = nescio.dense.labelled_positions(network, (x, torch.randint(4, (5, 8, 8))), each=20)
        >>> held_out.logits.shape
        torch.Size([1, 100, 4])
        >>> temperature = nescio.posteriors.Temperature(network).fit_logits(held_out.logits, held_out.labels)
        >>> temperature.predict(x).shape
        torch.Size([1, 5, 8, 8, 4])
    """
    if each is not None:
        integer("each", each, at_least=1, hint="None takes all")
    integer("seed", seed, at_least=0)
    posterior = model if isinstance(model, PosteriorBase) else Deterministic(_of(model))
    logits, labels, numbers, count = [], [], [], 0
    for x, y in _pairs(data):
        for start in range(0, len(y), step := at_once(x, None)):
            z = posterior.logits(inputs.take(x, slice(start, start + step)), progress=False)
            own = y[start : start + step]
            if own.shape != z.shape[1:-1]:
                raise InputError(f"expected labels of shape {list(z.shape[1:-1])}, got {describe(own)}")
            counts = counting(own.shape, None, None if ignore_index is None else own, ignore_index)
            for i in range(len(own)):
                chosen = _drawn(counts[i].flatten().nonzero().flatten(), each, [seed, count])
                logits.append(z[:, i].flatten(1, -2)[:, chosen])
                labels.append(own[i].flatten()[chosen])
                numbers.append(torch.full((len(chosen),), count))
                count += 1
    if not sum(map(len, labels)):
        raise InputError("expected at least one position with a label, got none; look at ignore_index and the data")
    return Positions(torch.cat(logits, 1), torch.cat(labels), torch.cat(numbers))


def _of(model: ModelLike) -> Classifier:
    if hasattr(model, "predict") and not isinstance(model, nn.Module | Classifier):
        raise InputError(f"expected a model or a posterior of nescio.posteriors, got {describe(model)}")
    return Classifier.of(model, dense=True)


def _pairs(data: Data) -> Iterator[tuple[Inputs, Tensor]]:
    """Inputs and labels int64 of every position, batch by batch."""
    pair = isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray | Mapping)
    for item in [data] if pair else data:
        if not isinstance(item, tuple | list) or len(item) < 2:
            raise InputError(f"expected a pair (inputs, labels) or an iterable of such pairs, got {describe(item)}")
        x, y = inputs.as_inputs(item[0]), torch.as_tensor(item[1])
        if y.is_floating_point() or y.dtype == torch.bool or len(y) != inputs.size(x):
            raise InputError(f"expected class indices of {inputs.size(x)} inputs, got {describe(y)}")
        yield x, y.to("cpu", torch.int64)


def _drawn(positions: Tensor, each: int | None, seed: list[int]) -> Tensor:
    """At most so many of the positions, in order."""
    if each is None or len(positions) <= each:
        return positions
    chosen = np.random.default_rng(seed).choice(len(positions), each, replace=False)
    return positions[torch.from_numpy(np.sort(chosen))]
