"""The witnesses of a guard, fitted to some inputs and brought to one scale, and the sum of their votes.

    score = max(z_doubt, −1.5) + ½ max(z_strangeness, −1.5) + 3 · root of the mean over depths of max(0, z_depth − 1.5)²

Appearance only counts against an input, and only beyond 1.5: known inputs differ in their looks too. Doubt and
strangeness can also count for an input, but not below −1.5: a network may be very sure far from all data. The form and
its constants were chosen on shifted pictures of the networks' own kind and on MNIST and SVHN (`nescio reproduce
guard`); many other forms are within 0.1 points of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.guard.rank_scale import Scale
from nescio.guard.split import in_turns
from nescio.guard.witnesses import Rows, State, Witness

RowsByWitness = Mapping[str, Rows]
"""What each witness keeps of some inputs, by the name of the witness."""


def take(rows: RowsByWitness, index: Tensor) -> dict[str, Rows]:
    """Return the rows of the inputs at these positions."""
    return {name: tuple(column[index] for column in columns) for name, columns in rows.items()}


@dataclass(frozen=True)
class Opinions:
    """What the witnesses say of N inputs, by name: one z, float64 ``[N]``, and the vote that follows from it."""

    z: Mapping[str, Tensor]
    votes: Mapping[str, Tensor]

    @property
    def score(self) -> Tensor:
        """The sum of the votes, float64 ``[N]``: higher = more foreign."""
        return torch.stack(list(self.votes.values())).sum(0)


@dataclass(frozen=True)
class FittedWitnesses:
    """What the witnesses have learnt from the inputs that they were fitted to, and the scale of what they measure."""

    states: Mapping[str, State]
    scales: Mapping[str, Scale]

    @classmethod
    def of(cls, witnesses: Sequence[Witness], rows: RowsByWitness, groups: Tensor) -> FittedWitnesses:
        """Fit the witnesses.

        Args:
            witnesses: The witnesses to fit.
            rows: What they keep of n inputs.
            groups: int64 ``[n]``. Inputs of one group, such as copies of one picture, never judge each other. The
                numbers also decide which groups are judged together.
        """
        states = {witness.name: witness.fit(rows[witness.name]) for witness in witnesses}
        scales = {w.name: Scale.of(_measures_of_unseen(w, rows[w.name], groups)) for w in witnesses}
        return cls(states, scales)

    def to(self, device: torch.device) -> FittedWitnesses:
        """Return a copy whose states lie on the device; the scales stay where they are."""
        states = {name: {key: t.to(device) for key, t in state.items()} for name, state in self.states.items()}
        return FittedWitnesses(states, self.scales)

    @property
    def nbytes(self) -> int:
        """The memory that the states take."""
        return sum(tensor.nbytes for state in self.states.values() for tensor in state.values())

    def measures(self, witness: Witness, rows: Rows) -> Tensor:
        """Return what the witness measures, float64 ``[N, M]``, on the device of the rows."""
        return witness.measure(dict(self.states[witness.name]), rows)

    def z(self, witness: Witness, rows: Rows) -> Tensor:
        """Return what the witness measures on the scale of z, float64 ``[N, M]``, from rows on the CPU."""
        return self.scales[witness.name](self.measures(witness, rows))

    def opinions(self, witnesses: Sequence[Witness], measures: Mapping[str, Tensor]) -> Opinions:
        """Return what the witnesses say, from what each measures, float64 ``[N, M]`` on the CPU."""
        z = {witness.name: self.scales[witness.name](measures[witness.name]) for witness in witnesses}
        return Opinions(
            {witness.name: witness.summary(z[witness.name]) for witness in witnesses},
            {witness.name: witness.vote(z[witness.name]) for witness in witnesses},
        )

    def opinions_from_rows(self, witnesses: Sequence[Witness], rows: RowsByWitness) -> Opinions:
        """Return what the witnesses say, from rows on the CPU."""
        return self.opinions(witnesses, {w.name: self.measures(w, rows[w.name]) for w in witnesses})


def _measures_of_unseen(witness: Witness, rows: Rows, groups: Tensor) -> Tensor:
    """What the witness measures of each input, ``[n, M]``, when it is fitted to other groups."""
    _, numbers = groups.unique(return_inverse=True)
    folds = in_turns(torch.arange(len(groups)), numbers)
    parts = []
    for fold in folds:
        state = witness.fit(tuple(column[fold.fit] for column in rows))
        parts.append(witness.measure(state, tuple(column[fold.rank] for column in rows)))
    order = torch.cat([fold.rank for fold in folds]).argsort()
    return torch.cat(parts)[order]
