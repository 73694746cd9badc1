"""A network of Keras, saved as .h5, as a module of torch: the graph and the weights are in the file, h5py reads it.

Pictures are [N, C, H, W] here and [N, H, W, C] there. The softmax of the last layer is left out: logits come out.
"""

from __future__ import annotations

import io
import json
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from packaged.base import importable


class Same(nn.Module):
    """A convolution that pads as Keras and TensorFlow do: with a stride, more at the end than at the beginning."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        sides = []
        for length, kernel, stride in zip(x.shape[2:], self.layer.kernel_size, self.layer.stride, strict=True):
            missing = max((-(-length // stride) - 1) * stride + kernel - length, 0)
            sides.append((missing // 2, missing - missing // 2))
        return self.layer(F.pad(x, (*sides[1], *sides[0])))


class Flat(nn.Module):
    """In the order of Keras: channels last."""

    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(1, -1).flatten(1)


class Sum(nn.Module):
    """Of two parts."""

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class Graph(nn.Module):
    """The layers of a functional model, each with what it is given."""

    def __init__(self, layers: dict[str, nn.Module], given: dict[str, list[str]], first: str, last: str) -> None:
        super().__init__()
        self.layers, self.given, self.first, self.last = nn.ModuleDict(layers), given, first, last

    def forward(self, x: Tensor) -> Tensor:
        values = {self.first: x}
        for name, layer in self.layers.items():
            values[name] = layer(*(values[one] for one in self.given[name]))
        return values[self.last]


def read_keras(content: bytes) -> Graph:
    """The network in the bytes of a .h5 file, in evaluation mode."""
    importable("h5py")
    import h5py

    with h5py.File(io.BytesIO(content)) as file:
        config = json.loads(file.attrs["model_config"])["config"]
        held = file["model_weights"]
        weights = {
            name: [torch.tensor(held[name][one][()]) for one in held[name].attrs["weight_names"]] for name in held
        }
    ((first, *_),), ((last, *_),) = config["input_layers"], config["output_layers"]
    layers, given = {}, {}
    for one in config["layers"]:
        if one["class_name"] == "InputLayer":
            continue
        layers[one["name"]] = layer_of(one["class_name"], one["config"], weights[one["name"]], one["name"] == last)
        given[one["name"]] = [source[0] for source in one["inbound_nodes"][0]]
    return Graph(layers, given, first, last).eval()


def layer_of(kind: str, config: dict[str, Any], weights: list[Tensor], last: bool) -> nn.Module:
    """One layer with its weights."""
    if kind in ("Conv2D", "DepthwiseConv2D"):
        layer: nn.Module = _convolution(kind, config, weights)
    elif kind == "BatchNormalization":
        layer = nn.BatchNorm2d(len(weights[0]), eps=config["epsilon"])
        scale, shift, mean, variance = weights
        layer.load_state_dict(
            {"weight": scale, "bias": shift, "running_mean": mean, "running_var": variance}, strict=False
        )
    elif kind == "Dense":
        layer = nn.Linear(*weights[0].shape)
        layer.load_state_dict({"weight": weights[0].T.contiguous(), "bias": weights[1]})
    elif kind == "AveragePooling2D":
        layer = nn.AvgPool2d(tuple(config["pool_size"]), tuple(config["strides"]))
    else:
        layer = {"Activation": nn.Identity, "Add": Sum, "Flatten": Flat, "Dropout": nn.Identity}[kind]()
    activation = config.get("activation", "linear")
    if activation == "relu":
        return nn.ReLU() if kind == "Activation" else nn.Sequential(layer, nn.ReLU())
    if activation != "linear" and not (last and activation == "softmax"):
        raise ValueError(f"expected relu, linear, or softmax at the end, got {activation} in {config['name']}")
    return layer


def _convolution(kind: str, config: dict[str, Any], weights: list[Tensor]) -> nn.Module:
    kernel = weights[0].permute(3, 2, 0, 1) if kind == "Conv2D" else weights[0].permute(2, 3, 0, 1)
    groups = 1 if kind == "Conv2D" else kernel.shape[0]
    size = tuple(config["kernel_size"])
    made = nn.Conv2d(kernel.shape[1] * groups, kernel.shape[0], size, tuple(config["strides"]), groups=groups)
    made.load_state_dict({"weight": kernel.contiguous(), "bias": weights[1]})
    return Same(made) if config["padding"] == "same" else made
