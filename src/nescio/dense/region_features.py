"""What a model sees at each region of a picture: the features of its last layer, on a grid."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from nescio.dense.head import find, watched
from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.models.features import listen
from nescio.models.positions import accepting
from nescio.types import ModelError


def region_features(classifier: Classifier, x: Inputs, layer: str | None, grid: int) -> Tensor:
    """Return the features of the regions of each picture, float64 ``[N, h, w, D]`` on the model's device.

    Args:
        classifier: A model that answers at every position.
        x: A prepared batch of pictures.
        layer: The module whose output is taken; None for the input of the last layer.
        grid: How many regions there are at most in each direction; finer features are averaged.

    Raises:
        ModelError: The features are no maps ``[N, D, h, w]``.
    """
    if layer is None:
        with watched(classifier) as calls:
            logits = accepting([classifier], lambda: classifier.logits(x))
        seen = find(classifier, calls, logits).calls[-1].given
    else:
        _, heard = accepting([classifier], lambda: listen(classifier, x, [layer]))
        seen = heard[layer].value
    if seen.ndim != 4:
        raise ModelError(f"expected features of regions [N, D, h, w], got {describe(seen)}; name another layer='...'")
    size = min(seen.shape[2], grid), min(seen.shape[3], grid)
    return F.adaptive_avg_pool2d(seen, size).movedim(1, -1).double()
