"""What a witness is: it looks at an input from one side and says how unusual the input is.

A witness is a frozen dataclass of settings. To write a new one, put a file into this folder with a class that has

    needs(anatomy)          the quantities it looks at (requests of `nescio.quantities`), for a model of this anatomy
    rows(*answers)          what is kept of each input: a tuple of tensors of float64, each ``[N, …]``
    fit(rows)               what is learnt from the reference, its state: a dictionary of tensors
    measure(state, rows)    how unusual each input is, float64 ``[N, M]``, higher = more unusual; M ways of looking
    summary(z)              one z from the M, each brought to the scale of z first: float64 ``[N]``, for people
    vote(z)                 what it adds to the score of the guard: float64 ``[N]``
    words(kind)             the beginning of a sentence, for people

and decorate it with `register`. The guard adds up the votes of its witnesses. The model's answers, and so the rows,
lie on the CPU or on the model's GPU; the state that goes with them is on the same device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor

from nescio.quantities import Activations, Features, Request

FLOOR = -1.5  # the least z that counts for an input: a network may be very sure far from all data
Kind = Literal["pictures", "tokens", "vectors", "signals"]
Rows = tuple[Tensor, ...]
State = dict[str, Tensor]


@dataclass(frozen=True)
class Anatomy:
    """Say what there is to look at in a model.

    Attributes:
        features: The request for its features; None where it has none.
        activations: The request for the statistics of its layers.
        kind: What its inputs are.

    Examples:
        >>> Anatomy(features=None, activations=Activations(()), kind="vectors").kind
        'vectors'
    """

    features: Features | None
    activations: Activations
    kind: Kind


class Witness:
    """Look at inputs from one side and say how unusual they are: the base of all witnesses.

    A subclass is a frozen dataclass that writes `needs`, `fit`, `measure`, `vote` and `words`.

    Examples:
        >>> from dataclasses import dataclass
        >>> from nescio.quantities import Logits
        >>> @dataclass(frozen=True)
        ... class Loudness(Witness):
        ...     name = "loudness"
        ...     def needs(self, anatomy):
        ...         return (Logits(),)
        ...     def fit(self, rows):
        ...         return {}
        ...     def measure(self, state, rows):
        ...         return rows[0].norm(dim=1, keepdim=True)
        ...     def vote(self, z):
        ...         return z[:, 0].clamp(min=0)
        ...     def words(self, kind):
        ...         return "The size of its logits is"
        >>> guard = nescio.Guard(torch.nn.Linear(4, 3), witnesses=[Loudness()]).fit(torch.randn(400, 4))
        >>> guard.check(torch.full((1, 4), 99.0)).words()
        ['The size of its logits is unlike anything in the reference (further out than 200 of 200).']
    """

    name: ClassVar[str]

    def needs(self, anatomy: Anatomy) -> tuple[Request, ...]:
        """Return the quantities that it looks at.

        Args:
            anatomy: What the model is made of.

        Returns:
            The quantities; none where it cannot work with such a model.
        """
        raise NotImplementedError

    def rows(self, *answers: Any) -> Rows:
        """Return what is kept of each input.

        Args:
            answers: The answers to `needs`.

        Returns:
            Tensors with a row for each input.
        """
        return answers

    def fit(self, rows: Rows) -> State:
        """Learn from the reference.

        Args:
            rows: The rows of the reference.

        Returns:
            What was learnt, as tensors.
        """
        raise NotImplementedError

    def measure(self, state: State, rows: Rows) -> Tensor:
        """Measure how unusual each input is.

        Args:
            state: What was learnt.
            rows: The rows of the inputs.

        Returns:
            The measures ``[N, M]``, higher = more unusual.
        """
        raise NotImplementedError

    def summary(self, z: Tensor) -> Tensor:
        """Return one z for each input.

        Args:
            z: The measures on the scale of z, ``[N, M]``.

        Returns:
            One each, ``[N]``.
        """
        return z[:, 0]

    def vote(self, z: Tensor) -> Tensor:
        """Return what it adds to the score of each input.

        Args:
            z: The measures on the scale of z, ``[N, M]``.

        Returns:
            The votes ``[N]``.
        """
        raise NotImplementedError

    def words(self, kind: Kind) -> str:
        """Return the beginning of a sentence that ends in "unlike anything in the reference".

        Args:
            kind: What the inputs are.

        Returns:
            The words.
        """
        raise NotImplementedError


WITNESSES: dict[str, type[Witness]] = {}
W = TypeVar("W", bound=type[Witness])


def register(cls: W) -> W:
    """Make a class of witnesses known by its name, so that `Guard.load` finds it.

    Args:
        cls: The class.

    Returns:
        The same class.

    Examples:
        >>> class Nothing(Witness):
        ...     name = "nothing"
        >>> register(Nothing) is WITNESSES.pop("nothing")
        True
    """
    assert cls.name not in WITNESSES, f"two witnesses are named {cls.name!r}"
    WITNESSES[cls.name] = cls
    return cls
