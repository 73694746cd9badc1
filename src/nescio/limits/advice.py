"""What to do about directions along which a model is certain: a check of ranges with its numbers, and the guard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nescio._common.formatting import count, number, percent
from nescio.limits.moves import EVERY, Move, Ranges, outward

if TYPE_CHECKING:
    from nescio.limits.audit_table import AuditRow

MOST = 40
"""A check of so many features is written out whole; of more, those of the nearest directions."""
GUARD = (
    "Fit a guard: it compares the model's view of an input as a whole with inputs that it knows, so it also tells what "
    "lies within all ranges."
)


def lines(nearest: Sequence[AuditRow], moves: Mapping[str, Move], ranges: Ranges, inputs: int) -> list[str]:
    """What to do, in sentences: first the check of ranges, then the guard."""
    if not nearest:
        return ["The model is certain along none of these directions. A guard still tells inputs that are foreign."]
    early = [row for row in nearest if moves[row.direction].leaves <= row.sure_from]
    many = f"all {len(nearest)}" if len(early) == len(nearest) else f"{len(early)} of the {len(nearest)}"
    stops = f"along {many} nearest directions it refuses an input before the model is certain for good."
    if EVERY in ranges:
        low, high = outward(*ranges[EVERY])
        check = (
            f"Check the range: refuse arrays with values outside of {low:g} to {high:g}, what the data have; {stops} A "
            "picture from a file is never outside."
        )
    else:
        single = [row for row in early if not moves[row.direction].others]  # of one feature, where there is one
        name = moves[(single or early or nearest)[0].direction].first
        low, high = outward(*ranges[name])
        chance = percent(min(1.0, 2 * len(ranges) / (inputs + 1)), digits=2, most_digits=2)
        check = (
            "Check the ranges: refuse an input with a feature outside of what the data have, such as "
            f"{name} outside of {low:g} to {high:g}; {stops} "
            f"Of new inputs like the data it refuses at most {chance} by chance "
            f"({count(len(ranges), 'feature')}, {count(inputs, 'input')}): more data make that fewer."
        )
    return [check, GUARD]


def code(nearest: Sequence[AuditRow], moves: Mapping[str, Move], ranges: Ranges, named: bool) -> str:
    """The check of ranges as Python to copy.

    Args:
        nearest: The nearest directions, whose features are written out where there are many.
        moves: What each direction changes.
        ranges: The range of each feature.
        named: Whether the features have names of their own; else they go by their places.

    Returns:
        The code: a function that returns which features of an input are outside.
    """
    if EVERY in ranges:
        low, high = outward(*ranges[EVERY])
        head = "def outside(x):  # an array, as the model is given it\n"
        return head + f"    return bool((x < {low!r}).any() or (x > {high!r}).any())"
    chosen = list(ranges)
    if len(chosen) > MOST:
        near = {moves[row.direction].first for row in nearest}
        near |= {change[:-2] for row in nearest for change in moves[row.direction].changes}
        chosen = [name for name in chosen if name in near]
    keys = chosen if named else [list(ranges).index(name) for name in chosen]
    entries = [f"    {key!r}: {outward(*ranges[name])!r}," for key, name in zip(keys, chosen, strict=True)]
    row = "a mapping of names to values" if named else "a sequence of numbers"
    return "\n".join(
        [
            "RANGES = {", *entries, "}", "",
            f"def outside(row):  # {row}",
            "    return [name for name, (low, high) in RANGES.items() if not low <= row[name] <= high]",
        ]
    )  # fmt: skip


def spreads(value: float) -> str:
    """A distance in words."""
    return "–" if value == float("inf") else number(value)
