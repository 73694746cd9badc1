"""Quantities that are read in one shared forward pass: the one that gives the logits.

A `ForwardRequest` says where in the model the pass has to listen. The pass listens wherever one of the requests needs
it, and then every request reads its own answer. So logits, features, statistics of activations and the last linear
layer cost one forward pass together.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nescio import inputs
from nescio._common.chunking import at_once, in_chunks
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.models.activation_statistics import summaries
from nescio.models.feature_layer import Heard, listen, pooled
from nescio.models.structure import named_modules
from nescio.modes import predicting
from nescio.quantities.base import Budget, Request
from nescio.trace.runtime.gpu import kernels
from nescio.types import Depth, ModelError


class ForwardPass:
    """Hold what one forward pass over some inputs gave.

    Args:
        logits: The logits ``[N, C]``, in the type and on the device of the model.
        heard: The last call of each layer that was listened to; None stands for the last linear layer's input.
        statistics: Mean and standard deviation of each channel, ``[N, D]`` for each depth that ran.
        on_device: Whether answers stay on the device of the model.

    Examples:
        >>> heard = Heard("0", torch.nn.Identity(), torch.tensor([[[1.0], [3.0]]]))
        >>> ForwardPass(torch.zeros(1, 2), {"0": heard}, {}).features("0")
        tensor([[2.]], dtype=torch.float64)
    """

    def __init__(
        self,
        logits: Tensor,
        heard: Mapping[str | None, Heard],
        statistics: Mapping[Depth, Tensor],
        on_device: bool = False,
    ) -> None:
        self.logits, self.heard, self.statistics, self.on_device = logits, heard, statistics, on_device
        self._features: dict[str | None, Tensor] = {}

    def features(self, layer: str | None) -> Tensor:
        """Return the features at a layer, float64 ``[N, D]``, averaged over positions and tokens.

        Args:
            layer: The name of the layer; None for the input of the last one.

        Returns:
            The features.
        """
        if layer not in self._features:
            heard = self.heard[layer]
            self._features[layer] = self.answer(pooled(heard, len(self.logits)), f"features from '{heard.name}'")
        return self._features[layer]

    def answer(self, value: Tensor, name: str | None = None) -> Tensor:
        """Return a value as an answer: in float64 and on the CPU, unless answers stay on the device.

        Args:
            value: What was read.
            name: What it is, for the message of the ModelError where it is not finite; None does not look. Nor is it
                looked at on the device, where the host would have to wait for it.

        Returns:
            The answer.
        """
        if self.on_device:
            return value.to(self.logits.device, torch.float64)
        if name is not None and not bool(value.isfinite().all()):
            raise ModelError(
                f"expected finite {name}, got NaN or infinite ones, though the input is finite; look for an overflow "
                "in the model (float16 ends at 65504)"
            )
        return value.to("cpu", torch.float64)


@dataclass(frozen=True)
class ForwardRequest(Request):
    """Name a quantity that is read in the forward pass that gives the logits.

    A subclass writes `read`, and says in `listens_at` where the pass has to listen.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class FeatureNorms(ForwardRequest):
        ...     listens_at = (None,)
        ...     def read(self, forward):
        ...         return forward.features(None).norm(dim=1)
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> answers = nescio.quantities.compute(classifier, torch.tensor([[3.0, 4.0]]), [FeatureNorms()])
        >>> answers[FeatureNorms()]
        tensor([5.], dtype=torch.float64)
    """

    @property
    def listens_at(self) -> tuple[str | Depth | None, ...]:
        """Where the pass listens.

        A name: to the last output of that module. None: to the input of the last `nn.Linear`. A `Depth`: to the
        statistics of the activations there.
        """
        return ()

    def read(self, forward: ForwardPass) -> Any:
        """Read the answer from a forward pass.

        Args:
            forward: The pass.

        Returns:
            The answer, as `ForwardPass.answer` gives it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `read`")

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Any:
        """Compute the quantity in a forward pass of its own."""
        return self.answer_together([self], classifier, x, budget)[0]

    @property
    def shared_work(self) -> Hashable:
        """The forward pass, which all requests of this kind share."""
        return ForwardRequest

    @classmethod
    def answer_together(
        cls, requests: Sequence[Any], classifier: Classifier, x: Inputs, budget: Budget
    ) -> Sequence[Any]:
        """Answer the requests from one forward pass over the batch, in chunks."""
        places = dict.fromkeys(place for request in requests for place in request.listens_at)
        depths = [place for place in places if isinstance(place, Depth)]
        layers = [place for place in places if not isinstance(place, Depth)]

        look = not budget.on_device or classifier.output != "logits"
        modules = {} if classifier.module is None else dict(named_modules(classifier.module))

        def step(start: int, stop: int) -> list[Any]:
            part = inputs.take(x, slice(start, stop))
            with ExitStack() as stack:
                statistics = (
                    stack.enter_context(summaries(classifier, depths, part, modules, _moments)) if depths else {}
                )
                if layers:
                    logits, heard = listen(classifier, part, layers, modules, look)
                else:  # a compiled model stays compiled
                    logits, heard = classifier.logits(part, look), {}
            forward = ForwardPass(logits, heard, statistics, budget.on_device)
            return [request.read(forward) for request in requests]

        total, size = inputs.size(x), at_once(x, budget.chunk, passing=True)
        if inputs.tensors(x)[0].is_cuda:  # chunks of one size: a small last one would leave a GPU idle
            size = math.ceil(total / math.ceil(total / size))
        with predicting(classifier):
            chunks = in_chunks(total, size, step)
        return [request.join(parts) for request, parts in zip(requests, zip(*chunks, strict=True), strict=True)]


def _moments(x: Tensor) -> Tensor | None:
    """Mean and standard deviation of the rows of x ``[N, C, S]`` by a kernel, where there is one for such a tensor."""
    module = kernels(x) if type(x) is Tensor else None
    return None if module is None else module.moments(x)
