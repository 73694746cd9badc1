"""The last linear layer behind the features: its weights with the bias as the last column, float64 [C, D + 1]."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nescio.posteriors.laplace_layer import check_last, padded
from nescio.quantities.forward_pass import ForwardPass, ForwardRequest

_OTHERWISE = "use a score that needs no last layer, such as entropy, knn or mahalanobis"


@dataclass(frozen=True)
class LastLayer(ForwardRequest):
    """Request the weights of the last linear layer with its bias as the last column, float64 ``[C, D + 1]``.

    It is the same for every input. Only a model whose logits are what this layer makes of the features of `Features()`
    can answer. With one logit for two classes the first class has zeros.

    Examples:
        >>> model = torch.nn.Linear(2, 3)
        >>> classifier = nescio.Classifier(model)
        >>> answers = nescio.quantities.compute(classifier, torch.ones(1, 2), [LastLayer()])
        >>> torch.equal(answers[LastLayer()][:, -1], model.bias.detach().double())
        True
    """

    per_input = False

    @property
    def listens_at(self) -> tuple[str | None, ...]:
        """The last linear layer."""
        return (None,)

    def read(self, forward: ForwardPass) -> Tensor:
        """Return weights and bias, once it is sure that the layer makes these logits of these features."""
        name, layer, logits = forward.heard[None].name, forward.heard[None].module, forward.logits
        assert isinstance(layer, nn.Linear)
        z = logits.to("cpu", torch.float64)
        check_last(name, layer, forward.features(None).cpu(), z, logits.dtype, _OTHERWISE)
        weight = layer.weight.detach().to("cpu", torch.float64)
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().to(weight)
        return padded(torch.cat([weight, bias[:, None]], 1).T, z).T
