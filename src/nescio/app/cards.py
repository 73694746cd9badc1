"""From plain data to the HTML of the page's right side: first the verdict, then the answer, then the reasons.

The functions work out what is shown; `templates/cards.html.j2` lays it out, and escapes every text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nescio._common.formatting import chance, number, percent
from nescio.app.card_content import (
    Banner,
    Bar,
    ExampleButton,
    MapList,
    MapPicture,
    MapsCard,
    Measured,
    VerdictCard,
)
from nescio.app.doubt_scale import ALARM, Scale
from nescio.app.examples import Example
from nescio.app.histograms import histogram
from nescio.app.opinion import Answer, Maps, Opinion, Ruling
from nescio.app.overlay import reach, resized, seen, tiles, uri
from nescio.guard import Verdict
from nescio.report.content import Picture, shortened
from nescio.report.render import render_macro

IN_DOUBT = "Where it is in doubt"
"""Above the maps of a model that answers at every position."""
TOP = 5
"""Answers that are shown."""
LISTED = 10
"""Answers of a set that are listed."""
HEADS = {"total": "Total", "aleatoric": "Aleatoric", "epistemic": "Epistemic"}
STATES = {
    "foreign": ("✕", "Foreign: do not trust this answer"),
    "unsure": ("?", "Known, but its answer is in doubt"),
    "fine": ("✓", "Fine: nothing speaks against this input"),
}
FAR = 6.0
"""The z at which the bar of a witness is full."""
ODD = 0.975
"""The share of known inputs beyond which a witness finds one odd: one in forty."""
LONG = 512
"""Pixels of a map's longer side above which the browser may smooth it."""


def verdict_card(opinion: Opinion, level: float | None, ruling: Ruling | None, things: str = "pictures") -> str:
    """Return the HTML of the verdict, the answer, the reasons, and what a policy says.

    Args:
        opinion: What the model makes of an input.
        level: The p-value up to which an input is foreign; None without a guard.
        ruling: What a policy says of the answer; None without one.
        things: What inputs are called.

    Returns:
        The card.
    """
    verdict, picture = opinion.verdict, opinion.picture
    state, banner, reasons = "none", None, list[Bar]()
    if verdict is not None and level is not None:
        state, banner, reasons = verdict.states(level)[0], _banner(verdict, level, things), _reasons(verdict)
    card = VerdictCard(
        state=state,
        things=things,
        banner=banner,
        picture=None if picture is None else _picture(seen(picture), "the input as the model sees it", picture.shape),
        answer=opinion.answers[0].name,
        answers=[Bar(one.name, _width(one.probability), chance(one.probability)) for one in opinion.answers[:TOP]],
        classes=len(opinion.answers),
        wrong=_wrong(verdict) if state != "foreign" else (),  # of a foreign input nobody knows
        reasons=reasons,
        listed="" if ruling is None or len(ruling.answers) < 2 else _listed(ruling.answers),
    )
    return _html("verdict", card, ruling)


def rarity(p: float, ranks: int, things: str) -> str:
    """Return a p-value in a sentence.

    Args:
        p: The p-value.
        ranks: The known inputs that it was compared with.
        things: What inputs are called.

    Returns:
        The sentence.

    Examples:
        >>> rarity(0.01, 200, "texts")
        'About 1 in 100 known texts looks this unusual.'
    """
    if p < 1.5 / (ranks + 1):
        return f"None of the {ranks} known {things} that it was compared with looks this unusual."
    if p < 0.2:
        return f"About 1 in {round(1 / p)} known {things} looks this unusual."
    return f"About {round(100 * p)} of 100 known {things} look at least this unusual."


def _banner(verdict: Verdict, level: float, things: str) -> Banner:
    p = float(verdict.p_value[0])
    signs = STATES[verdict.states(level)[0]]
    return Banner(*signs, verdict.words(level)[0], rarity(p, verdict.ranks, things), f"{p:.2g}", f"{level:g}")


def _wrong(verdict: Verdict | None) -> list[str]:
    """How often such answers are wrong, and between which ends."""
    if verdict is None or verdict.wrong is None:
        return []
    return [percent(float(one[0]), 2) for one in vars(verdict.wrong).values()]


def _reasons(verdict: Verdict) -> list[Bar]:
    """The witnesses as bars."""
    bars = []
    for name, own in verdict.witnesses.items():
        beyond = int(verdict.beyond[name][0])
        label = verdict.reasons.get(name, name).removesuffix(" is").removesuffix(" are")
        width = _width(min(max(float(own[0]) / FAR, 0.0), 1.0))
        ranks = verdict.ranks_of(name)
        bars.append(Bar(label, width, f"further out than {beyond} of {ranks}", odd=beyond >= ODD * ranks))
    return bars


def _listed(answers: Sequence[Answer]) -> str:
    listed = ", ".join(f"“{one.name}” ({chance(one.probability)})" for one in answers[:LISTED])
    return listed + (f" and {len(answers) - LISTED} more" if len(answers) > LISTED else "")


def doubt_card(opinion: Opinion, scale: Scale | None) -> str:
    """Return the HTML of the kinds of doubt, against the scale.

    Args:
        opinion: What the model makes of an input.
        scale: The values of known inputs; None where there are none.

    Returns:
        The card.
    """
    title = "Three kinds of doubt" if opinion.samples > 1 else "How doubtful the answer is"
    drawn = [
        Measured(
            one, number(one.value), HEADS[one.name], f"{opinion.most:.3g}",
            histogram=None if scale is None else histogram(scale, one),
        )
        for one in opinion.doubts
    ]  # fmt: skip
    return _html("doubts", title, opinion, drawn, scale, percent(ALARM))


def methods_card(opinion: Opinion) -> str:
    """Return the HTML of all methods side by side.

    Args:
        opinion: What the model makes of an input.

    Returns:
        The card.
    """
    rows = []
    for one in opinion.methods:
        place = None if one.place is None else math.floor(100 * one.place + 1e-9)  # never more than is so
        width = None if one.place is None else _width(one.place)
        rows.append(Measured(one, number(one.value), width=width, place=place or 0))
    flags = sum(one.flagged for one in opinion.methods)
    many = f"{flags} of {len(opinion.methods)} methods" if flags else "None of the methods"
    few = f"{'find' if flags != 1 else 'finds'} it more doubtful than all but {percent(ALARM)} of what is known."
    scaled = any(one.place is not None for one in opinion.methods)
    return _html("methods", rows, f"{many} {few}" if scaled else "")


def maps_card(maps: Maps | None, opinion: Opinion) -> str:
    """Return the HTML of where the doubt comes from.

    Args:
        maps: The maps; None while they are being made.
        opinion: What the model makes of the input.

    Returns:
        The card.
    """
    if maps is None:
        card = MapsCard(sentence="The maps are being made …", waiting=True)
    elif maps.missing:
        card = MapsCard(sentence=maps.missing)
    elif maps.names is not None:
        lists = _lists(maps, maps.names)
        if maps.everywhere:
            card = MapsCard("The darker, the more doubt is there; the number is the mean.", lists=lists, title=IN_DOUBT)
        else:
            card = MapsCard(f"The darker, the more doubt comes from it. By {maps.about}.", lists=lists)
    elif next(iter(maps.parts.values())).ndim == 2:
        card = _pictures(maps, opinion)
    else:
        card = MapsCard(sentence="The maps of this input are neither a picture nor a list, and cannot be shown.")
    return _html("maps", card)


def _pictures(maps: Maps, opinion: Opinion) -> MapsCard:
    low, high, gradient = reach(maps.parts)
    shape, picture = next(iter(maps.parts.values())).shape, opinion.picture
    if maps.everywhere and picture is not None:
        picture = resized(picture, shape)
    pictures = [
        MapPicture(
            HEADS[kind],
            number(maps.uncertainty[kind]),
            _picture(source, f"map of the {kind} doubt over the input", shape),
        )
        for kind, source in tiles(maps.parts, picture).items()
    ]
    beyond = any(float(np.abs(part).max()) > high for part in maps.parts.values())
    card = MapsCard(
        f"Each map adds up to its doubt. By {maps.about}.",
        pictures=pictures, low=number(low), high=number(high), beyond=beyond, gradient=gradient,
    )  # fmt: skip
    if not maps.everywhere:
        return card
    card = replace(card, title=IN_DOUBT, says="The doubt at every pixel; the number is the mean.")
    if maps.foreign is None:
        return card
    tile = tiles({"foreign": maps.foreign}, picture)["foreign"]
    drawn = _picture(tile, "how foreign each part of the input is", shape)
    return replace(card, foreign=MapPicture("Foreign", number(reach({"foreign": maps.foreign})[1]), drawn))


def _lists(maps: Maps, names: Sequence[str]) -> list[MapList]:
    """Tokens or features, marked by their share of the largest."""
    top = max(float(np.abs(part).max()) for part in maps.parts.values()) or 1.0
    return [
        MapList(
            HEADS[kind],
            number(maps.uncertainty[kind]),
            [
                (name, f"{min(1.0, abs(float(value)) / top):.3f}", number(float(value)))
                for name, value in zip(names, part, strict=True)
            ],
        )
        for kind, part in maps.parts.items()
    ]


def examples_card(examples: Sequence[Example]) -> str:
    """Return the HTML of examples as buttons, the first of them chosen.

    Args:
        examples: The examples.

    Returns:
        The card.
    """
    buttons = [
        ExampleButton(_parts(short_name(one.name)), one.name, uri(one.picture / 255))
        if one.picture is not None
        else ExampleButton([shortened(one.text, 90)], one.name)
        for one in examples
    ]
    return _html("examples", buttons)


def short_name(name: str, longest: int = 20) -> str:
    """Return a file's name in a few letters: without folders and ending, and cut in the middle where it is long.

    Args:
        name: The name.
        longest: The number of letters from which on it is cut.

    Returns:
        The short name.

    Examples:
        >>> short_name("photos/cat 1.jpg"), short_name("IMG_2024-11-16_at the sea (2).jpeg")
        ('cat 1', 'IMG_2024-…he sea (2)')
    """
    stem = re.sub(r"(?<=.)\.[A-Za-z][A-Za-z0-9]{1,4}$", "", re.split(r"[/\\]", name.rstrip("/\\"))[-1])
    if len(stem) <= longest:
        return stem
    return f"{stem[: (longest - 1) // 2]}…{stem[len(stem) - longest // 2 :]}"


def _parts(name: str) -> list[str]:
    """Where a line may end: behind what joins the words of a file's name."""
    return re.split(r"(?<=[ _.…-])", name)


def message_card(text: str) -> str:
    """Return the HTML of what is wrong with an input.

    Args:
        text: What is wrong.

    Returns:
        The card.
    """
    return _html("message", text)


def welcome_card(about: str, takes: str) -> str:
    """Return the HTML of what is shown before anything was given.

    Args:
        about: What the model is.
        takes: What may be given.

    Returns:
        The card.
    """
    return _html("welcome", about, takes)


def header(about: str, notes: Sequence[str]) -> str:
    """Return the HTML of the top of the page.

    Args:
        about: What the model is.
        notes: What else is to be known about it.

    Returns:
        The header.
    """
    return _html("header", about, notes)


def _html(macro: str, *content: object) -> str:
    return render_macro("cards.html.j2", macro, *content, package="nescio.app")


def _picture(source: str, alt: str, shape: tuple[int, ...]) -> Picture:
    return Picture(source, alt, pixels=max(shape[-2:]) <= LONG)


def _width(share: float) -> str:
    return f"{100 * share:.2f}"
