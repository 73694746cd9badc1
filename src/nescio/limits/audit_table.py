"""`Audit`: what an audit says, as a table with one row for each direction and score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio import notebook
from nescio.limits import advice, words
from nescio.limits.moves import Move, Ranges


@dataclass(frozen=True)
class AuditRow:
    """Hold one score along one direction, the mean over the starts.

    Attributes:
        direction: The name of the direction.
        score: The name of the score.
        start: The score at the data.
        limit: What it tends to; where it is measured, what it is at the radius.
        reached: The multiple of the spread behind which it stays near that, from every start; infinite: not up to the
            radius.
        rises: Whether it still rises at the end.
        proven: True: follows from the network's pieces; False: measured up to the radius.
        confidence: The largest predicted probability in the limit.
        certain: The share of the starts whose confidence tends to more than 0.99.
        answer: The class of which it is certain; −1 where that depends on the start, or where it is certain from none.
        sure_from: The multiple of the spread behind which it is certain, from every such start; infinite where there is
            none.
        values: The score at each of the audit's distances.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> table = nescio.limits.audit(model, torch.rand(5, 2), "features", starts=2, progress=False)
        >>> table.rows[0].direction, table.rows[0].score
        ('feature 0 +', 'max_probability')
    """

    direction: str
    score: str
    start: float
    limit: float
    reached: float
    rises: bool
    proven: bool
    confidence: float
    certain: float
    answer: int
    sure_from: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Audit:
    """Hold a table with one row for each direction and score, which prints as text.

    `columns()` is for `nescio.data.write_table`.

    Attributes:
        rows: The rows.
        distances: 0, 1, 2, 4 … radius: multiples of the spread.
        starts: From how many inputs each direction starts.
        reason: Why the probabilities were measured; empty where they are proven.
        classes: What the classes are called; empty where nobody said.
        moves: What each direction changes, and where it leaves the range of the data.
        ranges: The lowest and highest value of each feature; of pictures, of all their numbers.
        inputs: How many inputs the ranges are of.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> table = nescio.limits.audit(model, torch.rand(5, 2), "features", starts=2, progress=False)
        >>> table.radius
        1024.0
    """

    rows: tuple[AuditRow, ...]
    distances: tuple[float, ...]
    starts: int
    reason: str
    classes: tuple[str, ...] = ()
    moves: Mapping[str, Move] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    inputs: int = 0

    @property
    def radius(self) -> float:
        """How far away was measured."""
        return self.distances[-1]

    def columns(self) -> dict[str, NDArray[Any]]:
        """The table column by column, but for the values on the way."""
        names = [f.name for f in fields(AuditRow) if f.name != "values"]
        return {name: np.array([getattr(row, name) for row in self.rows]) for name in names}

    def sentences(self) -> dict[str, str]:
        """What happens along each direction, in words; those first that are certain from most starts, and soonest."""
        return words.sentences(self.rows, self.starts, not self.reason, self.classes)

    def nearest(self, most: int = 10) -> list[AuditRow]:
        """Return the directions along which the model is certain from most starts, those first where it is so soonest.

        Args:
            most: How many rows at most.

        Returns:
            The rows.
        """
        first = {row.direction: row for row in reversed(self.rows)}
        return [first[way] for way in self.sentences() if first[way].certain >= words.MOST_STARTS][:most]

    def advice(self) -> list[str]:
        """What to do about the nearest directions: how far a check of ranges goes, and what it leaves to the guard."""
        return advice.lines(self.nearest(), self.moves, self.ranges, self.inputs)

    def summary(self) -> list[str]:
        """What holds over all directions, in words."""
        return words.summary(self.rows, self.starts, self.radius, self.reason)

    def text(self, most: int | None = None) -> str:
        """Write the table in plain words.

        Args:
            most: Of how many directions, those first along which the model is the most certain; None for all.

        Returns:
            The text.
        """
        sentences = self.sentences()
        shown = list(sentences.items())[:most]
        width = max(len(name) for name, _ in shown)
        lines = [*self.summary(), "", *(f"{name:<{width}}  {sentence}" for name, sentence in shown)]
        if len(shown) < len(sentences):
            lines.append(f"… and {len(sentences) - len(shown)} more directions.")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What holds, and along which directions it is the most certain, for a notebook."""
        sentences = self.sentences()
        return notebook.card(
            "What the model says far away from its data",
            lines=self.summary(),
            columns=["direction", "what happens"],
            rows=list(sentences.items())[: notebook.MOST],
            more=notebook.rest(len(sentences), "direction"),
        )

    __str__ = text
