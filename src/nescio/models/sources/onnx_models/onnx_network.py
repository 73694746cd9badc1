"""From the graph of an ONNX file to a module whose parameters can be trained.

Each node becomes a module: a layer of torch where it has weights, else a function of tensors (`operators`, and what
onnx2torch has). Layers keep the names that they had before the export, as far as the file tells them, so the module has
the layers of the original one.

ONNX does not say which of its numbers were trained. A constant of more than one number is taken as trained where it is
the weight of a layer, or added to, multiplied with or joined to what the network computes. What is done to the input
before the first layer (mean and standard deviation), masks and single numbers stay as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from nescio._common.lazy_imports import need
from nescio.models.sources.onnx_models.operators import OPERATORS, Operator
from nescio.models.sources.onnx_models.simplified import attributes_of, simplified, tensor
from nescio.models.sources.onnx_models.tree import hold, path, put, word
from nescio.types import ModelError

TRAINED = frozenset({"Add", "Mul", "MatMul", "Gemm", "Einsum", "Gather", "Expand", "Concat", "PRelu", "Transpose"})
TRAINED |= {"Reshape", "Unsqueeze", "Where", "Sum"}
NORMS = frozenset({"LayerNormalization", "GroupNormalization", "InstanceNormalization", "RMSNormalization"})
SIMPLE = frozenset({"Add", "Sub", "Mul", "Div", "Cast", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Pad"})
"""Done to an input before the first layer, these are no layers."""
NEVER_SO_LARGE = 1e30
"""A weight: what is larger masks something out."""


@dataclass(frozen=True)
class Step:
    """A call of the module at `path` with the values of these names; an empty name is an input that is left out."""

    path: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done: tuple[str, ...]
    """Values that nobody needs afterwards."""


class Network(nn.Module):
    """The steps of a graph, one after the other; `held` says where its constants and parameters are."""

    def __init__(self, inputs: tuple[str, ...], output: str) -> None:
        super().__init__()
        self.inputs, self.output = inputs, output
        self.steps: tuple[Step, ...] = ()
        self.held: dict[str, tuple[str, str]] = {}

    def forward(self, *tensors: Tensor, **named: Tensor) -> Tensor:
        """The chosen output, for all inputs in order or by their names."""
        if set(named) != set(self.inputs[len(tensors) :]) or len(tensors) > len(self.inputs):
            shown = ", ".join(named) if named else f"{len(tensors)} without a name"
            raise ModelError(
                f"expected a mapping with the inputs {', '.join(self.inputs)} of the ONNX model, got {shown}; "
                "give {name: tensor, …}"
            )
        values: dict[str, Any] = dict(zip(self.inputs, tensors, strict=False)) | named
        for step in self.steps:
            result = self.get_submodule(step.path)(*(self._value(name, values) for name in step.inputs))
            several = result if isinstance(result, tuple | list) else (result,)
            values.update(zip(step.outputs, several, strict=False))
            for name in step.done:
                values.pop(name, None)
        answer: Tensor = self._value(self.output, values)
        return answer

    def _value(self, name: str, values: dict[str, Any]) -> Any:
        if name in self.held:
            path, key = self.held[name]
            return getattr(self.get_submodule(path), key)
        return values[name] if name else None


def network_of(proto: Any, output: str, batch: int | None) -> Network:
    """Build the module of a graph.

    Args:
        proto: The model, as onnx reads it, its shapes inferred.
        output: Which of its outputs is wanted.
        batch: How many rows the file is made for; None for any number.

    Returns:
        The module, in evaluation mode.

    Raises:
        ModelError: Some operators cannot be converted. All of them are named.
    """
    return _Builder(proto, output, batch).network


class _Builder:
    """One conversion."""

    def __init__(self, proto: Any, output: str, batch: int | None) -> None:
        self.graph, output = simplified(proto, output, batch)
        self.of_torch = proto.producer_name == "pytorch"
        self.versions = {one.domain: one.version for one in proto.opset_import}
        helper = need("onnx.numpy_helper", "onnx")
        self.constants = {one.name: helper.to_array(one) for one in self.graph.initializer}
        names = tuple(one.name for one in self.graph.input if one.name not in self.constants)
        self.raw = set(names)
        self.parameters: dict[tuple[str, bool], nn.Parameter] = {}
        self.readable = need("onnx2torch.onnx_graph", "onnx").OnnxGraph(self.graph)
        self.network = Network(names, output)
        self._refuse_unsupported()
        self._build()
        self.network.eval()

    def _build(self) -> None:
        nodes = list(self.graph.node)
        last = {name: i for i, node in enumerate(nodes) for name in node.input}
        steps = []
        for i, node in enumerate(nodes):
            module, inputs, place = self._module(node)
            path = put(self.network, place, module)
            for position, name in enumerate(inputs):
                if name in self.constants and name not in self.network.held:
                    self._hold(node, position, name)
            done = tuple(name for name in set(node.input) if last[name] == i and name != self.network.output)
            steps.append(Step(path, tuple(inputs), tuple(node.output), done))
            others = [name for name in node.input if name and name not in self.constants]
            if node.op_type in SIMPLE and self.raw.issuperset(others):
                self.raw.update(node.output)
        self.network.steps = tuple(steps)

    def _module(self, node: Any) -> tuple[nn.Module, list[str], str]:
        """The module of a node, which of its inputs it is called with, and where it is put."""
        inputs = list(node.input)
        place = word(node.name or node.op_type)
        fixed = [name in self.constants for name in inputs]
        linear = node.op_type in ("Linear", "Gemm") and all(fixed[1:]) and not attributes_of(node).get("transA", 0)
        if linear and (layer := self._linear(node)) is not None:
            return layer, inputs[:1], self._place(inputs[1:], place)
        if node.op_type == "LayerNormalization" and all(fixed[1:]):
            shape = self.constants[inputs[1]].shape
            axis = attributes_of(node).get("axis", -1)
            if axis == -len(shape):
                norm = nn.LayerNorm(shape, attributes_of(node).get("epsilon", 1e-5), bias=len(inputs) > 2)
                return self._filled(norm, inputs[1:]), inputs[:1], self._place(inputs[1:], place)
        if attributes_of(node).get("training_mode", 0):
            raise ModelError(
                f"expected a model for evaluation, got {node.op_type} in training mode; export it again: model.eval()"
            )
        if node.op_type in OPERATORS and not node.domain:
            attributes = attributes_of(node) | {"outputs": len(node.output)}
            return Operator(node.op_type, attributes), inputs, place
        try:
            readable = need("onnx2torch.onnx_node", "onnx").OnnxNode(node, place)
            module, mapping = self._converter(node)(readable, self.readable)
        except (NotImplementedError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"expected a node that can be converted, got {node.op_type} ({node.name or node.output[0]}): {reason}"
            ) from error
        if next(module.parameters(), None) is not None:  # a convolution, behind its padding where that is uneven
            self._filled(module[-1] if isinstance(module, nn.Sequential) else module, inputs[1:3])
            place = self._place(inputs[1:], place)
        return module, list(mapping.inputs), place

    def _linear(self, node: Any) -> nn.Linear | None:
        """A linear layer; None where its constants have other shapes."""
        attributes = attributes_of(node)
        weight, *bias = node.input[1:]
        value = self.constants[weight]
        turned = not attributes.get("transB", 0)
        outputs, inputs = value.shape[::-1] if turned else value.shape
        if bias and (self.constants[bias[0]].size != outputs or self.constants[bias[0]].shape[-1] != outputs):
            return None
        layer = nn.Linear(inputs, outputs, bias=bool(bias), device="meta")
        scales = attributes.get("alpha", 1.0), attributes.get("beta", 1.0)
        layer.weight = self._parameter(weight, turned, scales[0])
        if bias:
            layer.bias = self._parameter(bias[0], False, scales[1])
            layer.bias.data = layer.bias.data.reshape(-1)
        return layer

    def _filled(self, layer: nn.Module, names: list[str]) -> nn.Module:
        for key, name in zip(("weight", "bias"), names, strict=False):
            setattr(layer, key, self._parameter(name))
        return layer

    def _parameter(self, name: str, turned: bool = False, scale: float = 1.0) -> nn.Parameter:
        """The parameter of a constant: one that is used twice is one parameter."""
        key = name, turned
        if key not in self.parameters:
            value = tensor(self.constants[name])
            value = value.mT.contiguous() if turned else value
            made = nn.Parameter(value if scale == 1.0 else value * scale)
            if scale != 1.0:
                return made
            self.parameters[key] = made
        return self.parameters[key]

    def _hold(self, node: Any, position: int, name: str) -> None:
        """Keep an operand as a parameter or a constant of the network."""
        if self._is_trained(node, position, name):
            owner, key = self._owner(name)
            self.network.held[name] = hold(self.network, owner, key, self._parameter(name))
            return
        value = tensor(self.constants[name])
        self.network.held[name] = hold(self.network, "constants", word(name), value)

    def _owner(self, name: str) -> tuple[str, str]:
        """The module that a parameter of this name was part of, and its name there; of its own where that is not told.

        In a file of torch, a name without dots belonged to the whole model; one with a number at its end is the
        exporter's own.
        """
        owner, dot, key = name.rpartition(".")
        if dot or (self.of_torch and name.isidentifier() and not re.fullmatch(r"\w+_\d+", name)):
            return path(owner) if owner else "", word(key)
        return word(name), "weight"

    def _is_trained(self, node: Any, position: int, name: str) -> bool:
        value = self.constants[name]
        if value.dtype.kind != "f" or value.size < 2 or not (abs(value.astype(np.float64)) < NEVER_SO_LARGE).all():
            return False
        if node.op_type in NORMS:  # a norm without weights of its own is exported with ones and zeros
            return "." in name or not (value == (1.0, 0.0)[position - 1]).all()
        if "." not in name and (value == value.flat[0]).all():  # as many times the same number was not learned
            return False
        if node.op_type == "Where":
            return "." in name
        others = [one for i, one in enumerate(node.input) if i != position and one not in self.constants]
        first = node.op_type in SIMPLE and bool(others) and self.raw.issuperset(others)
        return node.op_type in TRAINED and not first

    def _place(self, names: list[str], otherwise: str) -> str:
        """Where a layer with these constants was before the export: ``a.b`` for ``a.b.weight`` or ``a.b_bias``."""
        for name in names:
            owner = re.sub(r"[._](weight|bias)$", "", name)
            if "." in name and owner != name:
                return path(owner)
        return otherwise

    def _converter(self, node: Any) -> Any:
        """That of onnx2torch: for the version of the operator, or for the newest before it that it knows."""
        registry = need("onnx2torch.node_converters.registry", "onnx")._CONVERTER_REGISTRY
        most = self.versions.get(node.domain, 0)
        known = {
            key.version: made
            for key, made in registry.items()
            if key.operation_type == node.op_type and key.domain == node.domain and key.version <= most
        }
        return known[max(known)] if known else None

    def _refuse_unsupported(self) -> None:
        own = {"Linear", *OPERATORS}
        missing = Counter(
            f"{node.domain}.{node.op_type}".lstrip(".")
            for node in self.graph.node
            if (node.op_type not in own or node.domain) and self._converter(node) is None
        )
        if missing:
            named = ", ".join(f"{name} ({count} times)" if count > 1 else name for name, count in missing.items())
            raise ModelError(
                f"expected operators that can be converted to PyTorch, got {named}; export the model with others, "
                "without quantisation, or write it as a torch.nn.Module and load its weights"
            )
