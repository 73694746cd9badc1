"""What a set of scores needs, computed once: logits, features, norms of gradients by layer, perturbed predictions.

A request names a quantity and knows how to compute it (`nescio.quantities.base`); one file holds one quantity.
`compute` answers a list of requests for one batch. Equal requests are answered once. Requests with equal `shared_work`
are answered together: logits, features and activations share a forward pass, and requests for gradient norms that
differ in their rows alone share their forward and backward passes. Logits beside gradient norms come from the passes of
those, and lie where these do, on the model's device.

In the place of a model there may be a posterior: it answers `Predictions`, and as `Logits` the logarithm of its mean
probabilities.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import ExitStack
from typing import Any

from torch import Tensor

from nescio import inputs
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.quantities.activations import Activations
from nescio.quantities.attacked_logits import AttackedLogits
from nescio.quantities.base import Budget, Fit, Request
from nescio.quantities.detector_scores import DetectorScores
from nescio.quantities.dropout_logits import DropoutLogits
from nescio.quantities.features import Features
from nescio.quantities.forward_pass import ForwardPass, ForwardRequest
from nescio.quantities.gradient_norms import GradientNorms
from nescio.quantities.laplace_predictions import LaplacePredictions
from nescio.quantities.last_layer import LastLayer
from nescio.quantities.logits import Logits
from nescio.quantities.noisy_input_logits import NoisyInputLogits
from nescio.quantities.noisy_parameter_logits import NoisyParameterLogits
from nescio.quantities.nudged_logits import NudgedLogits
from nescio.quantities.predictions import Predictions, predictions
from nescio.quantities.shifted_logits import ShiftedLogits
from nescio.types import InputError, ModelError, Posterior

__all__ = [
    "compute",
    "Request",
    "ForwardRequest",
    "ForwardPass",
    "Fit",
    "Budget",
    "Logits",
    "Features",
    "Activations",
    "LastLayer",
    "GradientNorms",
    "NoisyInputLogits",
    "NoisyParameterLogits",
    "AttackedLogits",
    "DropoutLogits",
    "NudgedLogits",
    "ShiftedLogits",
    "Predictions",
    "LaplacePredictions",
    "DetectorScores",
]


def compute(
    source: Classifier | Posterior,
    x: Inputs,
    requests: Iterable[Request],
    chunk: int | None = None,
    memory_gb: float | None = None,
    on_device: bool = False,
    later: list[Tensor] | None = None,
) -> dict[Request, Any]:
    """Compute quantities of one batch, shared work once, and leave the model and the random generators as they were.

    Args:
        source: A model, or a posterior in its place.
        x: The batch, a tensor ``[N, ...]`` or a mapping of names to tensors.
        requests: Which quantities.
        chunk: How many inputs or noisy copies are handled at once; None chooses.
        memory_gb: About how much memory gradients may take, beyond the model; None chooses.
        on_device: Leave what is read in the forward pass on the model's device, without a look for NaN in it.
        later: As in `Budget`: what tells later whether a GPU's answers count.

    Returns:
        The answer to each request.

    Raises:
        InputError: The batch is empty, or something in `requests` is no request.
        ModelError: The model, or the posterior, cannot answer a request.

    Examples:
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> answers = nescio.quantities.compute(classifier, torch.ones(4, 2), [Logits(), Features()])
        >>> answers[Logits()].shape, answers[Features()].shape
        (torch.Size([4, 3]), torch.Size([4, 2]))
    """
    requests = list(dict.fromkeys(requests))
    if strange := [request for request in requests if not isinstance(request, Request)]:
        raise InputError(
            f"expected requests of nescio.quantities, such as Logits(), got {strange[0]!r}; mend the method's `needs`"
        )
    if not isinstance(source, Classifier):
        if strange := [request for request in requests if not request.of_posterior]:
            raise ModelError(
                f"expected requests that a posterior can answer, such as Logits() or Predictions(), got "
                f"{strange[0]!r}; give the model itself"
            )
        p = predictions(source, x)
        return {request: request.answer_from_predictions(p) for request in requests}
    x = source.prepare(x)
    if inputs.size(x) == 0:
        raise InputError("expected a batch of at least one input, got none; leave empty batches out")
    groups: dict[Hashable, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.shared_work, []).append(request)
    forward = [request for request in groups.get(ForwardRequest, []) if isinstance(request, ForwardRequest)]
    if forward and GradientNorms in map(type, requests) and not any(request.listens_at for request in forward):
        del groups[ForwardRequest]  # the passes that give gradients give the logits too
    answers: dict[Request, Any] = {}
    budget = Budget(chunk, memory_gb, on_device, later)
    with ExitStack() as stack:
        for group in groups.values():
            if not isinstance(group[0], GradientNorms):  # a recording may answer those without the model
                stack.enter_context(preserved(source, again=False))
            answers |= zip(group, group[0].answer_together(group, source, x, budget), strict=True)
    if ForwardRequest not in groups and forward:
        table = next(answers[request] for request in requests if type(request) is GradientNorms)
        answers |= {request: request.read(ForwardPass(table.logits, {}, {}, on_device=True)) for request in forward}
    return {request: answers[request] for request in requests}
