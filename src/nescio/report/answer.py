"""The first screen of a page: a strip of all inputs in three colours, which not to trust and why, and what to do.

It is given what `nescio.findings.first_screen` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nescio.report.html import escape
from nescio.report.overlays import image
from nescio.report.tables import Cell, chance, table, words

Front = Mapping[str, Any]
TITLES = {
    "foreign": ("Do not trust these", "They are unlike the reference. The model answers all the same."),
    "unsure": ("The model is unsure of these", "They look like the reference, but the answer may be wrong."),
}
MEANS = {
    "foreign": "unlike the reference",
    "unsure": "like the reference, but the answer is in doubt",
    "fine": "like the reference, and the answer is not in doubt",
}


def opening(front: Front, about: str, more: str = "") -> str:
    """The header: the answer, its strip and its promise; more: a paragraph below the headline."""
    lines = "".join(f"<p>{words(line)}</p>" for line in front["lines"])
    return f"""<header>
<p class="motto">{words(about)}</p>
<h1>{words(front["headline"])}</h1>
{more}</header>
<main>
{_legend(front)}
{strip(front)}
<p class="quiet small">{"Below" if pictures(front) else "Behind"} each: what the model answers.{_left(front)}</p>
{lines}"""


def rest(front: Front) -> str:
    """What follows: cards with reasons, and what to do."""
    parts = [_state(front, state) for state in TITLES if front["judged"] and front["cards"][state]]
    items = "".join(f"<li>{words(line)}</li>" for line in front["do"])
    command = front["command"]
    copy = "" if not command else f"<p>{words(command['about'])}</p>\n<pre>{escape(command['text'])}</pre>"
    title = "What to do" if front["judged"] else "To get an answer"
    return "\n".join([*parts, f'<h2 id="do">{title}</h2>\n<ul>{items}</ul>\n{copy}'])


def strip(front: Front) -> str:
    """Small pictures in the colour of their state; of texts and rows a line each."""
    items = "".join(map(_tile if pictures(front) else _line, front["strip"]))
    return f'<ul class="tiles{"" if pictures(front) else " lines"}">{items}</ul>'


def pictures(front: Front) -> bool:
    """Whether inputs are shown as pictures."""
    return all("picture" in one for one in front["strip"])


def _legend(front: Front) -> str:
    if not front["judged"]:
        return ""
    marks = "".join(
        f'<li class="{state}"><b>{count:,} {state}</b> <span class="quiet">{escape(MEANS[state])}</span></li>'
        for state, count in front["counts"].items()
    )
    return f'<ul class="legend">{marks}</ul>'


def _left(front: Front) -> str:
    left = {state: count for state, count in front["left"].items() if count}
    if not left:
        return ""
    listing = (
        ", ".join(f"{count:,} {state}" for state, count in left.items()) if front["judged"] else f"{left['ranked']:,}"
    )
    return f" Not shown: {escape(listing)}."


def _tile(one: Mapping[str, Any]) -> str:
    alt = escape(f"{one['name']}: {one['state'] or 'rank ' + str(one['rank'])}, taken for {one['class']}")
    small = ' class="pixels"' if max(one["picture"].shape[:2]) <= 32 else ""
    return (
        f'<li class="{one["state"] or "ranked"}" title="{escape(one["name"])}">'
        f'<img src="{image(one["picture"])}" alt="{alt}"{small}><span>{_mark(one)}</span>{_taken(one)}</li>'
    )


def _line(one: Mapping[str, Any]) -> str:
    shown = escape(_cut(one.get("text") or one["name"], 160))
    return f'<li class="{one["state"] or "ranked"}"><span>{_mark(one)}</span> {shown} {_taken(one)}</li>'


def _mark(one: Mapping[str, Any]) -> str:
    mark = one["state"] or f"{one['rank']}."
    return mark if one["copies"] == 1 else f"{mark} ×{one['copies']:,}"


def _taken(one: Mapping[str, Any]) -> str:
    return f"<small>“{escape(_cut(one['class'], 40))}”</small>"


def _state(front: Front, state: str) -> str:
    title, about = TITLES[state]
    cards = "".join(map(_card, front["cards"][state]))
    others = front["listed"][state]
    listing = ""
    if others:
        heads = [("name", "ascending"), ("answer", "ascending"), ("p", "ascending"), ("why", "ascending")]
        rows = [
            (one["name"], [Cell(one["class"], one["class"]), Cell(f"{one['p_value']:.1g}", repr(one["p_value"])),
             Cell(one["words"], one["words"])])
            for one in others
        ]  # fmt: skip
        summary = f"<summary>{len(others):,} more</summary>"
        listing = f"<details>{summary}\n{table(heads, rows, f'More {state} ones', kind='long')}</details>"
    return (
        f'<h2 id="{state}">{title}</h2>\n<p class="quiet">{about}</p>\n<div class="verdicts">{cards}</div>\n{listing}'
    )


def _card(one: Mapping[str, Any]) -> str:
    text = "" if one.get("text") is None else f"<blockquote>{escape(_cut(one['text'], 400))}</blockquote>"
    shown = ""
    if "picture" in one:
        small = ' class="pixels"' if max(one["picture"].shape[:2]) <= 32 else ""
        shown = f'<img src="{image(one["picture"])}" alt="{escape(one["name"])}"{small}>'
    copies = "" if one["copies"] == 1 else f' <span class="quiet">({one["copies"]:,} times)</span>'
    wrong = f' <span class="wrong">It is “{escape(one["truth"])}”.</span>' if one.get("truth") else ""
    return f"""<article class="verdict {one["state"]}">
{shown}<div><h3>{escape(one["name"])}{copies}</h3>
{text}<p>{words(one["words"])}</p>
<p class="quiet small">{words(one.get("rarity", ""))} The model says “{escape(one["class"])}”,
{words(chance(one["probability"]))}.{wrong}</p></div></article>"""


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
