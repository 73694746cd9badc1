"""A rule that accepts or refers an input by its score, with what it promises and what the promise rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from nescio import notebook
from nescio._common.arrays import Values
from nescio._common.formatting import count, percent
from nescio.decide.checks import scores_of
from nescio.decide.saved_policy import SavedPolicy


@dataclass(frozen=True)
class Policy(SavedPolicy):
    """Accept an input when its score is at most a threshold, and refer it to a person otherwise.

    A rule of the kind "threshold" promises: among accepted inputs at most the share `risk` is wrong, with this
    `confidence` over the draw of the calibration data. A rule of the kind "quantile" promises: a new input like the
    calibration data is accepted with a probability of at least `keep`.

    Attributes:
        kind: "threshold" or "quantile".
        threshold: The largest score that is accepted. None: nothing can be promised, and nothing is accepted.
        n: How many calibration examples were used.
        accepted: How many of them the rule accepts.
        needed: How many examples the promise takes at least; for "threshold", if none of them is wrong.
        risk: The promised share of wrong answers; for "threshold".
        confidence: The confidence of that promise; for "threshold".
        keep: The promised share of accepted inputs; for "quantile".
        errors: How many of the accepted examples are wrong; None where that is not known.
        about: What the caller says of how the scores were made, such as ``{"score": "regrad", "model": "resnet18"}``.

    Examples:
        >>> policy = nescio.decide.quantile(torch.arange(100.0), keep=0.95)
        >>> policy.accept([3.0, 200.0])
        tensor([ True, False])
    """

    kind: Literal["threshold", "quantile"]
    threshold: float | None
    n: int
    accepted: int
    needed: int
    risk: float | None = None
    confidence: float | None = None
    keep: float | None = None
    errors: int | None = None
    about: Mapping[str, str] = field(default_factory=dict)

    _form = "nescio policy"

    @property
    def coverage(self) -> float:
        """The share of the calibration data that is accepted."""
        return self.accepted / self.n

    def accept(self, scores: Values) -> Tensor:
        """Return which inputs are accepted.

        Args:
            scores: Scores ``[N]``; they may be infinite but not NaN.

        Returns:
            True for each input that is accepted, bool ``[N]``.
        """
        values = torch.from_numpy(scores_of(scores, empty=True))
        return torch.zeros(len(values), dtype=torch.bool) if self.threshold is None else values <= self.threshold

    def _sentence(self) -> str:
        return self._promise() if self.threshold is not None else self._refusal()

    def _repr_html_(self) -> str:
        """The promise, for a notebook."""
        return notebook.card("A rule that accepts an answer, or refers it to a person", lines=[str(self)])

    def _promise(self) -> str:
        keep, risk, confidence = (percent(share or 0.0) for share in (self.keep, self.risk, self.confidence))
        if self.kind == "quantile":
            return (
                f"Accept an input when its score is at most {self.threshold:.6g}: at least {keep} of "
                f"new inputs like the {count(self.n, 'known one')} are accepted, on average over such sets."
            )
        return (
            f"Accept an input when its score is at most {self.threshold:.6g}: then at most {risk} of "
            f"the accepted answers are wrong, with {confidence} confidence, as long as inputs are "
            f"like the {count(self.n, 'example')}, of which {self.accepted:,} ({percent(self.coverage)}) are "
            f"accepted and {self.errors:,} of those wrong."
        )

    def _refusal(self) -> str:
        keep, risk, confidence = (percent(share or 0.0) for share in (self.keep, self.risk, self.confidence))
        if self.kind == "quantile":
            return (
                f"No threshold can promise to keep {keep} with {count(self.n, 'example')}: it takes at least "
                f"{self.needed:,}. Nothing is accepted."
            )
        return (
            f"No threshold can promise this with {count(self.n, 'example')}: that at most {risk} of the "
            f"accepted answers are wrong, with {confidence} confidence. It takes at least "
            f"{count(self.needed, 'example')} without any error among those of the lowest scores. Nothing is accepted."
        )

    def _wrong(self) -> str | None:
        def is_share(value: object) -> bool:
            return isinstance(value, float) and 0 < value < 1

        def is_count(value: object, most: float = math.inf) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most

        if self.kind not in ("threshold", "quantile"):
            return f"its kind is {self.kind!r}"
        if self.threshold is not None and not (isinstance(self.threshold, float) and math.isfinite(self.threshold)):
            return f"its threshold is {self.threshold!r}"
        if not (is_count(self.n) and self.n and is_count(self.accepted, self.n) and is_count(self.needed)):
            return "its counts do not fit together"
        if self.kind == "quantile":
            return None if is_share(self.keep) else f"the share to keep is {self.keep!r}"
        if not (is_share(self.risk) and is_share(self.confidence) and is_count(self.errors, self.accepted)):
            return "its promise does not fit together"
        return None
