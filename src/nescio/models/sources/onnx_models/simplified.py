"""The graph of an ONNX file, made simpler: constants, steps that change nothing, and linear layers as one node."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio._common.lazy_imports import need
from nescio.types import ModelError


def simplified(proto: Any, output: str, batch: int | None) -> tuple[Any, str]:
    """The graph, with constants as initialisers, linear layers as one node, and no step that this output does without.

    batch: the number of rows that the file is made for, which is then taken out of its shapes; None where it is free.
    Gives the graph, and the name that the output has in it.
    """
    helper = need("onnx.numpy_helper", "onnx")
    graph = need("onnx", "onnx").GraphProto()
    graph.CopyFrom(proto.graph)
    alias: dict[str, str] = {}
    kept = []
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = alias.get(name, name)
        while node.input and not node.input[-1]:
            del node.input[-1]
        if node.op_type == "Constant" and not node.domain:
            kind, value = next(iter(attributes_of(node).items()))
            if kind.startswith("value_string") or kind == "sparse_value":
                raise ModelError(f"expected constants of numbers, got {kind} in the node {node.name or node.output[0]}")
            graph.initializer.append(helper.from_array(_array(kind, value), node.output[0]))
        elif node.op_type in ("Identity", "Dropout") and not node.domain:
            alias[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    output = alias.get(output, output)
    if batch is not None:
        _free_rows(kept, graph, batch)
    shapes = {one.name: tuple(one.dims) for one in graph.initializer}
    nodes = _with_linear_layers(_needed(kept, output), shapes, output)
    del graph.node[:]
    graph.node.extend(nodes)
    return graph, output


def _free_rows(nodes: list[Any], graph: Any, batch: int) -> None:
    """Write into each shape that keeps the rows of a batch, as they are: as many as there are."""
    helper = need("onnx.numpy_helper", "onnx")
    constants = {one.name: one for one in graph.initializer}
    known = {one.name: one.type.tensor_type.shape.dim for one in (*graph.value_info, *graph.input)}
    for node in nodes:
        if node.op_type != "Reshape" or node.input[1] not in constants:
            continue
        shape = helper.to_array(constants[node.input[1]]).copy()
        given = known.get(node.input[0])
        if not (given and given[0].dim_value == batch and len(shape) and shape[0] == batch and (shape > 0)[1:].all()):
            continue
        shape[0] = -1
        name = f"{node.input[1]} of {node.output[0]}"
        graph.initializer.append(helper.from_array(shape, name))
        node.input[1] = name


def _needed(nodes: list[Any], output: str) -> list[Any]:
    """Those that the output depends on, in their order."""
    wanted, kept = {output}, []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def _with_linear_layers(nodes: list[Any], shapes: dict[str, tuple[int, ...]], output: str) -> list[Any]:
    """A product with a constant matrix, and the sum with a constant vector that follows it, as one node `Linear`."""
    uses = Counter([*(name for node in nodes for name in node.input), output])
    made: dict[str, Any] = {}
    result = []
    for node in nodes:
        if node.op_type == "MatMul" and len(shapes.get(node.input[1], ())) == 2 and node.input[0] not in shapes:
            node.op_type = "Linear"
            made[node.output[0]] = node
        elif node.op_type == "Add":
            product = next((name for name in node.input if name in made and uses[name] == 1), None)
            other = next((name for name in node.input if name != product), "")
            if product is not None and shapes.get(other) == shapes[made[product].input[1]][1:]:
                layer = made.pop(product)
                layer.input.append(other)
                layer.output[0] = node.output[0]
                continue
        result.append(node)
    return result


def _array(kind: str, value: object) -> Any:
    if kind == "value":
        return need("onnx.numpy_helper", "onnx").to_array(value)
    return np.asarray(value, dtype=np.float32 if "float" in kind else np.int64)


def attributes_of(node: Any) -> dict[str, Any]:
    """By name: numbers, texts, lists of them, tensors."""
    get = need("onnx.helper", "onnx").get_attribute_value
    values = {one.name: get(one) for one in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


def tensor(array: Any) -> Tensor:
    """An array of a file as a tensor of its own."""
    if array.dtype.name == "bfloat16":  # which numpy does not know by itself
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    try:
        return torch.from_numpy(array.copy())
    except TypeError as error:
        raise ModelError(f"expected constants of numbers that torch has, got {array.dtype}") from error
