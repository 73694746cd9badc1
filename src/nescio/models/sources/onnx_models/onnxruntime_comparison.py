"""Whether a converted module gives what onnxruntime gives for the same file: on random inputs, before it is used."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
import torch

from nescio._common.lazy_imports import need
from nescio.models.sources.onnx_models.onnx_facts import VIEWS, Value
from nescio.models.sources.onnx_models.onnx_network import Network
from nescio.types import ModelError

ROWS = (3, 1, 2, 4)
"""Tried in turn where the file leaves the number of rows free: some count them all the same."""
SIDES = (8, 32, 64, 224)
"""Tried in turn for sides that the file leaves free."""
TOLERANCE = {"float64": 1e-8, "float32": 1e-4, "float16": 2e-2}
"""The largest difference, as a share of the largest output (at least 1)."""
SELF, LOOSEST, LOOSEST_IN_HALF = 3.0, 1e-2, 5e-2
"""So many times the difference of two right ways to an output is round-off; how large that may be beside the output,
and in a file with weights in half precision, where onnxruntime takes it or single precision by its rewrites."""
HALF = 10  # how ONNX numbers the type
MOVED = VIEWS | {"Expand", "Transpose"}
"""What leaves integers as they are."""
MASKED = 1e30
"""What is larger was put there to leave a class out, and says nothing of the size of the others."""
TYPES = {"FLOAT": "float32", "DOUBLE": "float64", "BOOL": "bool"}


def compared(
    network: Network, proto: Any, file: str, inputs: list[Value], output: Value, batch: int | None
) -> int | None:
    """Compare, and find out how many rows the module takes at once.

    Args:
        network: The converted module.
        proto: The model of the file.
        file: Where it is.
        inputs: What the model is given.
        output: What was converted.
        batch: How many rows it takes at once, as the file says; None for any number.

    Returns:
        The number of rows; None for any number. A file that says one number has a module that often takes any.

    Raises:
        ModelError: onnxruntime cannot run the file, the module fails where onnxruntime does not, or the two differ.
    """
    session = _session(file)
    first, rows, side = _feed(session, proto, inputs, output, (batch,) if batch else ROWS, file)
    if batch is None and rows != ROWS[0]:
        batch = rows
    feeds = [first] if batch is None else [first, _random(proto, inputs, rows, side, seed=1)]
    expected = [np.asarray(session.run([output.name], feed)[0]) for feed in feeds]
    slack = 0.0
    for feed, right in zip(feeds, expected, strict=True):
        ours = _run(network, feed, file)
        try:
            _compare(ours, right, file, slack)
        except ModelError:
            loosest = LOOSEST_IN_HALF if _in_half(proto) else LOOSEST
            slack = max(slack, SELF * _roundoff(network, file, output, feed, right, loosest))
            _compare(ours, right, file, slack)
    if batch is None:
        return None
    joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in first}
    single = {name: value[:1] for name, value in first.items()}
    try:
        _compare(_run(network, joined, file), np.concatenate(expected), file, slack)
        _compare(_run(network, single, file), expected[0][:1], file, slack)
    except (ModelError, ValueError):  # the number of rows is written into its steps
        return batch
    return None


def _session(file: str, rewrites: bool = True) -> Any:
    """Open the file with onnxruntime, with the rewrites that it makes of its own accord or without."""
    runtime = need("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    if not rewrites:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of its own kinds, which have no common base
        raise ModelError(f"expected onnxruntime to open {file}, for a comparison, but: {_reason(error)}") from error


def _feed(
    session: Any, proto: Any, inputs: list[Value], output: Value, numbers: tuple[int, ...], file: str
) -> tuple[dict[str, Any], int, int]:
    """Random inputs that the model takes, how many rows they have, and the length of their free sides."""
    free = any(isinstance(side, str) for one in inputs for side in (one.shape or ())[1:])
    problem: Exception | None = None
    for rows, side in product(numbers, SIDES if free else SIDES[:1]):
        feed = _random(proto, inputs, rows, side, seed=0)
        try:
            made = session.run([output.name], feed)[0]
        except Exception as error:  # of its own kinds
            problem = problem or error
            continue
        if len(numbers) > 1 and rows != numbers[0] and made.shape[:1] != (rows,):
            raise ModelError(
                f"expected a row of {output.name!r} for each row of the inputs in {file}, but onnxruntime makes "
                f"{list(made.shape)} of {rows} rows, and fails with {numbers[0]}: several rows are one input. Write a "
                "torch.nn.Module that takes one row for each input, makes all of its rows and calls the network"
            )
        return feed, rows, side
    assert problem is not None
    raise ModelError(
        f"expected onnxruntime to run {file} on random inputs, for a comparison, but: {_reason(problem)}"
    ) from problem


def _random(proto: Any, inputs: list[Value], rows: int, side: int, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    ranges = _ranges(proto)
    feed = {}
    for one in inputs:
        assert one.shape is not None
        shape = (rows, *(length if isinstance(length, int) else side for length in one.shape[1:]))
        kind = TYPES.get(one.kind, one.kind.lower())
        if "float" in kind:
            feed[one.name] = generator.standard_normal(shape).astype(kind)
        else:
            feed[one.name] = generator.integers(0, ranges.get(one.name, 2), shape).astype(kind)
    return feed


def _ranges(proto: Any) -> dict[str, int]:
    """How many values the integers of an input have, by the tables and lists that the graph looks them up in."""
    constants = {one.name: one for one in proto.graph.initializer if one.dims}
    origins = {one.name: one.name for one in proto.graph.input}
    limits: dict[str, int] = {}
    for node in proto.graph.node:
        if node.op_type in MOVED and node.input[0] in origins:
            origins[node.output[0]] = origins[node.input[0]]
        elif node.op_type == "Gather" and node.input[1] in origins and node.input[0] in constants:
            limits[origins[node.input[1]]] = constants[node.input[0]].dims[0]
        elif node.op_type == "Equal":  # with every value that there is: one of them alone marks what is left out
            for one, other in (node.input, node.input[::-1]):
                if one in origins and other in constants:
                    values = need("onnx.numpy_helper", "onnx").to_array(constants[other])
                    if values.size > 1 and values.dtype.kind == "i":
                        limits.setdefault(origins[one], int(values.max()) + 1)
    return limits


def _run(network: Network, feed: dict[str, Any], file: str) -> Any:
    try:
        with torch.no_grad():
            return network(**{name: torch.from_numpy(value) for name, value in feed.items()}).numpy()
    except Exception as error:  # a step that does not fit can raise anything
        raise ModelError(
            f"expected the module made of {file} to take what onnxruntime takes, but: {_reason(error)}"
        ) from error


def _in_half(proto: Any) -> bool:
    """Whether weights of the file are in half precision."""
    return any(one.data_type == HALF for one in proto.graph.initializer)


def _roundoff(
    network: Network, file: str, output: Value, feed: dict[str, Any], right: Any, loosest: float = LOOSEST
) -> float:
    """How many digits are lost: the larger of two differences, 0 for one that is no longer round-off.

    One is between onnxruntime with and without its rewrites, the other between the module in its own precision and in
    double. Deep networks can lose digits, and on some processors one of the two ways hides it.
    """
    plain = np.asarray(_session(file, rewrites=False).run([output.name], feed)[0])
    pairs = [(plain, right)]
    wide = {name: value.astype(np.float64) if value.dtype.kind == "f" else value for name, value in feed.items()}
    with suppress(ModelError):  # a step may ask for single precision
        pairs.append((_run(deepcopy(network).double(), wide, file), _run(network, feed, file)))
    return max(_difference(one, other, loosest) for one, other in pairs)


def _difference(one: Any, other: Any, loosest: float) -> float:
    finite = np.isfinite(one) & np.isfinite(other)
    distance, size = np.abs(one[finite].astype(np.float64) - other[finite]), np.abs(other[finite])
    largest = float(distance.max(initial=0.0))
    return largest if largest <= loosest * float(size[size < MASKED].max(initial=0.0)) else 0.0


def _compare(found: Any, right: Any, file: str, slack: float = 0.0) -> None:
    if found.shape != right.shape:
        raise ModelError(
            f"expected the module made of {file} to give {list(right.shape)} as onnxruntime does, got "
            f"{list(found.shape)}; it is not used"
        )
    ours, theirs = found.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(ours) & np.isfinite(theirs)
    same = np.array_equal(ours[~finite], theirs[~finite], equal_nan=True)
    distance, size = np.abs(ours[finite] - theirs[finite]), np.abs(theirs[finite])
    largest = float(size[size < MASKED].max(initial=0.0))
    bound = TOLERANCE.get(str(right.dtype), 1e-4) * np.maximum(size, max(1.0, largest)) + slack
    if not same or (distance > bound).any():
        difference = float(distance.max(initial=0.0)) if same else np.inf
        raise ModelError(
            f"expected the module made of {file} to give what onnxruntime gives, but on random inputs they differ by "
            f"{difference:.3g} where the largest output is {largest:.3g}; it is not used. Export the model again with "
            "other operators, or write it as a torch.nn.Module and load its weights"
        )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
