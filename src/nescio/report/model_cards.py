"""Single inputs on the page of a model: the input, what the model takes it for, and why it is doubtful (maps, bars)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nescio._common.formatting import number, percentage
from nescio.report.content import Cell, Picture, Row, Scale, Table, ascending, descending, shortened
from nescio.report.findings_types import Example
from nescio.report.overlays import SMALL, colour_bar, image, on_scale, overlays, where

BARS = 8
"""Features or tokens that are shown; the others are added up."""
LONGEST = 400
"""Characters of a text that are shown."""


@dataclass(frozen=True)
class MapPicture:
    """A map of one kind of doubt over the input, and how much doubt that is, in nats.

    Attributes:
        kind: What the map is of.
        picture: The map over the input.
        doubt: How much there is, in words.
        scale: The colours with the numbers at their ends; None where maps share a scale.
    """

    kind: str
    picture: Picture
    doubt: str
    scale: Scale | None = None


def scale_of(low: float, high: float) -> Scale:
    """Return the scale of a map of numbers at positions."""
    return Scale(Picture(colour_bar(), f"Colours from {number(low)} to {number(high)}"), number(low), number(high))


@dataclass(frozen=True)
class InputCard:
    """One input and its doubt.

    Attributes:
        name: What the input is called.
        text: The input, where it is a text.
        picture: The input, where it is a picture; `small` says that its pixels are to be seen.
        maps: Where its doubt comes from, over the picture.
        darkest: What the darkest colour of the maps stands for; empty without maps.
        note: What else is to be known about the maps or bars.
        answer: The class that the model answers, with its `probability`; `others` are the next likely classes.
        truth: The right class, where the answer is wrong.
        score: Its leading score, which is higher than that of `below` inputs `among` all.
        kinds: How much of each kind of doubt there is, in words.
        bars: The features or tokens that the doubt comes from, where the input is no picture.
    """

    name: str
    text: str | None
    picture: Picture | None
    small: bool
    maps: Sequence[MapPicture]
    darkest: str
    note: str
    answer: str
    probability: float
    others: Sequence[tuple[str, float]]
    truth: str | None
    score: str
    below: int
    among: int
    kinds: str
    bars: Table | None


def input_card(one: Example, leading: str, ends: Mapping[str, tuple[float, float]] | None = None) -> InputCard:
    """Return the card of an input.

    Args:
        one: An entry of the examples of a report.
        leading: The score that the report is ordered by.
        ends: The ends of the scale of each kind of map, of a model that answers at every position.

    Returns:
        The content of the card.
    """
    why = one["why"]
    kinds = f"total {number(one['total'])}"
    if "epistemic" in one:
        kinds += f" = aleatoric {number(one['aleatoric'])} + epistemic {number(one['epistemic'])}"
    maps, darkest = list[MapPicture](), ""
    if "maps" in one and "picture" in one:
        maps, darkest = (_position_maps(one, ends or {}), "") if why["form"] == "positions" else _maps(one)
    alt = f"{one['name']}, taken for {one['class']} with a probability of {percentage(one['probability'])} percent"
    return InputCard(
        name=one["name"],
        text=None if one["text"] is None else shortened(one["text"], LONGEST),
        picture=Picture(image(one["picture"]), alt) if "picture" in one else None,
        small="picture" in one and max(one["picture"].shape[:2]) <= SMALL,
        maps=maps,
        darkest=darkest,
        note=why["note"] or "",
        answer=one["class"],
        probability=one["probability"],
        others=[(other["class"], other["probability"]) for other in one["likeliest"][1:]],
        truth=one["label_class"] if one["label"] is not None and one["label"] != one["predicted"] else None,
        score=number(one["scores"][leading]),
        below=one["below"],
        among=one["among"],
        kinds=kinds,
        bars=_bars(one) if why["form"] == "bars" else None,
    )


def _maps(one: Example) -> tuple[list[MapPicture], str]:
    drawn, darkest = overlays(one["maps"], one["picture"])
    shown = []
    for kind, uri in drawn.items():
        alt = f"Where the {kind} doubt of {one['name']} comes from: {where(one['maps'][kind])}"
        shown.append(MapPicture(kind, Picture(uri, alt), number(one["why"]["of"][kind])))
    return shown, darkest


def _position_maps(one: Example, ends: Mapping[str, tuple[float, float]]) -> list[MapPicture]:
    """Maps of numbers at positions, each kind on a scale of its own that all inputs share."""
    shown = []
    for kind, map_ in one["maps"].items():
        low, high = ends[kind]
        alt = f"{kind} at every position of {one['name']}, from {number(low)} to {number(high)}"
        picture = Picture(on_scale(map_, one["picture"], low, high), alt)
        shown.append(MapPicture(kind, picture, f"mean {number(one['why']['of'][kind])}", scale_of(low, high)))
    return shown


def _bars(one: Example) -> Table:
    """The features or tokens with most of the doubt, the others together."""
    why = one["why"]
    parts = {kind: np.asarray(values) for kind, values in why["parts"].items()}
    order = np.argsort(-np.abs(next(iter(parts.values()))), kind="stable")
    first, rest = (order, order[:0]) if len(order) <= BARS + 1 else (order[:BARS], order[BARS:])
    top = max(float(np.abs(values[first]).max()) for values in parts.values()) or 1.0
    rows = [Row(why["labels"][at], [_bar(values[at], top) for values in parts.values()]) for at in first.tolist()]
    if len(rest):
        sums = [_bar(values[rest].sum(), top) for values in parts.values()]
        rows.append(Row(f"{len(rest)} others together", sums))
    columns = [*ascending("why"), *descending(*parts)]
    return Table(columns, rows, f"What the doubt of {one['name']} comes from")


def _bar(value: float, top: float) -> Cell:
    digits = max(0, 2 - math.floor(math.log10(top)))  # three that mean something for the largest
    return Cell(f"{value:.{digits}f}".replace("-", "−"), float(value), abs(float(value)) / top)
