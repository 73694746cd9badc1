"""The page of an audit: along which directions a model is certain far away from everything it has seen.

It is given plain data: the rows as mappings with the fields of `nescio.limits.AuditRow`, and finished sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nescio._common.formatting import class_name, number, percentage
from nescio._common.score_names import glossed
from nescio.plots.limits import limits
from nescio.report.audit_advice import Advice
from nescio.report.content import Cell, Figure, Row, Table, ascending, descending
from nescio.report.figure_svg import svg
from nescio.report.render import render
from nescio.types import InputError

AuditRow = Mapping[str, Any]
Directions = Mapping[str, Mapping[str, AuditRow]]
"""Rows by direction and score; every direction has the same scores."""
COLUMNS: Mapping[str, str] = {
    "confidence": "The probability of the likeliest class that the model tends to, a mean over the starting points.",
    "sure of": "The class of which it is then certain (more than 99 %); “several” where that depends on the start.",
    "sure from": "How many spreads away from the data it is certain for good, from every start that ends so.",
    "a score": "What it is at the data, and what it tends to. An arrow up: it is still rising where measuring ended.",
}


@dataclass(frozen=True)
class AuditContent:
    """What an audit shows: a figure for each score, a row for each direction, and what the columns mean."""

    directions: int
    certain: int
    figures: Sequence[Figure]
    table: Table
    columns: Mapping[str, str]


@dataclass(frozen=True)
class AuditPage:
    """The page of an audit: the summary, what to do, what is shown, a sentence a direction, and how to repeat it."""

    summary: Sequence[str]
    audit: AuditContent
    sentences: Mapping[str, str]
    settings: Mapping[str, str]
    advice: Advice | None


def audit_page(
    rows: Sequence[AuditRow],
    distances: Sequence[float],
    sentences: Mapping[str, str],
    summary: Sequence[str],
    settings: Mapping[str, str],
    advice: Advice | None = None,
    classes: Sequence[str] = (),
) -> str:
    """Return an audit as one self-contained HTML page.

    Args:
        rows: One for each direction and score.
        distances: How many spreads away from the data the scores were measured.
        sentences: One for each direction, in the order in which they are shown.
        summary: What holds over all directions, the most important first.
        settings: What is needed to repeat the audit.
        advice: The nearest directions, and what to do about them; None leaves both out.
        classes: What the classes are called; those that are not there go by their number.

    Returns:
        The HTML, which opens offline.

    Raises:
        InputError: Where a direction has no sentence, or directions have different scores.
    """
    directions: dict[str, dict[str, AuditRow]] = {name: {} for name in sentences}
    for row in rows:
        if row["direction"] not in directions:
            raise InputError(f"sentences: expected one for each direction, but there is none for {row['direction']!r}")
        directions[row["direction"]][row["score"]] = row
    scores = list(dict.fromkeys(row["score"] for row in rows))
    if not scores or any(list(own) != scores for own in directions.values()):
        raise InputError("rows: expected the same scores, at least one, along every direction")
    content = AuditPage(summary, audit_content(directions, distances, classes), sentences, settings, advice)
    return render("audit.html.j2", page=content)


def audit_content(directions: Directions, distances: Sequence[float], classes: Sequence[str] = ()) -> AuditContent:
    """Return the figures and the table of an audit.

    Args:
        directions: The rows by direction and score.
        distances: How many spreads away from the data the scores were measured.
        classes: What the classes are called.

    Returns:
        The content, for the page of an audit or a section of another page.
    """
    scores = list(next(iter(directions.values())))
    certain = [name for name, own in directions.items() if own[scores[0]]["certain"] >= 0.5]
    evidence = {score: _evidence(directions, score) for score in scores}
    columns = [*ascending("direction"), *descending("confidence"), *ascending("sure of", "sure from")]
    columns += ascending(*(f"{glossed(score)}, {how}" for score, how in evidence.items()))
    return AuditContent(
        directions=len(directions),
        certain=len(certain),
        figures=[_figure(directions, score, how, certain, distances) for score, how in evidence.items()],
        table=Table(columns, [_row(name, own, classes) for name, own in directions.items()]),
        columns=COLUMNS,
    )


def _evidence(directions: Directions, score: str) -> str:
    return "proven" if all(own[score]["proven"] for own in directions.values()) else "measured"


def _figure(
    directions: Directions, score: str, evidence: str, certain: Sequence[str], distances: Sequence[float]
) -> Figure:
    rows = {name: own[score] for name, own in directions.items()}
    lower = sum(row["limit"] < row["start"] for row in rows.values())
    rising = sum(row["rises"] for row in rows.values())
    alt = (
        f"{glossed(score)} against the distance from the data, 0 to {distances[-1]:g} spreads, {evidence}, "
        f"a line for each of {len(rows)} directions, of which {lower} end lower than they began and {rising} still rise"
    )
    lines = {glossed(score, evidence): {name: row["values"] for name, row in rows.items()}}
    return Figure(svg(limits(distances, lines, certain, width=10.2), alt, f"along-{score}"))


def _row(direction: str, by_score: Mapping[str, AuditRow], classes: Sequence[str]) -> Row:
    first = next(iter(by_score.values()))
    ever, answer, start = first["certain"] > 0, first["answer"], first["sure_from"]
    sure_of = "–" if not ever else "several" if answer < 0 else class_name(answer, classes)
    sure_from = "–" if not ever else "the end" if math.isinf(start) else number(start)
    floor = math.floor(1000 * first["confidence"] + 1e-6) / 1000  # never rounded up to certainty
    cells = [
        Cell(f"{percentage(floor)} %", first["confidence"], floor),
        Cell(sure_of, answer if ever else None),
        Cell(sure_from, start),
    ]
    for row in by_score.values():
        limit = "0" if abs(row["limit"]) < 1e-6 * abs(row["start"]) else number(row["limit"])
        cells.append(Cell(f"{number(row['start'])} → {limit}{' ↑' if row['rises'] else ''}", row["limit"]))
    return Row(direction, cells)
