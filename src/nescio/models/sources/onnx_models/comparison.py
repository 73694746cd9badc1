"""Whether a converted module gives what onnxruntime gives for the same file: on random inputs, before it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from nescio._common.lazy_imports import need
from nescio.models.sources.onnx_models.network import Network
from nescio.models.sources.onnx_models.reading import Value
from nescio.types import ModelError

ROWS = 3
SIDES = (8, 32, 64, 224)
"""Tried in turn for sides that the file leaves free."""
TOLERANCE = {"float64": 1e-8, "float32": 1e-4, "float16": 2e-2}
"""The largest difference, as a share of the largest output (at least 1)."""
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
    rows = batch or ROWS
    first, side = _feed(session, proto, inputs, output, rows, file)
    feeds = [first] if batch is None else [first, _random(proto, inputs, rows, side, seed=1)]
    expected = [np.asarray(session.run([output.name], feed)[0]) for feed in feeds]
    for feed, right in zip(feeds, expected, strict=True):
        _compare(_run(network, feed, file), right, file)
    if batch is None:
        return None
    joined = {name: np.concatenate([feed[name] for feed in feeds]) for name in first}
    single = {name: value[:1] for name, value in first.items()}
    try:
        _compare(_run(network, joined, file), np.concatenate(expected), file)
        _compare(_run(network, single, file), expected[0][:1], file)
    except (ModelError, ValueError):  # the number of rows is written into its steps
        return batch
    return None


def _session(file: str) -> Any:
    runtime = need("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of its own kinds, which have no common base
        raise ModelError(
            f"expected a model that onnxruntime can open, to compare with, in {file}, but: {_reason(error)}"
        ) from error


def _feed(
    session: Any, proto: Any, inputs: list[Value], output: Value, rows: int, file: str
) -> tuple[dict[str, Any], int]:
    """Random inputs that the model takes, and the length that free sides have in them."""
    free = any(isinstance(side, str) for one in inputs for side in (one.shape or ())[1:])
    problem: Exception | None = None
    for side in SIDES if free else SIDES[:1]:
        feed = _random(proto, inputs, rows, side, seed=0)
        try:
            session.run([output.name], feed)
        except Exception as error:  # of its own kinds
            problem = problem or error
        else:
            return feed, side
    assert problem is not None
    raise ModelError(
        f"expected onnxruntime to run {file} on random inputs, to compare with, but: {_reason(problem)}"
    ) from problem


def _random(proto: Any, inputs: list[Value], rows: int, side: int, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    sizes = {one.name: one.dims[0] for one in proto.graph.initializer if one.dims}
    tables = {
        node.input[1]: sizes[node.input[0]]
        for node in proto.graph.node
        if node.op_type == "Gather" and node.input[0] in sizes
    }
    feed = {}
    for one in inputs:
        assert one.shape is not None
        shape = (rows, *(length if isinstance(length, int) else side for length in one.shape[1:]))
        kind = TYPES.get(one.kind, one.kind.lower())
        if "float" in kind:
            feed[one.name] = generator.standard_normal(shape).astype(kind)
        else:
            feed[one.name] = generator.integers(0, tables.get(one.name, 2), shape).astype(kind)
    return feed


def _run(network: Network, feed: dict[str, Any], file: str) -> Any:
    try:
        with torch.no_grad():
            return network(**{name: torch.from_numpy(value) for name, value in feed.items()}).numpy()
    except Exception as error:  # a step that does not fit can raise anything
        raise ModelError(
            f"expected the module made of {file} to take what onnxruntime takes, but: {_reason(error)}"
        ) from error


def _compare(found: Any, right: Any, file: str) -> None:
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
    bound = TOLERANCE.get(str(right.dtype), 1e-4) * np.maximum(size, max(1.0, largest))
    if not same or (distance > bound).any():
        difference = float(distance.max(initial=0.0)) if same else np.inf
        raise ModelError(
            f"expected the module made of {file} to give what onnxruntime gives, but on random inputs they differ by "
            f"{difference:.3g} where the largest output is {largest:.3g}; it is not used. Export the model again with "
            "other operators, or write it as a torch.nn.Module and load its weights"
        )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
