"""Norms of parameter gradients by input, class and layer: what the engine of `nescio.trace` computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from nescio import trace
from nescio.inputs import Inputs
from nescio.models import Classifier
from nescio.quantities.base import Budget, Request
from nescio.types import NormSettings, NormTable


@dataclass(frozen=True)
class GradientNorms(NormSettings, Request):
    """Request a `nescio.types.NormTable`: the norms of R gradients for every input and layer, float64 ``[N, R, L]``.

    Requests that differ in their rows alone share the forward and backward passes. The table lies on the model's
    device.

    Args:
        rows: Which gradients; it and the other settings are those of `nescio.types.NormSettings`.

    Examples:
        >>> request = GradientNorms("classes")
        >>> classifier = nescio.Classifier(torch.nn.Linear(2, 3))
        >>> nescio.quantities.compute(classifier, torch.ones(4, 2), [request])[request].norms.shape
        torch.Size([4, 3, 1])
    """

    @property
    def shared_work(self) -> GradientNorms:
        """The same settings with rows of one kind."""
        return replace(self, rows="classes")

    def answer(self, classifier: Classifier, x: Inputs, budget: Budget) -> NormTable:
        """Compute the table in passes of its own."""
        return self.answer_together([self], classifier, x, budget)[0]

    @classmethod
    def answer_together(
        cls, requests: Sequence[Any], classifier: Classifier, x: Inputs, budget: Budget
    ) -> Sequence[NormTable]:
        """Answer requests that differ in their rows alone from the same passes."""
        rows = tuple(request.rows for request in requests)
        settings, chunk, memory_gb = requests[0].shared_work, budget.chunk, budget.memory_gb
        tables = trace.gradient_norms(
            classifier,
            x,
            settings,
            rows=rows,
            chunk=chunk,
            memory_gb=memory_gb,
            loop=True,
            prepared=True,
            later=budget.later,
        )
        return [tables[row] for row in rows]
