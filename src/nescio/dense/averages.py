"""Means over the positions of an input: what is said in one number of a model that answers at every position.

Where padding is masked out, it does not count.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from nescio import inputs
from nescio.dense.summaries import counted
from nescio.inputs import Inputs
from nescio.scores.decomposition import decompose
from nescio.types import Decomposition, Posterior


def averaged(posterior: Posterior, x: Inputs) -> tuple[Tensor, Decomposition, int]:
    """Return the mean over positions of the probabilities ``[N, C]`` and of the kinds of doubt, and how many members.

    One input at a time, so that memory is that of the predictions of one.

    Args:
        posterior: What predicts, ``[S, N, *positions, C]``.
        x: A batch.

    Examples:
        >>> posterior = nescio.posteriors.Deterministic(nescio.Classifier(torch.nn.Conv2d(3, 5, 1), output="dense"))
        >>> p, kinds, members = averaged(posterior, torch.rand(2, 3, 8, 8))
        >>> p.shape, kinds.total.shape, members
        (torch.Size([2, 5]), torch.Size([2]), 1)
    """
    p, kinds, members = [], [], 1
    for at in range(inputs.size(x)):
        one = inputs.take(x, slice(at, at + 1))
        drawn = posterior.predict(one, progress=False)
        members = len(drawn)
        p.append(torch.stack([mean(values, one) for values in drawn.mean(0).unbind(-1)], -1))
        doubt = decompose(drawn)
        kinds.append(replace(doubt, **{name: mean(values, one) for name, values in vars(doubt).items()}))
    fields = {name: torch.cat([vars(one)[name] for one in kinds]) for name in vars(kinds[0])}
    return torch.cat(p), replace(kinds[0], **fields), members


def mean(maps: Tensor, x: Inputs) -> Tensor:
    """Return the mean of maps ``[N, *positions]`` of a batch over the positions that count, float64 ``[N]``."""
    return counted(maps, x).summary("mean")
