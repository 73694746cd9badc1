"""What a converted file answers, and how far it is from onnxruntime on inputs of its kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import nescio


def difference(file: Path, classifier: nescio.Classifier, x: dict[str, Tensor]) -> float:
    """The largest difference of a probability."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    right = session.run(None, {name: value.numpy() for name, value in x.items()})[0]
    with torch.no_grad():
        given = next(iter(x.values())) if len(x) == 1 else x
        found = classifier.logits(given).softmax(1).numpy()
    return float(np.abs(found - right).max())


def answered(classifier: nescio.Classifier, x: Tensor) -> Tensor:
    """The likeliest classes."""
    with torch.no_grad():
        return classifier.logits(x).argmax(1)
