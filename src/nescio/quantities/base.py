"""What a quantity is: a request that answers itself on a batch, and that is fitted where it needs training data.

A request is a frozen dataclass: its fields say which quantity is wanted. Equal requests are one, so two scores that
need the same quantity share it. To add a quantity, write one file with a subclass of `Request` and its `answer`. A
quantity that can be read in the forward pass which gives the logits is a `nescio.quantities.ForwardRequest` instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from nescio.inputs import Inputs
from nescio.models import Classifier


@dataclass(frozen=True)
class Budget:
    """State how much is handled at once, and where answers lie; None leaves the choice to the quantity.

    Args:
        chunk: How many inputs or noisy copies go through the model at once.
        memory_gb: About how much memory gradients may take, beyond the model.
        on_device: True leaves what is read in the forward pass on the model's device, and does not look for NaN in it:
            the host need not wait for the device. Any other answer is on the CPU.
        later: Where it is given, the host need not wait for a GPU to know that a recorded pass gave finite logits: what
            tells it, tensors of one boolean, is put there. Whoever reads the answers reads those too, and asks again
            without it where one is false.

    Examples:
        >>> Budget(chunk=16)
        Budget(chunk=16, memory_gb=None, on_device=False)
    """

    chunk: int | None = None
    memory_gb: float | None = None
    on_device: bool = False
    later: list[Tensor] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Request:
    """Name a quantity of a batch that scores are made from, and compute it.

    A subclass is a frozen dataclass that writes `answer`. The rest has defaults: a request shares its work with none,
    needs a model rather than a posterior, and is fitted by joining its answers over the training data.

    Examples:
        >>> @dataclass(frozen=True)
        ... class InputMeans(Request):
        ...     def answer(self, classifier, x, budget):
        ...         return x.double().flatten(1).mean(1).cpu()
        >>> request = InputMeans()
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> nescio.quantities.compute(classifier, torch.tensor([[1.0, 3.0]]), [request])[request]
        tensor([2.], dtype=torch.float64)
    """

    of_model: ClassVar[bool] = True
    """Whether a model can answer it."""
    of_posterior: ClassVar[bool] = False
    """Whether a posterior in the place of a model can answer it, by `answer_from_predictions`."""
    per_input: ClassVar[bool] = True
    """Whether the answer has a row for each input; False: it is the same for every input."""

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> Any:
        """Compute the quantity of a batch.

        Args:
            classifier: The model.
            x: A batch that `Classifier.prepare` has checked and moved to the model's device.
            budget: How much is handled at once.

        Returns:
            The quantity, on the CPU.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `answer`")

    def answer_from_predictions(self, p: Tensor) -> Any:
        """Compute the quantity from the predictions of a posterior; where `of_posterior` is True.

        Args:
            p: Probabilities ``[S, N, C]``.

        Returns:
            The answer.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `answer_from_predictions`")

    @property
    def shared_work(self) -> Hashable:
        """What is the same for requests that are answered together, by one call of `answer_together`."""
        return self

    @classmethod
    def answer_together(
        cls, requests: Sequence[Any], classifier: Classifier, x: Inputs, budget: Budget
    ) -> Sequence[Any]:
        """Answer requests with equal `shared_work`.

        Args:
            requests: The requests.
            classifier: As in `answer`.
            x: As in `answer`.
            budget: As in `answer`.

        Returns:
            The answers, in the order of the requests.
        """
        return [request.answer(classifier, x, budget) for request in requests]

    def join(self, answers: Sequence[Any]) -> Any:
        """Join the answers for parts of the inputs, one after another, to the answer for all of them.

        Args:
            answers: The answers for the parts.

        Returns:
            The answer for all.
        """
        return torch.cat(list(answers)) if self.per_input else answers[-1]

    def start_fit(self, classifier: Classifier) -> Fit:
        """Begin a pass over the training data; by default the answers are collected and joined.

        Args:
            classifier: The model.

        Returns:
            What takes in the training data.
        """
        return Fit(self)


class Fit:
    """Gather over the training data what a score is fitted to: the joined answers to a request.

    A request that learns something else returns a subclass from `start_fit`.

    Args:
        request: The request whose answers are joined.

    Examples:
        >>> fit = nescio.quantities.Logits().start_fit(nescio.Classifier(torch.nn.Identity()))
        >>> for answer in torch.eye(2), torch.zeros(3, 2):
        ...     fit.absorb(answer, torch.zeros(len(answer), dtype=torch.long), answer)
        >>> fit.finish().shape
        torch.Size([5, 2])
    """

    needs_answer: bool = True
    """Whether `absorb` gets the answer for each batch; False: it gets None."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answers: list[Any] = []

    def absorb(self, x: Inputs, labels: Tensor, answer: Any) -> None:
        """Take in one batch.

        Args:
            x: Its inputs.
            labels: Its class indices ``[N]``.
            answer: The answer of the request for it; None where none is needed.
        """
        if not self.request.per_input:
            self.answers.clear()
        self.answers.append(answer)

    def finish(self) -> Any:
        """Return what `nescio.scores.FittedScore.fitted` gets for this request."""
        return self.request.join(self.answers)
