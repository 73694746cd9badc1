"""The verdicts of a guard as columns of a table, and what people are told of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nescio.data.tables import read_table
from nescio.dense import RegionGuard
from nescio.dense.picture_verdict import PictureVerdict
from nescio.guard import Guard, Verdict, joined

Column = NDArray[Any]
Columns = dict[str, Column]
Retelling = Callable[[Columns], Columns]
"""From the columns of a part to those that are written."""
WORST = 5
"""Inputs that are named, at most."""
CHANCE = "It is unusual, but among so many inputs that may be chance."


class Worst(NamedTuple):
    """Hold what people are told of a foreign input.

    Attributes:
        p_value: Of the input.
        oddness: The sum of what the witnesses say.
        name: The input's name.
        words: The reason.

    Examples:
        >>> Worst(0.01, 7.2, "cat.jpg", "Its features are unusual.").name
        'cat.jpg'
    """

    p_value: float
    oddness: float
    name: str
    words: str


@dataclass(frozen=True)
class Flagged:
    """Count the foreign inputs of some rows, and hold the worst of them.

    Attributes:
        foreign: How many inputs are foreign.
        worst: The worst of them, at most five.
        unsure: How many others are like the reference, but have an answer that is in doubt.

    Examples:
        >>> some, others = Flagged(1, [Worst(0.02, 5.0, "a", "…")]), Flagged(1, [Worst(0.01, 6.0, "b", "…")])
        >>> Flagged.together([some, others]).worst[0].name
        'b'
    """

    foreign: int
    worst: list[Worst]
    unsure: int = 0

    @classmethod
    def of_columns(cls, table: Columns) -> Flagged:
        """Read the columns of a part.

        Args:
            table: The columns of a part.

        Returns:
            What is known of it.
        """
        foreign, oddness = np.flatnonzero(table["foreign"]), _oddness(table)
        order = sorted(foreign.tolist(), key=lambda i: (table["p_value"][i], -oddness[i]))[:WORST]
        names, words = table.get("name", table["index"]), table["words"]
        worst = [Worst(float(table["p_value"][i]), float(oddness[i]), str(names[i]), str(words[i])) for i in order]
        return cls(len(foreign), worst, int(np.sum(table["unsure"].astype(bool) & ~table["foreign"].astype(bool))))

    @classmethod
    def of_note(cls, note: Mapping[str, Any]) -> Flagged:
        """Read what `as_note` gave, after a way through JSON.

        Args:
            note: What `as_note` gave.

        Returns:
            What is known of the part.
        """
        return cls(note["foreign"], [Worst(*one) for one in note["worst"]], note["unsure"])

    def as_note(self) -> dict[str, Any]:
        """Return the same for the manifest, as JSON can hold it."""
        return {"foreign": self.foreign, "worst": [list(one) for one in self.worst], "unsure": self.unsure}

    @classmethod
    def together(cls, parts: Iterable[Flagged]) -> Flagged:
        """Join what is known of several parts.

        Args:
            parts: What is known of each part.

        Returns:
            What is known of all.
        """
        every = list(parts)
        worst = sorted((one for part in every for one in part.worst), key=lambda one: (one.p_value, -one.oddness))
        return cls(sum(part.foreign for part in every), worst[:WORST], sum(part.unsure for part in every))


def columns(verdicts: Sequence[Verdict], guard: Guard | RegionGuard, level: float) -> Columns:
    """Return verdicts as columns, in order; the columns of no verdicts too, since the guard says which there are.

    Args:
        verdicts: What the guard said, batch by batch.
        guard: The guard.
        level: The share of inputs like the reference that may be called foreign by mistake.

    Returns:
        predicted, confidence, p_value, foreign (at this level), unsure, what each witness says, as z, and where the
        reference had labels, wrong with wrong_low and wrong_high; then words. Of a guard of regions also foreign_share,
        before foreign: the share of the picture that is foreign.

    Examples:
        >>> guard = nescio.Guard(torch.nn.Linear(4, 3)).fit(torch.randn(400, 4), progress=False)
        >>> list(columns([guard.check(torch.randn(5, 4))], guard, 0.05))[:4]
        ['predicted', 'confidence', 'p_value', 'foreign']
    """
    fitted = guard.fitted
    names = list(fitted.names)
    wrong = [] if fitted.mistakes is None else ["wrong", "wrong_low", "wrong_high"]
    share = ["foreign_share"] if isinstance(guard, RegionGuard) else []
    if not verdicts:
        numbers = dict.fromkeys(("confidence", "p_value", *share, *names, *wrong), np.empty(0))
        own: Columns = {"predicted": np.empty(0, np.int64), **numbers}
        own |= {"foreign": np.empty(0, np.bool_), "unsure": np.empty(0, np.bool_), "words": np.empty(0, np.str_)}
    else:
        whole = joined(verdicts)
        own = {name: getattr(whole, name).numpy() for name in ("predicted", "confidence", "p_value")}
        own |= {"foreign": whole.foreign(level).numpy(), "unsure": whole.unsure(level).numpy()}
        own |= {"words": np.array(whole.words(level), dtype=np.str_)}
        own |= {name: z.numpy() for name, z in whole.witnesses.items()}
        if isinstance(whole, PictureVerdict):
            own["foreign_share"] = whole.share.numpy()
        if whole.wrong is not None:
            parts = (whole.wrong.probability, whole.wrong.low, whole.wrong.high)
            own |= {name: part.numpy() for name, part in zip(wrong, parts, strict=True)}
    order = ("predicted", "confidence", "p_value", *share, "foreign", "unsure", *names, *wrong, "words")
    return {name: own[name] for name in order}


def at_rate(files: Sequence[Path], fdr: float) -> tuple[Retelling, Flagged]:
    """Flag inputs so that a share of mistakes holds among all that are flagged.

    Args:
        files: The parts of the whole table, made with that share as their level: so all that may be flagged has its
            reason there.
        fdr: The share of mistakes among the flagged inputs.

    Returns:
        What makes of a part's columns those in which `foreign` holds that share; and what is flagged then.

    Examples:
        >>> import tempfile
        >>> from nescio.data import write_table
        >>> part, p_value = Path(tempfile.mkdtemp(), "part.parquet"), np.array([0.01, 0.01, 0.5])
        >>> table = {"index": np.arange(3), "p_value": p_value}
        >>> table |= {"foreign": p_value < 0.1, "unsure": p_value > 0.1, "features": 4 - p_value}
        >>> write_table(part, table | {"words": np.array(["Unusual.", "Unusual.", ""])})
        >>> at_rate([part], fdr=0.1)[1].foreign
        2
    """
    counts: Counter[float] = Counter()  # p-values are ranks in the reference: few, however many rows there are
    for file in files:
        values, times = np.unique(read_table(file, ["p_value"])["p_value"], return_counts=True)
        counts.update(dict(zip(values.tolist(), times.tolist(), strict=True)))
    most = largest_flagged(counts, fdr)

    def retell(table: Columns) -> Columns:
        foreign = table["p_value"] <= most
        words = np.where(table["foreign"].astype(bool) & ~foreign, CHANCE, table["words"].astype(np.str_))
        return {**table, "foreign": foreign, "words": words}

    return retell, Flagged.together(Flagged.of_columns(retell(read_table(file))) for file in files)


def largest_flagged(counts: Mapping[float, int], fdr: float) -> float:
    """Return the largest p-value that `nescio.guard.promise.benjamini_hochberg` flags; −1 where it flags none.

    Args:
        counts: How often each p-value is there.
        fdr: The share of mistakes among the flagged inputs.

    Returns:
        The p-value.

    Examples:
        >>> largest_flagged({0.01: 2, 0.5: 8}, fdr=0.1)
        0.01
    """
    values = np.array(sorted(counts))
    ranks = np.cumsum([counts[value] for value in values.tolist()], dtype=np.float64)
    good = values[values <= ranks * fdr / sum(counts.values())] if counts else values
    return float(good[-1]) if len(good) else -1.0


def _oddness(table: Columns) -> Column:
    """Return the sum of what the witnesses say; their columns stand after `unsure`."""
    names = list(table)
    start = names.index("unsure") + 1
    stop = names.index("wrong") if "wrong" in names else names.index("words")
    result: Column = np.sum([table[name] for name in names[start:stop]], axis=0)
    return result
