"""What an ONNX file says of itself: its inputs, which of its outputs are the logits, and what closes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nescio._common.lazy_imports import need
from nescio.types import InputError, ModelError

FLOATS = frozenset({"FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"})
INTEGERS = frozenset({"INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL"})
VIEWS = frozenset({"Identity", "Reshape", "Squeeze", "Flatten", "Unsqueeze", "Cast"})
"""What may stand between the last function and the output."""


@dataclass(frozen=True)
class Value:
    """An input or output: its name, the name of its type, and its sides; None where the rank is not told.

    A side that is free is a word.
    """

    name: str
    kind: str
    shape: tuple[int | str, ...] | None


def read(file: str) -> Any:
    """Read a file, with its external data, and infer the shapes in it. No code of the file is run."""
    onnx = need("onnx", "onnx")
    try:
        proto = onnx.load(file)
    except Exception as error:  # damaged bytes, or external data that is missing, can raise anything
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ModelError(
            f"expected an ONNX model in {file}, but it cannot be read ({reason}); copy it again, with the files of "
            "external data beside it where it has some"
        ) from error
    if not proto.graph.node or not proto.graph.output:
        raise ModelError(f"expected an ONNX model in {file}, got a file without a graph; copy or export it again")
    try:
        proto = need("onnx.inliner", "onnx").inline_local_functions(proto)
        return need("onnx.shape_inference", "onnx").infer_shapes(proto)
    except Exception as error:  # what a damaged graph raises is not told
        raise ModelError(f"expected a valid graph in {file}, but: {' '.join(str(error).split())[:300]}") from error


def values(protos: Any) -> list[Value]:
    """Inputs or outputs in a plain form."""
    kinds = need("onnx", "onnx").TensorProto.DataType
    descriptions = []
    for one in protos:
        tensor = one.type.tensor_type
        sides = None
        if tensor.HasField("shape"):
            sides = tuple(
                side.dim_value if side.HasField("dim_value") else side.dim_param or f"{one.name} side {i}"
                for i, side in enumerate(tensor.shape.dim)
            )
        descriptions.append(Value(one.name, kinds.Name(tensor.elem_type), sides))
    return descriptions


def inputs_of(proto: Any, file: str) -> list[Value]:
    """What the model is given: batches of numbers."""
    constants = {one.name for one in proto.graph.initializer}
    inputs = [one for one in values(proto.graph.input) if one.name not in constants]
    if not inputs:
        raise ModelError(f"expected a model with an input in {file}, got one without")
    for one in inputs:
        if one.kind not in FLOATS | INTEGERS:
            raise ModelError(
                f"expected inputs of numbers in {file}, got {one.name!r} of type {one.kind.lower()}; cut off what "
                "comes before the numbers: onnx.utils.extract_model"
            )
        if not one.shape:
            raise ModelError(
                f"expected a batch [N, ...] as input {one.name!r} in {file}, got "
                f"{'a single number' if one.shape == () else 'a shape that is not told'}; export it with a batch"
            )
    return inputs


def batch_of(inputs: list[Value], file: str) -> int | None:
    """How many rows the model takes at once, as the file says; None for any number."""
    lengths = {one.shape[0] for one in inputs if one.shape and isinstance(one.shape[0], int)}
    if len(lengths) > 1:
        raise ModelError(f"expected inputs with one first dimension in {file}, got {sorted(lengths)}")
    return int(lengths.pop()) if lengths else None


def output_of(proto: Any, file: str, item: str | None) -> Value:
    """The output with the logits or probabilities."""
    outputs = values(proto.graph.output)
    names = ", ".join(repr(one.name) for one in outputs)
    if item is not None:
        chosen = [one for one in outputs if one.name == item]
        if not chosen:
            raise InputError(f"expected item to be one of the outputs of {file}, {names}, got {item!r}")
        return chosen[0]
    if len(outputs) == 1:
        return outputs[0]
    fitting = [one for one in outputs if one.kind in FLOATS and (one.shape is None or len(one.shape) == 2)]
    fitting = [one for one in fitting if "logits" in one.name.lower()] or fitting
    if len(fitting) != 1:
        raise ModelError(
            f"expected one output of {file} to be the logits [N, C], got {names}; say which: "
            "nescio.models.from_onnx(file, item='…'), or keep that one alone: onnx.utils.extract_model"
        )
    return fitting[0]


def closing_of(proto: Any, output: Value, file: str) -> str:
    """What the output is, by the function that closes the graph: logits, probabilities, binary."""
    nodes = {name: node for node in proto.graph.node for name in node.output}
    node = nodes.get(output.name)
    while node is not None and node.op_type in VIEWS:
        node = nodes.get(node.input[0])
    if node is None or node.op_type not in ("Softmax", "Sigmoid"):
        return "logits"
    if node.op_type == "Softmax":
        return "probabilities"
    if output.shape is not None and len(output.shape) == 2 and output.shape[1] != 1:
        raise ModelError(
            f"expected classes of which one is right, got {file}, which ends with a sigmoid over several columns: an "
            "answer yes or no for each. If one class alone is right say output='logits' to from_onnx and name the "
            "output before the sigmoid as item; else make one model [N, 1] for each column"
        )
    return "binary"
