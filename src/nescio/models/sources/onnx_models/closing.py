"""A softmax at the end of a graph that its exporter wrote out, exp(z − max z) / Σ exp(z − max z), as one node again.

As one node it is seen, and the logits before it are found: these are finite where probabilities are rounded to 0.
"""

from __future__ import annotations

from typing import Any

from nescio._common.lazy_imports import need
from nescio.models.sources.onnx_models.onnx_facts import VIEWS, Value
from nescio.models.sources.onnx_models.simplified import attributes_of

SPREAD = VIEWS | {"Expand", "Max"}
"""What may stand between a row's sum, or its largest number, and where it is used."""


def with_one_softmax(proto: Any, output: Value) -> None:
    """Write the last steps as one node, where they are a softmax over the columns of an output [N, C]."""
    nodes = {name: node for node in proto.graph.node for name in node.output}
    last = _behind(nodes, output.name, frozenset({"Identity"}))
    if last is None or last.op_type != "Div" or output.shape is None or len(output.shape) != 2:
        return
    powers, total = nodes.get(last.input[0]), _behind(nodes, last.input[1], SPREAD)
    if powers is None or powers.op_type != "Exp" or not _over_columns(proto, total, "ReduceSum", powers.output[0]):
        return
    logits = powers.input[0]
    shifted = nodes.get(logits)
    if shifted is not None and shifted.op_type == "Sub":
        largest = _behind(nodes, shifted.input[1], SPREAD)
        if _over_columns(proto, largest, "ReduceMax", shifted.input[0]):
            logits = shifted.input[0]
    last.op_type = "Softmax"
    last.input[:] = [logits]
    last.attribute.append(need("onnx.helper", "onnx").make_attribute("axis", 1))


def _behind(nodes: dict[str, Any], name: str, passed: frozenset[str]) -> Any:
    """The node that made a value, before those that are passed over; None for an input or a constant."""
    node = nodes.get(name)
    while node is not None and node.op_type in passed:
        node = next((nodes[one] for one in node.input if one in nodes), None)
    return node


def _over_columns(proto: Any, node: Any, kind: str, of: str) -> bool:
    if node is None or node.op_type != kind or node.input[0] != of:
        return False
    axes = attributes_of(node).get("axes")
    if axes is None and len(node.input) > 1:
        held = {one.name: one for one in proto.graph.initializer}
        given = held.get(node.input[1])
        axes = None if given is None else need("onnx.numpy_helper", "onnx").to_array(given).tolist()
    return axes is not None and list(axes) in ([1], [-1])
