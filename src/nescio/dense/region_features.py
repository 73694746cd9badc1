"""What a model sees at each region of a picture: the features of its last layer, on a grid."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.dense.head import logits_and_head
from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.models.feature_layer import listen
from nescio.models.positions import accepting
from nescio.types import ModelError


class Seen(NamedTuple):
    """What a model sees in a batch of pictures: the features of regions, and its answer.

    Args:
        features: float64 ``[N, h, w, D]`` on the model's device.
        predicted: The commonest class over positions, int64 ``[N]`` on the CPU.
        confidence: The mean probability of the answers, float64 ``[N]`` on the CPU.
    """

    features: Tensor
    predicted: Tensor
    confidence: Tensor


def region_features(classifier: Classifier, x: Inputs, layer: str | None, grid: int) -> Seen:
    """Return the features of the regions of each picture, and what the model answers, from one forward pass.

    Args:
        classifier: A model that answers at every position.
        x: A prepared batch of pictures.
        layer: The module whose output is taken; None for the input of the last layer.
        grid: How many regions there are at most in each direction; finer features are averaged.

    Raises:
        ModelError: The features are no maps ``[N, D, h, w]``.
    """
    if layer is None:
        logits, head = accepting([classifier], lambda: logits_and_head(classifier, x))
        seen = head.calls[-1].given
    else:
        logits, heard = accepting([classifier], lambda: listen(classifier, x, [layer]))
        seen = heard[layer].value
    if seen.ndim != 4:
        raise ModelError(f"expected features of regions [N, D, h, w], got {describe(seen)}; name another layer='...'")
    size = min(seen.shape[2], grid), min(seen.shape[3], grid)
    rows = [one.flatten(0, -2) for one in logits]
    predicted = torch.stack([row.argmax(1).bincount().argmax() for row in rows])
    confidence = torch.stack([(row.amax(1) - row.logsumexp(1)).double().exp().mean() for row in rows])
    return Seen(F.adaptive_avg_pool2d(seen, size).movedim(1, -1).double(), predicted.cpu(), confidence.cpu())
