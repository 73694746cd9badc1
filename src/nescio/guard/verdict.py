"""`Verdict`: what a guard says about each input, with the promise that goes with it, and in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor

from nescio import notebook
from nescio._common.formatting import percent
from nescio.guard.promise import benjamini_hochberg, check_level, usual_level
from nescio.guard.wrong import Wrong

State = Literal["foreign", "unsure", "fine"]
VerdictOf = TypeVar("VerdictOf", bound="Verdict")
OFTEN_WRONG = 0.2
"""The share of wrong answers, by the labels of the reference, above which an answer is in doubt: one in five."""
EVEN_CHANCE = 0.5
"""The probability of an answer below which the model itself says that it is more likely wrong than right."""
UNLIKE, UNUSUAL = "unlike anything in the reference", "unusual beside the reference"


@dataclass(frozen=True)
class Verdict:
    """Tell what a guard says about N inputs. All tensors have one entry for each input and lie on the CPU.

    Args:
        p_value: float64 ``[N]``. Of inputs like the reference, at most a share α has p ≤ α.
        score: float64 ``[N]``, higher = more foreign.
        witnesses: What each witness says, as z, float64 ``[N]``: about 0 for a usual input, 2 for one in forty.
        votes: What each witness adds to the score, float64 ``[N]``.
        beyond: For each witness how many inputs of the reference it finds less unusual, int64 ``[N]``.
        ranks: How many inputs of the reference each input was compared with.
        predicted: The class that the model answers, int64 ``[N]``.
        confidence: The probability of that class, float64 ``[N]``.
        wrong: The estimated probability that the answer is wrong; None where the reference had no labels.
        reasons: For each witness the beginning of a sentence.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> guard = nescio.Guard(torch.nn.Linear(4, 3)).fit(torch.randn(400, 4))
        >>> verdict = guard.check(torch.tensor([[0.1, -0.2, 0.3, 0.1], [99.0, 99.0, 99.0, 99.0]]))
        >>> verdict.foreign(0.05)
        tensor([False,  True])
        >>> verdict.words()
        ['It looks like the reference, but the model itself gives its answer a chance of only 38 %.',
         'Its values are unlike anything in the reference (further out than 200 of 200).']
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

    def ranks_of(self, witness: str) -> int:
        """Return how many inputs of the reference a witness compared each input with.

        Args:
            witness: The name of the witness.

        Returns:
            The number.
        """
        return self.ranks

    def foreign(self, alpha: float = 0.05, *, fdr: float | None = None) -> Tensor:
        """Return which inputs are foreign: unlike the reference.

        Args:
            alpha: The share of inputs like the reference that may be flagged by mistake.
            fdr: In the place of alpha: the share of mistakes among the flagged inputs of this verdict.

        Returns:
            bool ``[N]``.

        Raises:
            InputError: The reference is too small for this level; the message says how many inputs are needed.
        """
        if fdr is not None:
            return benjamini_hochberg(self.p_value, fdr)
        check_level(alpha, self.ranks)
        return self.p_value <= alpha

    def states(self, alpha: float = 0.05) -> list[State]:
        """Return "foreign", "unsure" (known, but the answer is in doubt) or "fine" for each input.

        Args:
            alpha: As in `foreign` and `unsure`.

        Returns:
            N words.
        """
        pairs = zip(self.foreign(alpha), self.unsure(alpha), strict=True)
        return ["foreign" if foreign else "unsure" if doubtful else "fine" for foreign, doubtful in pairs]

    def unsure(self, alpha: float = 0.05) -> Tensor:
        """Return which answers are in doubt, for inputs that are like the reference.

        With labels an answer is in doubt where more than one in five of the reference's answers that were as doubtful
        were wrong. Without labels it is in doubt where the model gives it a probability below one half: then the model
        itself says that it is more likely wrong than right; and where the witness of doubt finds it more doubtful than
        a share 1 − alpha of the reference. How often such answers are wrong only labels can tell: an answer that is
        not in doubt need not be right.

        Args:
            alpha: The share of the reference that is called more doubtful than usual.

        Returns:
            bool ``[N]``.

        Examples:
            >>> _ = torch.manual_seed(0)
            >>> guard = nescio.Guard(torch.nn.Linear(4, 3)).fit(torch.randn(400, 4))
            >>> guard.check(torch.zeros(1, 4)).unsure()
            tensor([True])
        """
        if self.wrong is not None:
            return self.wrong.probability > OFTEN_WRONG
        doubtful = self.confidence < EVEN_CHANCE
        return doubtful | (self.beyond["doubt"] >= (1.0 - alpha) * self.ranks) if "doubt" in self.beyond else doubtful

    def words(self, alpha: float = 0.05) -> list[str]:
        """Return a sentence for each input that says what is unusual about it, from the witness with the largest vote.

        Args:
            alpha: The p-value up to which an input is called foreign.

        Returns:
            N sentences.
        """
        doubtful = self.unsure(alpha).tolist()
        return [self._sentence(i, bool(self.p_value[i] <= alpha), doubtful[i]) for i in range(len(self))]

    def _sentence(self, i: int, foreign: bool, doubtful: bool) -> str:
        """The sentence about one input."""
        loudest = max(self.votes, key=lambda name: float(self.votes[name][i]))
        if not foreign and doubtful and self.wrong is not None:
            share = f"{100 * float(self.wrong.probability[i]):.0f} %"
            return f"It looks like the reference, but {share} of answers as doubtful as this one were wrong there."
        if not foreign and doubtful and float(self.confidence[i]) < EVEN_CHANCE:
            share = percent(float(self.confidence[i]), 2)
            return f"It looks like the reference, but the model itself gives its answer a chance of only {share}."
        if not foreign and doubtful:
            return f"It looks like the reference, but the model is unsure of its answer{self._count('doubt', i)}."
        if not foreign:
            return "It looks like the reference."
        extreme = int(self.beyond[loudest][i]) == self.ranks
        reason = self.reasons.get(loudest, loudest)
        return f"{reason} {UNLIKE if extreme else UNUSUAL}{self._count(loudest, i)}."

    def _count(self, name: str, i: int) -> str:
        return f" (further out than {int(self.beyond[name][i])} of {self.ranks})"

    def _repr_html_(self) -> str:
        """The most foreign inputs, for a notebook."""
        alpha = usual_level(self.ranks)
        states, sentences = self.states(alpha), self.words(alpha)
        order = self.p_value.argsort(stable=True)[: notebook.MOST].tolist()
        rows = [
            [
                str(i),
                notebook.Cell(states[i], state=states[i]),
                notebook.short(float(self.p_value[i])),
                f"{int(self.predicted[i])} ({100 * float(self.confidence[i]):.0f} %)",
                sentences[i],
            ]
            for i in order
        ]
        many, foreign = len(self), states.count("foreign")
        return notebook.card(
            f"{foreign:,} of {many:,} input{'s' * (many != 1)} foreign at a level of {alpha:g}; the most foreign first",
            columns=["input", "", "p", "answer", "why"],
            rows=rows,
            more=notebook.rest(many, "input"),
        )

    def __getitem__(self, index: slice | Tensor) -> Self:
        """Return the verdict on some of the inputs: a slice, or booleans or positions in a tensor."""
        return _mapped([self], lambda parts: parts[0][index])


def joined(parts: Sequence[VerdictOf]) -> VerdictOf:
    """Join the verdicts on several batches.

    Args:
        parts: At least one verdict, all of one guard.

    Returns:
        One verdict on all inputs, in their order.

    Examples:
        >>> guard = nescio.Guard(torch.nn.Linear(4, 3)).fit(torch.randn(400, 4))
        >>> len(joined([guard.check(torch.randn(2, 4)), guard.check(torch.randn(3, 4))]))
        5
    """
    return parts[0] if len(parts) == 1 else _mapped(parts, torch.cat)


def _mapped(parts: Sequence[VerdictOf], function: Callable[[list[Tensor]], Tensor]) -> VerdictOf:
    """A verdict whose tensors are a function of those of the parts."""

    def combined(values: list[Any]) -> Any:
        first = values[0]
        if isinstance(first, Tensor):
            return function(values)
        if isinstance(first, Verdict | Wrong):
            return replace(first, **{f.name: combined([getattr(one, f.name) for one in values]) for f in fields(first)})
        if isinstance(first, Mapping):
            return {key: combined([value[key] for value in values]) for key in first}
        return first

    result: VerdictOf = combined(list(parts))
    return result
