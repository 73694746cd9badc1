"""The first screen of a page: a strip of inputs in three colours, which not to trust and why, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nescio._common.formatting import number
from nescio.report.content import Cell, Picture, Row, Scale, Table, ascending, shortened, word_cell
from nescio.report.findings_types import Command, FirstScreen
from nescio.report.findings_types import Tile as TileRecord
from nescio.report.overlays import colour_bar, image, on_scale

TITLES = {
    "foreign": ("Do not trust these", "They are unlike the reference. The model answers all the same."),
    "unsure": ("The model is unsure of these", "They look like the reference, but the answer may be wrong."),
}
MEANINGS = {
    "foreign": "unlike the reference",
    "unsure": "like the reference, but the answer is in doubt",
    "fine": "like the reference, and the answer is not in doubt",
}
PIXELS = 32
"""The longest side up to which a picture is enlarged without smoothing."""


@dataclass(frozen=True)
class Tile:
    """One input of the strip: its state (or "ranked"), a word or rank, what the model answers and how sure it is.

    truth: The right answer, where the model's is known to be wrong; picture or text: what the input looks like.
    """

    name: str
    state: str
    mark: str
    answer: str
    sure: str
    truth: str | None
    picture: Picture | None
    text: str


@dataclass(frozen=True)
class Parts:
    """Which part of a picture is foreign: a map over it, and its colours from `low` to `high`."""

    picture: Picture
    scale: Scale


@dataclass(frozen=True)
class VerdictCard:
    """One input that is not to be trusted: why, and what the model answers; `truth` where that is known to be wrong."""

    name: str
    copies: int
    text: str | None
    picture: Picture | None
    words: str
    rarity: str
    answer: str
    probability: float
    truth: str | None
    parts: Parts | None


@dataclass(frozen=True)
class Group:
    """The inputs of one state: a card for some of them, a table of the others."""

    state: str
    title: str
    about: str
    cards: Sequence[VerdictCard]
    others: Table


@dataclass(frozen=True)
class Answer:
    """The first screen.

    Attributes:
        judged: Whether a guard judged the inputs; without one they are only ranked.
        headline: The answer in a sentence.
        lines: What the answer rests on, in sentences.
        legend: For each state how many inputs are in it, and what it means.
        tiles: The strip.
        left_out: What the strip does not show, in words; empty where it shows all.
        groups: Which inputs not to trust, and why.
        advice: What to do, in sentences.
        command: What a command is good for, and the command itself.
    """

    judged: bool
    headline: str
    lines: Sequence[str]
    legend: Sequence[tuple[str, int, str]]
    tiles: Sequence[Tile]
    left_out: str
    groups: Sequence[Group]
    advice: Sequence[str]
    command: Command | None

    @property
    def has_pictures(self) -> bool:
        """Whether every input of the strip is a picture."""
        return all(tile.picture is not None for tile in self.tiles)


def answer_of(front: FirstScreen) -> Answer:
    """Return the first screen of a page.

    Args:
        front: What the guard said, or the order of the inputs where there is none, as `nescio report` gathers it.

    Returns:
        The content of the screen.
    """
    judged = front["judged"]
    return Answer(
        judged=judged,
        headline=front["headline"],
        lines=front["lines"],
        legend=[(state, count, MEANINGS[state]) for state, count in front["counts"].items()] if judged else [],
        tiles=[_tile(one) for one in front["strip"]],
        left_out=_left_out(front),
        groups=[_group(front, state) for state in TITLES if judged and front["cards"][state]],
        advice=front["do"],
        command=front["command"],
    )


def _left_out(front: FirstScreen) -> str:
    left = {state: count for state, count in front["left"].items() if count}
    return ", ".join(f"{count:,} {state}" if front["judged"] else f"{count:,}" for state, count in left.items())


def _tile(one: TileRecord) -> Tile:
    mark = one["state"] or f"{one['rank']}."
    alt = f"{one['name']}: {one['state'] or 'rank ' + str(one['rank'])}, taken for {one['class']}"
    return Tile(
        name=one["name"],
        state=one["state"] or "ranked",
        mark=mark if one["copies"] == 1 else f"{mark} ×{one['copies']:,}",
        answer=_one_line(one["class"], 40),
        sure=_whole_percent(one["probability"]),
        truth=None if one.get("truth") is None else _one_line(str(one["truth"]), 40),
        picture=_picture(one, alt),
        text=_one_line(one.get("text") or one["name"], 160),
    )


def _picture(one: TileRecord, alt: str) -> Picture | None:
    if "picture" not in one:
        return None
    return Picture(image(one["picture"]), alt, pixels=max(one["picture"].shape[:2]) <= PIXELS)


def _group(front: FirstScreen, state: str) -> Group:
    rows = [
        Row(
            one["name"],
            [word_cell(one["class"]), Cell(f"{one['p_value']:.1g}", one["p_value"]), word_cell(one["words"])],
        )
        for one in front["listed"][state]
    ]
    others = Table(ascending("name", "answer", "p", "why"), rows, f"More {state} ones", long=True)
    return Group(state, *TITLES[state], [_card(one) for one in front["cards"][state]], others)


def _card(one: TileRecord) -> VerdictCard:
    return VerdictCard(
        name=one["name"],
        copies=one["copies"],
        text=None if one.get("text") is None else _one_line(one["text"], 400),
        picture=_picture(one, one["name"]),
        words=one["words"],
        rarity=one.get("rarity", ""),
        answer=one["class"],
        probability=one["probability"],
        truth=one.get("truth"),
        parts=_parts(one),
    )


def _parts(one: TileRecord) -> Parts | None:
    if "foreignness" not in one or "picture" not in one:
        return None
    map_ = one["foreignness"]
    high = max(float(map_.max()), 1.0)
    alt = f"How foreign each part of {one['name']} is, −log₁₀ p from 0 to {number(high)}"
    picture = Picture(on_scale(map_, one["picture"], 0.0, high), alt)
    return Parts(picture, Scale(Picture(colour_bar(), "Colours"), "0", number(high)))


def _whole_percent(probability: float) -> str:
    """A probability in whole percent, without calling certain or impossible what is neither."""
    if probability < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < probability < 1 else f"{100 * probability:.0f} %"


def _one_line(text: str, longest: int) -> str:
    return shortened(" ".join(text.split()), longest)
