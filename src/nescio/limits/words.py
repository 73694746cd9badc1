"""An audit in plain words: one sentence for each direction, and what holds over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nescio._common.formatting import class_name, number, percent
from nescio._common.score_names import glossed

if TYPE_CHECKING:
    from nescio.limits.audit_table import AuditRow

CERTAIN = 0.99
"""A limit confidence above this is called certain."""

MOST_STARTS = 0.5
"""A direction is called certain when so many of its starts are."""

_STAYS = 0.01  # a change below this, relative to the larger of the two, is none


def summary(rows: Sequence[AuditRow], starts: int, radius: float, reason: str) -> list[str]:
    """Along how many directions the model is certain, and where each score ends."""
    ways = _by_direction(rows)
    sure = sum(own[0].certain >= MOST_STARTS for own in ways.values())
    points = "the starting point" if starts == 1 else f"at least half of {starts} starting points"
    lines = [
        f"Far away from the data the model is certain along {sure} of {len(ways)} directions "
        f"(its confidence tends to more than {percent(CERTAIN, digits=2, most_digits=5)} from {points}).",
        *(["Its probabilities were measured, not proven: " + reason] if reason else []),
    ]
    for name in dict.fromkeys(row.score for row in rows):
        own = [row for row in rows if row.score == name]
        rising, fallen = sum(row.rises for row in own), sum(trend(row) == "falls" for row in own)
        how = "proven" if own[0].proven else f"measured up to {radius:g} spreads"
        lines.append(
            f"{glossed(name, how)}: ends lower than at the data along {fallen} of {len(own)} directions, "
            f"still rises along {rising}."
        )
    return lines


def sentences(rows: Sequence[AuditRow], starts: int, proven: bool, classes: Sequence[str] = ()) -> dict[str, str]:
    """One for each direction, those first that are certain from most starts, and soonest."""
    ways = _by_direction(rows)
    order = sorted(ways, key=lambda way: (-ways[way][0].certain, ways[way][0].sure_from, -ways[way][0].confidence))
    return {way: _sentence(ways[way], starts, proven, classes) for way in order}


def trend(row: AuditRow) -> str:
    """What a score does between the data and its limit: falls, stays or rises."""
    change = row.limit - row.start
    if abs(change) <= _STAYS * max(abs(row.start), abs(row.limit)):
        return "stays"
    return "rises" if change > 0 else "falls"


def _by_direction(rows: Sequence[AuditRow]) -> dict[str, list[AuditRow]]:
    by_direction: dict[str, list[AuditRow]] = {}
    for row in rows:
        by_direction.setdefault(row.direction, []).append(row)
    return by_direction


def _sentence(rows: Sequence[AuditRow], starts: int, proven: bool, classes: Sequence[str]) -> str:
    clauses, last = [_certainty(rows[0], starts, classes) + _mark(proven)], ""
    for row in rows:
        if row.score == "max_probability":  # one minus the confidence, of which the first clause tells
            continue
        how = trend(row)
        if row.rises:
            clause = f"{row.score} still rises, from {number(row.start)} to {number(row.limit)}"
        elif how == "stays":
            clause = f"{row.score} stays at {number(row.limit)}"
        else:
            too = " too," if how == last else ""
            small = abs(row.limit) < 1e-6 * abs(row.start)
            clause = f"{row.score} {how}{too} from {number(row.start)} to {'0' if small else number(row.limit)}"
        clauses.append(clause + _mark(row.proven))
        last = "rises" if row.rises else how
    return "; ".join(clauses) + "."


def _certainty(row: AuditRow, starts: int, classes: Sequence[str]) -> str:
    count = round(row.certain * starts)
    if not count:
        return f"not certain: its confidence tends to {percent(row.confidence, digits=2, most_digits=5)}"
    whom = class_name(row.answer, classes) if row.answer >= 0 else "a class that depends on the start"
    where = f"from {number(row.sure_from)} spreads on"
    if row.sure_from == 0:
        where = "from the data on"
    elif math.isinf(row.sure_from):
        where = "only at the end of what was measured"
    if count == starts:
        return f"{percent(row.confidence, digits=2, most_digits=5)} sure of {whom} {where}"
    return f"from {count} of {starts} starting points sure of {whom}, {where}"


def _mark(proven: bool) -> str:
    return " (proven)" if proven else " (measured)"
