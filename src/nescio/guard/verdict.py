"""`Verdict`: what a guard says about each input, with the promise that goes with it, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor

from nescio.guard.promise import benjamini_hochberg, check_level
from nescio.guard.wrong import Wrong

State = Literal["foreign", "unsure", "fine"]
UNLIKE, UNUSUAL = "unlike anything in the reference", "unusual beside the reference"


@dataclass(frozen=True)
class Verdict:
    """What a guard says about N inputs. Everything has one entry for each input and lies on the CPU.

    Attributes:
        p_value: float64 ``[N]``. Of inputs like the reference, at most a share α has p ≤ α.
        score: float64 ``[N]``, higher = more foreign.
        witnesses: what each witness says, as z, float64 ``[N]``: about 0 for a usual input, 2 for one in forty.
        votes: what that adds to the score, float64 ``[N]``.
        beyond: for each witness how many inputs of the reference it finds less unusual, int64 ``[N]``.
        ranks: how many inputs of the reference that is out of.
        predicted: the class that the model answers, int64 ``[N]``; confidence: its probability, float64 ``[N]``.
        wrong: where the reference had labels, the estimated probability that the answer is wrong; None otherwise.
    """

    p_value: Tensor
    score: Tensor
    witnesses: Mapping[str, Tensor]
    votes: Mapping[str, Tensor]
    beyond: Mapping[str, Tensor]
    ranks: int
    predicted: Tensor
    confidence: Tensor
    wrong: Wrong | None = None
    reasons: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.p_value)

    def foreign(self, alpha: float = 0.05, *, fdr: float | None = None) -> Tensor:
        """Which inputs are foreign: unlike the reference.

        Args:
            alpha: the share of inputs like the reference that are flagged by mistake.
            fdr: give this in its place to bound the share of mistakes among the flagged inputs of this verdict.

        Returns:
            bool ``[N]``.

        Raises:
            InputError: the reference is too small for this level; the message says how many inputs are needed.

        Example:
            >>> guard.check(x).foreign(0.01)
        """
        if fdr is not None:
            return benjamini_hochberg(self.p_value, fdr)
        check_level(alpha, self.ranks)
        return self.p_value <= alpha

    def states(self, alpha: float = 0.05) -> list[State]:
        """For each input "foreign", "unsure" (known, but the answer is in doubt) or "fine".

        An answer is in doubt where labels say that it is wrong more often than right; without labels, where the witness
        of doubt finds it more doubtful than a share 1 − alpha of the reference.
        """
        pairs = zip(self.foreign(alpha), self._doubtful(alpha), strict=True)
        return ["foreign" if foreign else "unsure" if doubtful else "fine" for foreign, doubtful in pairs]

    def _doubtful(self, alpha: float) -> Tensor:
        if self.wrong is not None:
            return self.wrong.probability > 0.5
        if "doubt" in self.beyond:
            return self.beyond["doubt"] >= (1.0 - alpha) * self.ranks
        return torch.zeros(len(self), dtype=torch.bool)

    def words(self, alpha: float = 0.05) -> list[str]:
        """For each input a sentence that says what is unusual about it, from the witness that objects most.

        Example:
            >>> guard.check(x).words()[0]
            'Its edges and textures are unlike anything in the reference (further out than 500 of 500).'
        """
        doubtful = self._doubtful(alpha).tolist()
        return [self._sentence(i, bool(self.p_value[i] <= alpha), doubtful[i]) for i in range(len(self))]

    def _sentence(self, i: int, foreign: bool, doubtful: bool) -> str:
        loudest = max(self.votes, key=lambda name: float(self.votes[name][i]))
        if not foreign and doubtful and self.wrong is not None:
            share = f"{100 * float(self.wrong.probability[i]):.0f} %"
            return f"It looks like the reference, but {share} of answers as doubtful as this one were wrong there."
        if not foreign and doubtful:
            return f"It looks like the reference, but the model is unsure of its answer{self._count('doubt', i)}."
        if not foreign:
            return "It looks like the reference."
        extreme = int(self.beyond[loudest][i]) == self.ranks
        reason = self.reasons.get(loudest, loudest)
        return f"{reason} {UNLIKE if extreme else UNUSUAL}{self._count(loudest, i)}."

    def _count(self, name: str, i: int) -> str:
        return f" (further out than {int(self.beyond[name][i])} of {self.ranks})"

    def __getitem__(self, index: slice) -> Verdict:
        """The verdict on some of the inputs."""
        changed: dict[str, Any] = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, Tensor):
                changed[entry.name] = value[index]
            elif entry.name in ("witnesses", "votes", "beyond"):
                changed[entry.name] = {name: one[index] for name, one in value.items()}
            elif isinstance(value, Wrong):
                changed[entry.name] = Wrong(value.probability[index], value.low[index], value.high[index])
            else:
                changed[entry.name] = value
        return Verdict(**changed)


def joined(parts: Sequence[Verdict]) -> Verdict:
    """The verdicts on several batches as one."""
    first = parts[0]
    changed: dict[str, Any] = {"ranks": first.ranks, "reasons": first.reasons}
    for name in ("p_value", "score", "predicted", "confidence"):
        changed[name] = torch.cat([getattr(part, name) for part in parts])
    for name in ("witnesses", "votes", "beyond"):
        changed[name] = {key: torch.cat([getattr(part, name)[key] for part in parts]) for key in getattr(first, name)}
    if first.wrong is not None:
        found = [part.wrong for part in parts if part.wrong is not None]
        columns = zip(*((w.probability, w.low, w.high) for w in found), strict=True)
        changed["wrong"] = Wrong(*(torch.cat(column) for column in columns))
    return Verdict(**changed)
