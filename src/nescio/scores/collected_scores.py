"""The scores of one method, joined from the blocks in which the inputs were scored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nescio.scores.base import Method
from nescio.types import Check, InputError, ModelError, NormTable, Scored


class CollectedScores:
    """The scores of one method, block by block, with what is known of their error."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.scores = [torch.empty(0, dtype=torch.float64)]
        self.errors: list[Tensor | None] = []
        self.checks: list[Check] = []

    def add(self, method: Method, values: list[Any], block_scores: Tensor) -> None:
        """Take in the scores of a block, and the values that they were made from; none: their error is not wanted."""
        self._refuse_infinite(block_scores)
        self.scores.append(block_scores)
        estimate_error = getattr(method, "error", None) if values else None
        error = estimate_error(*values) if callable(estimate_error) else None
        self.errors.append(None if error is None else error.cpu())
        self.checks += [value.check for value in values if isinstance(value, NormTable) and value.check is not None]

    def _refuse_infinite(self, values: Tensor) -> None:
        """Raise a ModelError for scores of a block that are not finite."""
        if bool(values.isfinite().all()):
            return
        wrong = (~values.isfinite()).reshape(len(values), -1).any(1).nonzero().flatten() + sum(map(len, self.scores))
        listed = ", ".join(str(i) for i in wrong[:5].tolist()) + (", …" if len(wrong) > 5 else "")
        raise ModelError(
            f"expected finite scores, but '{self.key}' is not for {len(wrong)} inputs (at {listed}): numbers overflow "
            "inside the model; score it in float32 or float64, with model.float() or model.double()"
        )

    def joined(self) -> Scored:
        """All blocks together."""
        if len({block.shape[1:] for block in self.scores[1:]}) > 1:
            sizes = " and ".join(str(list(shape)) for shape in sorted({tuple(b.shape[1:]) for b in self.scores[1:]}))
            raise InputError(
                f"expected inputs with equally many positions in all batches, got maps of {sizes}; bring the inputs to "
                "one size, or score the batches one by one"
            )
        error = check = None
        if any(e is not None for e in self.errors):
            blocks = zip(self.errors, self.scores[1:], strict=True)
            error = torch.cat([torch.zeros_like(s) if e is None else e for e, s in blocks])
        if self.checks:
            check = Check(
                sum(c.inputs for c in self.checks), max(c.worst for c in self.checks), sum(c.exact for c in self.checks)
            )
        return Scored(torch.cat(self.scores), error, check)
