"""A method of nescio as a post-processor of OpenOOD, for its benchmarks.

OpenOOD is on no package index: install it from its repository. What is written here keeps to the interface of its
`BasePostprocessor`, in which a higher confidence means less foreign: the confidence is the score of nescio, negated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio import scores, scoring
from nescio.guard import Guard
from nescio.quantities import Logits
from nescio.scores import Method
from nescio.scores.base import must_be_fitted
from nescio.types import InputError, MissingExtra


class ScorePostprocessor:
    """Answer as a post-processor of OpenOOD does, with a method of nescio; `postprocessor` makes one.

    Args:
        method: A name of `nescio.methods()`, such an object, or "guard".
        **settings: Settings of the method.

    Examples:
        >>> net, loaders = torch.nn.Linear(4, 3), {"train": [], "val": []}
        >>> ours = ScorePostprocessor("entropy")
        >>> ours.setup(net, loaders, {})
        >>> classes, confidence = ours.postprocess(net, torch.rand(5, 4))
    """

    APS_mode = False
    """Whether OpenOOD looks for settings on validation data: never."""
    hyperparam_search_done = True

    def __init__(self, method: str | Method = "regrad", **settings: Any) -> None:
        self.config = None
        self.method, self.settings = method, settings
        self.fitted: Method | None = None

    def setup(self, net: Any, id_loader_dict: Any, ood_loader_dict: Any) -> None:
        """Fit the method, if it needs that: to the loader "train", the guard to "val". Foreign data are not touched.

        Args:
            net: The classifier. It is left as it was found.
            id_loader_dict: The loaders of known data. Their batches are mappings with the entries "data" and "label".
            ood_loader_dict: Those of foreign data.
        """
        if self.method == "guard":
            self.fitted = Guard(net, **self.settings).fit(_pairs(id_loader_dict["val"]))
            return
        method = scores.get(self.method, **self.settings)
        if must_be_fitted(method):
            method = scoring.fit(net, method, _pairs(id_loader_dict["train"]))
        self.fitted = method

    def postprocess(self, net: Any, data: Any) -> tuple[Tensor, Tensor]:
        """Return the class and the confidence of each input; OpenOOD calls it.

        Args:
            net: The network.
            data: A batch.

        Returns:
            The two, on the CPU; higher = less foreign.
        """
        if self.fitted is None:
            raise InputError("expected setup(net, id_loader_dict, ood_loader_dict) before inputs, got none")
        results = scoring.score(net, data, [self.fitted, _PredictedClass()], progress=False)
        confidence, predicted = results.values()
        return predicted.long(), -confidence

    def inference(
        self, net: Any, data_loader: Any, progress: bool = True
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
        """Return class, confidence and label of all inputs of a loader.

        Args:
            net: The network.
            data_loader: The loader.
            progress: Whether a bar is shown.

        Returns:
            The three, as arrays.
        """
        batches = [(*self.postprocess(net, batch["data"]), torch.as_tensor(batch["label"])) for batch in data_loader]
        predicted, confidence, labels = (torch.cat(column).cpu().numpy() for column in zip(*batches, strict=True))
        return predicted, confidence, labels


class _PredictedClass:
    """The class with the largest logit, as if it were a score: from the same forward pass."""

    name = "predicted_class"
    needs = (Logits(),)

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.argmax(1).double()


def postprocessor(method: str | Method = "regrad", **settings: Any) -> Any:
    """Make a post-processor for OpenOOD's `Evaluator(net, ..., postprocessor=...)`.

    Args:
        method: A name of `nescio.methods()`, such an object, or "guard", which is fitted to the validation data.
        **settings: Settings of the method.

    Returns:
        A `ScorePostprocessor` that is a `BasePostprocessor` of OpenOOD too.

    Raises:
        MissingExtra: OpenOOD cannot be imported.

    Examples:
        >>> evaluator = Evaluator(net, "cifar10", postprocessor=postprocessor("entropy"))  # doctest: +SKIP
    """
    try:
        from openood.postprocessors import BasePostprocessor
    except ImportError as error:
        raise MissingExtra(
            f"expected the package 'openood' for this, but it cannot be imported ({error}); it is on no package index: "
            "pip install git+https://github.com/Jingkang50/OpenOOD"
        ) from error
    return type("NescioPostprocessor", (ScorePostprocessor, BasePostprocessor), {})(method, **settings)


def _pairs(loader: Any) -> Iterator[tuple[Any, Any]]:
    """The batches of OpenOOD's loader as pairs of inputs and labels."""
    for batch in loader:
        yield batch["data"], batch["label"]
