"""What is on the cards of the page, as plain data that `templates/cards.html.j2` lays out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nescio.app.opinion import Reading
from nescio.report.content import Picture


@dataclass(frozen=True)
class Bar:
    """A name, a bar of a width in percent, and a number in words; `odd` marks what stands out."""

    name: str
    width: str
    number: str
    odd: bool = False


@dataclass(frozen=True)
class Banner:
    """The verdict on an input, in words."""

    sign: str
    title: str
    words: str
    rarity: str
    p_value: str
    level: str


@dataclass(frozen=True)
class VerdictCard:
    """The first card: the verdict, the answer and the reasons; without a guard there is no `banner`.

    Attributes:
        things: What inputs are called.
        wrong: How often such answers are wrong, with the ends of an interval.
        listed: The answers of a policy that gives a set of them.
    """

    state: str
    things: str
    banner: Banner | None
    picture: Picture | None
    answer: str
    answers: Sequence[Bar]
    classes: int
    wrong: Sequence[str]
    reasons: Sequence[Bar]
    listed: str


@dataclass(frozen=True)
class Histogram:
    """Known values as bars (x, height), where the flagged end begins, where this input is, and ticks (x, value)."""

    bars: Sequence[tuple[int, float]]
    limit: float
    here: float
    ticks: Sequence[tuple[float, str]]


@dataclass(frozen=True)
class Measured:
    """A reading with its numbers in words: `place` is its percentage of known inputs that are lower."""

    reading: Reading
    value: str
    head: str = ""
    most: str = ""
    width: str | None = None
    place: int = 0
    histogram: Histogram | None = None


@dataclass(frozen=True)
class MapPicture:
    """One map over the input, and the doubt that it adds up to."""

    head: str
    doubt: str
    picture: Picture


@dataclass(frozen=True)
class MapList:
    """Tokens or features (name, share of the largest, value), and the doubt that they add up to."""

    head: str
    doubt: str
    marks: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class MapsCard:
    """Where the doubt comes from: pictures with their scale of colours, or lists, or a sentence in their place.

    Attributes:
        title: What is above all.
        says: What the maps say, in a sentence.
        foreign: Which part of a picture is foreign, with the end of its scale; None where nobody judged parts.
    """

    says: str = ""
    sentence: str = ""
    waiting: bool = False
    pictures: Sequence[MapPicture] = ()
    lists: Sequence[MapList] = ()
    low: str = ""
    high: str = ""
    beyond: bool = False
    gradient: str = ""
    title: str = "Where the doubt comes from"
    foreign: MapPicture | None = None


@dataclass(frozen=True)
class ExampleButton:
    """What is shown of an example: its short name in parts between which a line may end, or a text; a picture.

    Attributes:
        parts: The parts.
        name: The whole name.
        uri: The picture; None of a text.
    """

    parts: Sequence[str]
    name: str = ""
    uri: str | None = None
