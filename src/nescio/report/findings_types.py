"""What a report says of a model on somebody's data, as `nescio.findings.gather` makes it and `model_page` lays it out.

Every value is what JSON can hold, but for the pictures and maps of single inputs, which are arrays. The keys are those
of the file that ``nescio report --format json`` writes.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

State = Literal["foreign", "unsure", "fine"]
Kind = Literal["pictures", "texts", "rows"]
Array = NDArray[np.float64]
Interval = tuple[float, float]

Tile = TypedDict(
    "Tile",
    {
        "index": int,
        "name": str,
        "class": str,
        "probability": float,
        "truth": str | None,
        "picture": NotRequired[Array],
        "text": NotRequired[str],
        "copies": NotRequired[int],
        "state": NotRequired[State | None],
        "rank": NotRequired[int],
        "p_value": NotRequired[float],
        "words": NotRequired[str],
        "rarity": NotRequired[str],
        "foreignness": NotRequired[Array],
    },
)
"""An input of the first screen: what it looks like, what the model takes it for, and what the guard says of it."""


class Command(TypedDict):
    """A command to copy, and what it is good for."""

    about: str
    text: str


class FirstScreen(TypedDict):
    """Which inputs not to trust, why, and what to do; without a guard an order of the inputs."""

    judged: bool
    kind: Kind
    leading: NotRequired[str]
    level: NotRequired[float]
    reference: NotRequired[int]
    ranks: NotRequired[int]
    counts: NotRequired[dict[State, int]]
    headline: str
    said: list[str]
    lines: list[str]
    strip: list[Tile]
    left: dict[str, int]
    cards: NotRequired[dict[str, list[Tile]]]
    listed: NotRequired[dict[str, list[Tile]]]
    do: list[str]
    command: Command | None


class LayerFacts(TypedDict):
    """A module that has parameters of its own."""

    name: str
    type: str
    of: str
    parameters: int


class ModelFacts(TypedDict):
    """What the model is, layer by layer, and what it does to a row first."""

    about: str
    kind: str
    networks: int
    preprocess: str
    classes: int
    class_names: list[str] | None
    parameters: int
    layers: list[LayerFacts]
    device: str | None
    dtype: str | None
    hash: list[str | None]


class BadRow(TypedDict):
    """A row that could not be used."""

    index: int
    name: str
    reason: str


class SetFacts(TypedDict):
    """What a set of data is, and how much of it was read."""

    about: str
    rows: int
    read: int
    used: int
    most: int
    sampled: bool
    problems: list[BadRow]
    seconds: float


class DataFacts(SetFacts):
    """The same of the data that the report is about, with their labels and copies."""

    labels: str
    labelled: int
    copies: int


class MethodFacts(TypedDict):
    """A score, its settings, and why it was chosen."""

    name: str
    summary: str
    settings: dict[str, str | int | float | None]
    chosen: str


class GuardColumns(TypedDict):
    """What the guard says of each input."""

    p_value: list[float]
    state: list[State]
    words: list[str]
    score: list[float]


class InputColumns(TypedDict):
    """What is known of each input."""

    guard: GuardColumns | None
    index: list[int]
    name: list[str]
    predicted: list[int]
    probability: list[float]
    label: list[int | None] | None
    scores: dict[str, list[float]]


ClassRow = TypedDict(
    "ClassRow",
    {
        "index": int,
        "class": str,
        "inputs": int,
        "probability": float,
        "median": float,
        "foreign": NotRequired[int],
        "labelled": NotRequired[int],
        "right": NotRequired[int],
    },
)
"""The inputs that are taken for one class."""


class KindsOfDoubt(TypedDict):
    """The doubt; of the model and of the data apart, where there is what tells them apart."""

    about: str
    members: int
    highest: float
    mean: dict[str, float]
    epistemic_share: float | None
    values: dict[str, list[float]]


class CalibrationFigures(TypedDict):
    """How often the model is right, and how sure it is, bin by bin and over all."""

    n: int
    ece: float
    mce: float
    mean_accuracy: float
    mean_confidence: float
    right: int
    accuracy_interval: Interval
    ece_by_chance: float
    nll: float | None
    brier: float
    bins: dict[str, list[float | None]]


class CalibrationFacts(TypedDict):
    """The figures of all labelled rows, and of one half before and after a temperature that the other half gave."""

    all: CalibrationFigures
    temperature: float | None
    note: str
    fitted: NotRequired[int]
    tested: NotRequired[int]
    before: NotRequired[CalibrationFigures]
    after: NotRequired[CalibrationFigures]


class SeparationFigures(TypedDict):
    """How well a score parts a second set from the data."""

    auroc: float
    aupr: float
    fpr95: float
    n_id: int
    n_ood: int
    auroc_interval: Interval
    aupr_interval: Interval
    fpr95_interval: Interval


class ForeignFacts(SetFacts):
    """What the second set is, and how well each score notices it."""

    separation: dict[str, SeparationFigures]
    scores: dict[str, list[float]]
    names: list[str]
    flagged: int | None


class Reasons(TypedDict):
    """Why an input is doubtful: maps over a picture, or the shares of features or tokens; form None: neither."""

    form: Literal["picture", "positions", "bars"] | None
    note: str
    about: NotRequired[str]
    of: NotRequired[dict[str, float]]
    labels: NotRequired[list[str]]
    parts: NotRequired[dict[str, list[float]]]


class InputView(TypedDict):
    """What is shown of an input, and why it is doubtful."""

    text: str | None
    why: Reasons
    picture: NotRequired[Array]
    maps: NotRequired[dict[str, Array]]


LikelyClass = TypedDict("LikelyClass", {"class": str, "probability": float})
ExampleFacts = TypedDict(
    "ExampleFacts",
    {
        "index": int,
        "name": str,
        "predicted": int,
        "class": str,
        "probability": float,
        "label": int | None,
        "label_class": str | None,
        "likeliest": list[LikelyClass],
        "scores": dict[str, float],
        "below": int,
        "among": int,
        "total": float,
        "aleatoric": NotRequired[float],
        "epistemic": NotRequired[float],
    },
)


class Example(ExampleFacts, InputView):
    """An input whose doubt is shown: what the model makes of it, how it looks, and where its doubt comes from."""


class AuditFacts(TypedDict, total=False):
    """What an audit found far away from the data; or in `left_out` why there is none."""

    left_out: str
    rows: list[dict[str, Any]]
    distances: list[float]
    starts: int
    sentences: dict[str, str]
    summary: list[str]
    measured_because: str
    classes: list[str]
    settings: dict[str, Any]


class RiskFigures(TypedDict):
    """How well a score puts wrong answers last; raulc is None where all answers are right, or all wrong."""

    aurc: float
    eaurc: float
    raulc: float | None


class Findings(TypedDict):
    """All that a report says."""

    format: str
    version: int
    answer: FirstScreen
    model: ModelFacts
    data: DataFacts
    leading: str
    methods: list[MethodFacts]
    inputs: InputColumns
    scores: dict[str, dict[str, float]]
    by_class: list[ClassRow]
    kinds: KindsOfDoubt
    calibration: CalibrationFacts | None
    selective: dict[str, RiskFigures] | None
    foreign: ForeignFacts | None
    examples: dict[str, list[Example]]
    limits: AuditFacts
    repeat: dict[str, str]
    summary: list[str]
