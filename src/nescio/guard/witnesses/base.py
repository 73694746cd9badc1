"""What a witness is: something that looks at an input from one side and says how unusual it is.

A witness is a frozen dataclass of settings. To write a new one, put a file into this folder with a class that has

    needs(anatomy)          the quantities it looks at (requests of `nescio.types`), for a model of this anatomy
    rows(*answers)          what is kept of each input: a tuple of tensors of float64, each ``[N, …]``
    fit(rows)               what is kept of the reference: a dictionary of tensors
    measure(found, rows)    how unusual each input is, float64 ``[N, M]``, higher = more unusual; M ways of looking
    summary(z)              one z from the M, each brought to the scale of z first: float64 ``[N]``, for people
    vote(z)                 what it adds to the score of the guard: float64 ``[N]``

and decorate it with `register`. The guard adds the votes of its witnesses up. The model's answers, and with them the
rows, lie on the CPU or on the model's GPU; what was found is then there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor

from nescio.quantities import Activations, Features, Request

FLOOR = -1.5  # of z that counts for an input: a network may be very sure far from all data
Kind = Literal["pictures", "tokens", "vectors", "signals"]
Rows = tuple[Tensor, ...]
Found = dict[str, Tensor]


@dataclass(frozen=True)
class Anatomy:
    """What the guard found in a model: its features (None where it has none), its depths, and what its inputs are."""

    features: Features | None
    activations: Activations
    kind: Kind


class Witness:
    """Base of the witnesses."""

    name: ClassVar[str]

    def needs(self, anatomy: Anatomy) -> tuple[Request, ...]:
        """The quantities that it looks at."""
        raise NotImplementedError

    def rows(self, *answers: Any) -> Rows:
        """What is kept of each input."""
        return answers

    def fit(self, rows: Rows) -> Found:
        """What is kept of the reference."""
        raise NotImplementedError

    def measure(self, found: Found, rows: Rows) -> Tensor:
        """How unusual each input is, ``[N, M]``."""
        raise NotImplementedError

    def summary(self, z: Tensor) -> Tensor:
        """One z for each input, ``[N]``."""
        return z[:, 0]

    def vote(self, z: Tensor) -> Tensor:
        """What it adds to the score of each input, ``[N]``."""
        raise NotImplementedError

    def words(self, kind: Kind) -> str:
        """The beginning of a sentence that ends in "unlike anything in the reference"; kind: what the inputs are."""
        raise NotImplementedError


WITNESSES: dict[str, type[Witness]] = {}
W = TypeVar("W", bound=type[Witness])


def register(cls: W) -> W:
    """Make a witness known under its name."""
    assert cls.name not in WITNESSES, f"two witnesses are named {cls.name!r}"
    WITNESSES[cls.name] = cls
    return cls
