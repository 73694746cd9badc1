"""Single inputs on the page of a model: the input, what the model takes it for, and why it is doubtful (maps, bars)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nescio.report.html import escape
from nescio.report.overlays import image, overlays, where
from nescio.report.tables import Cell, chance, table, words
from nescio.report.text import number, percent

BARS = 8
"""Features or tokens that are shown; the others are added up."""


def cards(examples: Sequence[Mapping[str, Any]], leading: str) -> str:
    """A card for each."""
    return f'<div class="cards">{"".join(_card(one, leading) for one in examples)}</div>'


def _card(one: Mapping[str, Any], leading: str) -> str:
    answer, sure = one["class"], words(chance(one["probability"]))
    wrong = one["label"] is not None and one["label"] != one["predicted"]
    truth = f' <span class="wrong">It is “{escape(one["label_class"])}”.</span>' if wrong else ""
    others = ", ".join(f"“{escape(c['class'])}” {words(chance(c['probability']))}" for c in one["likeliest"][1:])
    text = "" if one.get("text") is None else f"<blockquote>{escape(_cut(one['text'], 400))}</blockquote>"
    kinds = f"total {number(one['total'])}"
    if "epistemic" in one:
        kinds += f" = aleatoric {number(one['aleatoric'])} + epistemic {number(one['epistemic'])}"
    return f"""<article class="card">
<h4>{escape(one["name"])}</h4>
{text}{_pictures(one)}
<p><b>“{escape(answer)}”</b>, {sure}{f"; then {others}" if others else ""}.{truth}</p>
<p class="quiet small">{escape(leading)} {number(one["scores"][leading])}, higher than {one["below"]:,} of
{one["among"]:,} inputs. In nats: {kinds}.</p>
{_bars(one)}</article>"""


def _pictures(one: Mapping[str, Any]) -> str:
    """The input, and its maps beside it."""
    if "picture" not in one:
        return ""
    picture = one["picture"]
    alt = escape(f"{one['name']}, taken for {one['class']} with a probability of {percent(one['probability'])} percent")
    shown = [f'<figure><img src="{image(picture)}" alt="{alt}"><figcaption>input</figcaption></figure>']
    note = ""
    if "maps" in one:
        drawn, top = overlays(one["maps"], picture)
        for kind, uri in drawn.items():
            value = number(one["why"]["of"][kind])
            alt = escape(f"Where the {kind} doubt of {one['name']} comes from: {where(one['maps'][kind])}")
            shown.append(
                f'<figure><img src="{uri}" alt="{alt}"><figcaption>{kind}<br>{value} nats</figcaption></figure>'
            )
        note = f'<p class="quiet small">Why: the darker, the more doubt comes from there; the darkest is {top}. '
        note += f"{escape(one['why']['note'])}</p>"
    elif one["why"]["note"]:
        note = f'<p class="quiet small">{escape(one["why"]["note"])}</p>'
    small = " pixels" if max(picture.shape[:2]) <= 64 else ""
    return f'<div class="looks{small}">{"".join(shown)}</div>{note}'


def _bars(one: Mapping[str, Any]) -> str:
    """The features or tokens with most of the doubt, the others together."""
    why = one["why"]
    if why["form"] != "bars":
        return "" if "picture" in one or not why["note"] else f'<p class="quiet small">{escape(why["note"])}</p>'
    parts = {kind: np.asarray(values) for kind, values in why["parts"].items()}
    total = parts["total"]
    order = np.argsort(-np.abs(total), kind="stable")
    first, rest = (order, order[:0]) if len(order) <= BARS + 1 else (order[:BARS], order[BARS:])
    top = max(float(np.abs(values[first]).max()) for values in parts.values()) or 1.0
    rows = [(why["labels"][at], [_bar(values[at], top) for values in parts.values()]) for at in first.tolist()]
    if len(rest):
        rows.append((f"{len(rest)} others together", [_bar(values[rest].sum(), top) for values in parts.values()]))
    heads = [("why", "ascending"), *((kind, "descending") for kind in parts)]
    note = f" {escape(why['note'])}" if why["note"] else ""
    listing = table(heads, rows, f"What the doubt of {one['name']} comes from")
    return f'<p class="quiet small">Why: how much of each doubt comes from what, in nats.{note}</p>\n{listing}'


def _bar(value: float, top: float) -> Cell:
    digits = max(0, 2 - math.floor(math.log10(top)))  # three that mean something for the largest
    return Cell(f"{value:.{digits}f}".replace("-", "−"), repr(float(value)), abs(float(value)) / top)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
