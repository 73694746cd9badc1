"""The last linear layer of a model: its input h and the logits z = W h + b, checked to be just that.

With one logit s for two classes the logits are (0, s), and what concerns the layer's one output is padded for the
first class.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nescio.inputs import Inputs, describe
from nescio.models import Classifier
from nescio.models.feature_layer import listen
from nescio.types import ModelError

_ROUND_OFF = {torch.float64: 1e-8, torch.float32: 5e-3}  # of a product on any device, relative to the largest logit


def observed(classifier: Classifier, x: Inputs) -> tuple[str, nn.Linear, Tensor, Tensor]:
    """Of a prepared batch: the layer's name, the layer, its input with a 1 for the bias, and the logits, in float64."""
    if classifier.module is None or not any(isinstance(part, nn.Linear) for part in classifier.module.modules()):
        raise ModelError(
            "expected a model that calls an nn.Linear at its end, whose weights become a Gaussian, got one that calls "
            f"none ({classifier.name}); use MCDropout, SWAG or an ensemble"
        )
    logits, heard = listen(classifier, x, [None])
    last = heard[None]
    assert isinstance(last.module, nn.Linear)
    h, z = last.value.to("cpu", torch.float64), logits.to("cpu", torch.float64)
    check_last(last.name, last.module, h, z, logits.dtype)
    if last.module.bias is not None:
        h = torch.cat([h, torch.ones_like(h[:, :1])], 1)
    return last.name, last.module, h, z


def probabilities(z: Tensor) -> tuple[Tensor, Tensor]:
    """P and 1 − p of each class, the latter from the other classes where p is near 1."""
    top = z.argmax(1, keepdim=True)
    others = (z - z.gather(1, top)).exp().scatter(1, top, 0.0)
    rest = others.sum(1, keepdim=True)
    p = others.scatter(1, top, 1.0) / (1.0 + rest)
    return p, (1.0 - p).scatter(1, top, rest / (1.0 + rest))


def padded(moved: Tensor, z: Tensor) -> Tensor:
    """What concerns the layer's outputs, for all classes: with one logit for two classes the first stays at 0."""
    missing = z.shape[-1] - moved.shape[-1]
    return nn.functional.pad(moved, (missing, 0)) if missing else moved


def probit(z: Tensor, variance: Tensor) -> Tensor:
    """Logits whose softmax is about the mean of softmax(N(z, variance))."""
    return z * (1.0 + math.pi / 8.0 * variance).rsqrt()


def check_last(
    name: str,
    layer: nn.Linear,
    h: Tensor,
    z: Tensor,
    dtype: torch.dtype,
    otherwise: str = "use MCDropout, InsertedDropout or an ensemble",
) -> None:
    """Raise a ModelError unless the logits are what this layer makes of the features; otherwise: what else to do."""
    wanted = "expected the logits to be the output of the last nn.Linear that the model calls"
    layer_name = f"'{name}' ({layer.in_features} to {layer.out_features})"
    outputs = layer.out_features
    if h.ndim != 2 or len(h) != len(z) or outputs not in (z.shape[1], z.shape[1] - (z.shape[1] == 2)):
        raise ModelError(
            f"{wanted}, got {layer_name} with {describe(h)} as its input, for logits of shape {list(z.shape)}; end the "
            f"model in a linear layer with one output for each class, or {otherwise}"
        )
    with torch.no_grad():
        bias = None if layer.bias is None else layer.bias.detach().to("cpu", torch.float64)
        made = nn.functional.linear(h, layer.weight.detach().to("cpu", torch.float64), bias)
    expected = padded(made, z)
    if float((expected - z).abs().max()) > _ROUND_OFF.get(dtype, 5e-2) * max(1e-30, float(z.abs().max())):
        raise ModelError(
            f"{wanted}, but the logits are not what {layer_name} gives: the model goes on after it; return its output "
            f"as it is, or {otherwise}"
        )
