"""The witnesses of a guard together: fitted to some inputs, on one scale, and their votes added up.

    score = max(z_doubt, −1.5) + ½ max(z_strangeness, −1.5) + 3 · root of the mean over depths of max(0, z_depth − 1.5)²

Appearance counts against an input alone, and only beyond 1.5: looks in which known inputs differ say nothing. Doubt and
strangeness count for an input too, but not without end: far from all data a network may be as sure as can be. The form
and its constants were chosen on shifted pictures of the networks' own kind and on MNIST and SVHN (`nescio reproduce
guard`); forms within 0.1 points of the best are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.guard.scale import Scale
from nescio.guard.split import in_turns
from nescio.guard.witnesses import Found, Rows, Witness

Kept = Mapping[str, Rows]
"""What is kept of some inputs, by the name of the witness."""


def take(kept: Kept, index: Tensor) -> dict[str, Rows]:
    """What is kept of the inputs at these positions."""
    return {name: tuple(rows[index] for rows in columns) for name, columns in kept.items()}


@dataclass(frozen=True)
class Testimony:
    """What the witnesses say of N inputs, each by its name: one z, float64 ``[N]``, and the vote that follows."""

    z: Mapping[str, Tensor]
    votes: Mapping[str, Tensor]

    @property
    def score(self) -> Tensor:
        """The sum of the votes, float64 ``[N]``: higher = more foreign."""
        return torch.stack(list(self.votes.values())).sum(0)


@dataclass(frozen=True)
class Bench:
    """What the witnesses found in the inputs that fit them, and the scales of their ways of looking at an input."""

    found: Mapping[str, Found]
    scales: Mapping[str, Scale]

    @classmethod
    def of(cls, witnesses: Sequence[Witness], kept: Kept, groups: Tensor) -> Bench:
        """Fit the witnesses.

        Args:
            witnesses: whom to fit.
            kept: what is kept of the inputs.
            groups: int64 ``[n]``; copies of one input share a number, and judge each other in no fit. The order of
                these numbers says who is judged together.
        """
        found, scales = {}, {}
        for witness in witnesses:
            rows = kept[witness.name]
            found[witness.name] = witness.fit(rows)
            scales[witness.name] = Scale.of(_unseen(witness, rows, groups))
        return cls(found, scales)

    def to(self, device: torch.device) -> Bench:
        """The same with what was found on the device; the scales stay where they are."""
        moved = {name: {key: t.to(device) for key, t in found.items()} for name, found in self.found.items()}
        return Bench(moved, self.scales)

    @property
    def nbytes(self) -> int:
        """How much memory what was found takes."""
        return sum(tensor.nbytes for found in self.found.values() for tensor in found.values())

    def measured(self, witness: Witness, rows: Rows) -> Tensor:
        """What the witness measures, float64 ``[N, M]``, on the device of the rows."""
        return witness.measure(dict(self.found[witness.name]), rows)

    def testimony(self, witnesses: Sequence[Witness], measured: Mapping[str, Tensor]) -> Testimony:
        """What each witness says of each input, from what it measures, float64 ``[N, M]`` on the CPU."""
        z = {witness.name: self.scales[witness.name](measured[witness.name]) for witness in witnesses}
        return Testimony(
            {witness.name: witness.summary(z[witness.name]) for witness in witnesses},
            {witness.name: witness.vote(z[witness.name]) for witness in witnesses},
        )

    def heard(self, witnesses: Sequence[Witness], kept: Kept) -> Testimony:
        """What each witness says of each input, from what is kept of it on the CPU."""
        return self.testimony(witnesses, {w.name: self.measured(w, kept[w.name]) for w in witnesses})

    def scaled(self, witness: Witness, rows: Rows) -> Tensor:
        """What the witness measures, on the scale of z, float64 ``[N, M]``."""
        return self.scales[witness.name](self.measured(witness, rows))


def _unseen(witness: Witness, rows: Rows, groups: Tensor) -> Tensor:
    """How unusual the witness finds each of these inputs, ``[n, M]``, when it was fitted to the others."""
    _, index = groups.unique(return_inverse=True)
    folds = in_turns(torch.arange(len(groups)), index)
    parts = []
    for fold in folds:
        found = witness.fit(tuple(column[fold.fit] for column in rows))
        parts.append(witness.measure(found, tuple(column[fold.rank] for column in rows)))
    order = torch.cat([fold.rank for fold in folds]).argsort()
    return torch.cat(parts)[order]
