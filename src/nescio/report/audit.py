"""The page of an audit: along which directions a model is certain far away from everything it has seen.

It is given plain data: the rows as mappings with the fields of `nescio.limits.AuditRow`, and sentences that are made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nescio.plots.limits import limits
from nescio.report.embed import svg
from nescio.report.html import document, escape, facts
from nescio.report.text import number, percent
from nescio.types import InputError

Row = Mapping[str, Any]
ON_THE_WAY = "What the scores do on the way"
COLUMNS: Mapping[str, str] = {
    "confidence": "The probability of the likeliest class that the model tends to, a mean over the starting points.",
    "sure of": "The class of which it is then certain (more than 99 %); “several” where that depends on the start.",
    "sure from": "How many spreads away from the data it is certain for good, from every start that ends so.",
    "a score": "What it is at the data, and what it tends to. An arrow up: it is still rising where measuring ended.",
}


def audit_page(
    rows: Sequence[Row],
    distances: Sequence[float],
    sentences: Mapping[str, str],
    summary: Sequence[str],
    settings: Mapping[str, str],
) -> str:
    """An audit as one self-contained HTML page.

    rows: one for each direction and score; sentences: one for each direction, in the order in which they are shown;
    summary: what holds over all of them; settings: what is needed to repeat it.
    """
    ways: dict[str, dict[str, Row]] = {name: {} for name in sentences}
    for row in rows:
        if row["direction"] not in ways:
            raise InputError(f"sentences: expected one for each direction, but there is none for {row['direction']!r}")
        ways[row["direction"]][row["score"]] = row
    scores = list(dict.fromkeys(row["score"] for row in rows))
    if not scores or any(list(own) != scores for own in ways.values()):
        raise InputError("rows: expected the same scores, at least one, along every direction")
    parts = (
        _opening(summary),
        f"<h2>{ON_THE_WAY}</h2>\n{figures(ways, scores, distances)}",
        f"<h2>All directions side by side</h2>\n{listing(ways, scores)}",
        _words(sentences),
        f"<h2>To repeat it</h2>\n{facts(settings)}\n</main>",
    )
    return document("nescio: where is it blindly certain?", "\n".join(parts))


def _opening(summary: Sequence[str]) -> str:
    first, *rest = summary
    items = "".join(f"<li>{escape(line)}</li>" for line in rest)
    return f"""<header>
<h1>Where is it blindly certain?</h1>
<p class="motto">An audit of a model far away from everything it has seen.</p>
</header>
<main>
<p><b>{escape(first)}</b></p>
<ul>{items}</ul>
<p class="quiet">A <b>spread</b> is the standard deviation of a feature. For directions that are not those of one
feature it is the root mean square distance of the data from their mean, with every feature in its own deviations.
<b>Proven</b>: it follows from the linear pieces of the network, for every distance. <b>Measured</b>: it was seen at the
distances that were tried, and nobody knows what happens between and behind them.</p>"""


def figures(ways: Mapping[str, Mapping[str, Row]], scores: Sequence[str], distances: Sequence[float]) -> str:
    """A figure for each score, from the rows by direction and score."""
    certain = [way for way, own in ways.items() if next(iter(own.values()))["certain"] >= 0.5]
    shown = []
    for name in scores:
        how = _how(ways, name)
        lower = sum(own[name]["limit"] < own[name]["start"] for own in ways.values())
        rising = sum(own[name]["rises"] for own in ways.values())
        alt = (
            f"{name} against the distance from the data, 0 to {distances[-1]:g} spreads, {how}, a line for each of "
            f"{len(ways)} directions, of which {lower} end lower than they began and {rising} still rise"
        )
        lines = {f"{name} ({how})": {way: own[name]["values"] for way, own in ways.items()}}
        figure = limits(distances, lines, certain, width=10.2)
        shown.append(f"<figure>{svg(figure, alt, f'along-{name}')}</figure>")
    return f"""<p class="quiet">One line a direction, each a mean over the starting points, at 0, 1, 2, 4 … spreads.
Blue and solid: the model is certain in the end ({len(certain)} of {len(ways)}). Orange and dashed: it is not.</p>
<div class="panels" style="grid-template-columns: repeat(auto-fill, minmax(min(17rem, 100%), 1fr))">
{"".join(shown)}</div>"""


def listing(ways: Mapping[str, Mapping[str, Row]], scores: Sequence[str], heading: str = "h3") -> str:
    """All directions as a table, and below a heading of this kind what its columns mean."""
    heads = [("direction", "ascending"), ("confidence", "descending"), ("sure of", "ascending")]
    heads += [("sure from", "ascending"), *((f"{name}, {_how(ways, name)}", "ascending") for name in scores)]
    cells = "".join(
        f'<th scope="col" data-first="{first}"><button type="button">{escape(name)}</button></th>'
        for name, first in heads
    )
    rows = "\n".join(_row(way, own, scores) for way, own in ways.items())
    notes = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in COLUMNS.items())
    return f"""<p class="quiet">Press a heading to sort. The most certain come first.</p>
<div class="scroll"><table class="sortable"><thead><tr>{cells}</tr></thead>
<tbody>
{rows}
</tbody></table></div>
<{heading}>What the columns mean</{heading}>
<dl>{notes}</dl>"""


def _row(way: str, own: Mapping[str, Row], scores: Sequence[str]) -> str:
    first = own[scores[0]]
    some = first["certain"] > 0
    whom = "–" if not some else "several" if first["answer"] < 0 else f"class {first['answer']}"
    since = "–" if not some else "the end" if math.isinf(first["sure_from"]) else number(first["sure_from"])
    share = first["confidence"]
    shown = percent(math.floor(1000 * share + 1e-6) / 1000)  # never rounded up to certainty
    cells = [
        f'<td data-value="{share!r}" class="bar" style="--share: {shown}%">{shown} %</td>',
        f'<td data-value="{_sortable(first["answer"] if some else math.inf)}">{whom}</td>',
        f'<td data-value="{_sortable(first["sure_from"])}">{since}</td>',
    ]
    for name in scores:
        row = own[name]
        small = abs(row["limit"]) < 1e-6 * abs(row["start"])
        arrow = " ↑" if row["rises"] else ""
        cells.append(
            f'<td data-value="{row["limit"]!r}">{number(row["start"])} → '
            f"{'0' if small else number(row['limit'])}{arrow}</td>"
        )
    return f'<tr><th scope="row">{escape(way)}</th>{"".join(cells)}</tr>'


def _words(sentences: Mapping[str, str]) -> str:
    items = "".join(f"<dt>{escape(way)}</dt><dd>{escape(text)}</dd>" for way, text in sentences.items())
    return f"<h2>Direction by direction</h2>\n<dl>{items}</dl>"


def _sortable(value: float) -> str:
    return "Infinity" if math.isinf(value) else repr(value)  # as the page's script reads it


def _how(ways: Mapping[str, Mapping[str, Row]], score: str) -> str:
    return "proven" if all(own[score]["proven"] for own in ways.values()) else "measured"
