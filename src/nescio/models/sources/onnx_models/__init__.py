"""``FILE.onnx``: a model of ONNX as a module whose gradients can be taken, compared with onnxruntime before it is used.

No code of the file is run: it holds numbers and the names of operators, and names become plain words.
"""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn

from nescio._common.lazy_imports import need
from nescio.models.classifier import Classifier
from nescio.models.sources.base import Opened
from nescio.models.sources.exported import Exported
from nescio.models.sources.heads import Weights, size
from nescio.models.sources.onnx_models import onnx_facts
from nescio.models.sources.onnx_models.closing import with_one_softmax
from nescio.models.sources.onnx_models.onnx_network import network_of
from nescio.models.sources.onnx_models.onnxruntime_comparison import compared
from nescio.types import InputError


def from_onnx(path: str | os.PathLike[str], *, output: str | None = None, item: str | None = None) -> Classifier:
    """Make a classifier of an ONNX file, with parameters that have gradients.

    The module is compared with onnxruntime on random inputs first. If the file fixes the number of rows, the classifier
    takes any number all the same: at once if the operators allow it, otherwise in parts.

    Args:
        path: The file; its external data, where it has some, lie beside it.
        output: What the model returns, as `Classifier` takes it; None finds out: a softmax or sigmoid at its end is
            seen.
        item: The name of the output with the logits; None finds it if only one output can be it.

    Returns:
        The classifier. Several inputs are given as a mapping from their names in the file.

    Raises:
        InputError: There is no such file, or no such output.
        ModelError: The file is damaged, has operators that cannot be converted (they are named), or the module differs
            from what onnxruntime computes.

    Examples:
        >>> import tempfile, onnx
        >>> from onnx import TensorProto, helper, numpy_helper
        >>> weight = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
        >>> x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
        >>> logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 3])
        >>> product = helper.make_node("MatMul", ["x", "w"], ["logits"])
        >>> graph = helper.make_graph([product], "linear", [x], [logits], [weight])
        >>> model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        >>> onnx.save(model, file := tempfile.mkdtemp() + "/model.onnx")
        >>> nescio.score(nescio.models.from_onnx(file), torch.ones(2, 4), "entropy")
        tensor([1.0986, 1.0986], dtype=torch.float64)
        >>> nescio.models.from_onnx("nowhere.onnx")
        Traceback (most recent call last):
        nescio.types.InputError: expected an ONNX file at nowhere.onnx, but there is none ...
    """
    if not Path(path).is_file():
        raise InputError(f"expected an ONNX file at {path}, but there is none (seen from {Path.cwd()})")
    for package in ("onnx", "onnx2torch", "onnxruntime"):
        need(package, "onnx")
    file = os.fspath(path)
    proto = onnx_facts.read(file)
    inputs = onnx_facts.inputs_of(proto, file)
    chosen = onnx_facts.output_of(proto, file, item)
    with_one_softmax(proto, chosen)
    kind = onnx_facts.closing_of(proto, chosen, file) if output is None else output
    told = onnx_facts.batch_of(inputs, file)
    network = network_of(proto, chosen.name, told)
    batch = compared(network, proto, file, inputs, chosen, told)
    return Classifier(network if batch is None else Exported(network, batch), output=kind)


def find(name: str, weights: Weights | None, trust_pickle: bool) -> Opened:
    """The model in that file."""
    if weights is not None:
        raise InputError(f"expected no weights beside {name}, which has its own inside, got {weights}; leave them out")
    classifier = from_onnx(name)
    module = classifier.model
    assert isinstance(module, nn.Module)
    ending = {"logits": "", "probabilities": ", ends in a softmax", "binary": ", ends in a sigmoid"}[classifier.output]
    parts = f", {module.batch} rows at once" if isinstance(module, Exported) else ""
    return Opened(classifier, f"{Path(name).name}, of ONNX{ending}{parts}, {size(module)}")
