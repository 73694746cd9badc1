"""The last linear layer behind the features: its weights with the bias as the last column, float64 [C, D + 1]."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nescio.models.features import Heard
from nescio.posteriors.laplace_layer import check_last, padded

_OTHERWISE = "use a score that needs no last layer, such as entropy, knn or mahalanobis"


def weights(heard: Heard, features: Tensor, logits: Tensor) -> Tensor:
    """Weights and bias of the layer that was heard, once it is sure that it makes these logits of these features."""
    layer = heard.module
    assert isinstance(layer, nn.Linear)
    z = logits.to("cpu", torch.float64)
    check_last(heard.name, layer, features, z, logits.dtype, _OTHERWISE)
    weight = layer.weight.detach().to("cpu", torch.float64)
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().to(weight)
    return padded(torch.cat([weight, bias[:, None]], 1).T, z).T
