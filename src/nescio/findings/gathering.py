"""`gather`: all that a report says of a model on somebody's data, as one dictionary of plain values.

    sample of the rows ─► one pass: scores, answers, verdicts of a guard ─► which not to trust (`first_screen`)
                       ─► by class, with labels, against a second set
                       ─► the most and the least doubtful inputs: maps of where doubt comes from
                       ─► far away from the data: an audit, where one is given (`nescio.limits.reported`)

Every value is what JSON can hold, but for the pictures and maps of single inputs, which are arrays; `plain` leaves
those out. A large set is sampled, so that time and memory are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nescio import scores
from nescio._common.argument_checks import integer
from nescio.data.sources import Rows
from nescio.dense import RegionGuard
from nescio.findings import far_away, first_screen, sections, with_labels
from nescio.findings import model_facts as facts
from nescio.findings import single_inputs as single
from nescio.findings.foreignness import WORDS, foreignness
from nescio.findings.measuring import Measured, Subject, measure, sample, subject
from nescio.findings.sections import Labels
from nescio.findings.sentences import summary
from nescio.guard import Guard
from nescio.guard.promise import check_level
from nescio.inputs import Data
from nescio.models import Classifier, ModelOrPosterior
from nescio.models.sources import Source
from nescio.report.findings_types import Example, Findings, FirstScreen, Kind
from nescio.scores import Method
from nescio.scores.base import must_be_fitted
from nescio.scoring import check_fit, fit
from nescio.types import InputError

ARRAYS = ("picture", "maps", "foreignness")
"""What is no plain value."""
BESIDE = ("entropy", "max_probability", "energy")
"""Scores that a report shows beside the first where nobody chose any: those of the same forward pass."""
OF_POSTERIORS = ("mutual_information", "entropy", "max_probability")


def gather(
    source: Source,
    rows: Rows,
    *,
    foreign: Rows | None = None,
    labels: Tensor | None = None,
    training: Data | None = None,
    methods: Sequence[Method] | None = None,
    guard: Guard | RegionGuard | None = None,
    level: float = 0.05,
    most: int = 2000,
    examples: int = 6,
    maps: bool = True,
    audit: far_away.Audit | None = None,
    batch: int = 32,
    seed: int = 0,
    repeat: Mapping[str, str] | None = None,
    again: str | None = None,
    progress: bool | None = None,
) -> Findings:
    """Find out what a report says, from a model and rows that were opened.

    Args:
        source: The model or posterior.
        rows: The data.
        foreign: Rows of another kind, which the model should be doubtful about.
        labels: A class index for each row, −1 where it is not known, in the place of those that the rows have.
        training: Labelled batches for methods that need them, and for a Laplace posterior of a single network.
        methods: The scores, of which the first leads; None chooses.
        guard: A guard that is fitted to a reference; it judges the rows. Without it nothing is judged.
        level: The share of inputs like the reference that the guard calls foreign by mistake, at most.
        most: How many rows of each set are read.
        examples: How many of the most doubtful inputs are shown, and half as many of the others.
        maps: Whether these get maps of where their doubt comes from.
        audit: What looks far away from the data, such as `nescio.limits.reported.reported`; None for nothing.
        batch: How many rows go to the model at a time.
        seed: Of the sample, of halves and of intervals.
        repeat: What else is needed to repeat it, in words.
        again: The command that judges more rows, or without a guard the one that takes a reference.
        progress: Whether bars are shown; None shows them in a terminal.

    Returns:
        What the page shows, as values that JSON can hold, but for pictures and maps.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from nescio.data.sources import open_data
        >>> from nescio.models import Classifier
        >>> from nescio.models.sources import Source
        >>> network = Source(Classifier(torch.nn.Linear(4, 3)), None, "a linear model")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(Path(folder, "x.npz"), x=np.eye(4, dtype="float32"))
        ...     rows = open_data(Path(folder, "x.npz"))
        ...     found = gather(network, rows, methods=[nescio.scores.get("entropy")], maps=False, examples=1)
        >>> list(found["scores"])
        ['entropy']
    """
    _check(rows, labels, guard, level, most=most, examples=examples, batch=batch, seed=seed)
    data = _measured(
        source, rows, foreign, labels, training, methods, guard, level, most=most, batch=batch, seed=seed,
        progress=progress,
    )  # fmt: skip
    known, truth, leading = data.known, data.truth, data.leading
    calibration, selective = with_labels.calibration_and_risks(known.p, sections.every_score(known), truth, seed)
    result: Findings = {
        "format": "nescio.report",
        "version": 2,
        "answer": _answer(data, guard, level, again),
        "model": facts.model_facts(source, rows, known.p.shape[1], data.class_names),
        "data": {
            **sections.set_facts(rows, known, len(data.places), most),
            "labels": data.labels,
            "labelled": 0 if truth is None else int((truth >= 0).sum()),
            "copies": len(known) - len(data.counts),
        },
        "leading": leading,
        "methods": sections.method_facts(data.methods, list(known.scores), data.why),
        "inputs": sections.input_columns(known, truth, level),
        "scores": {name: sections.spread(values) for name, values in known.scores.items()},
        "by_class": sections.class_rows(known, truth, known.scores[leading], level, data.class_names),
        "kinds": sections.kinds_of_doubt(data.about, known),
        "calibration": calibration,
        "selective": selective,
        "foreign": None
        if foreign is None or data.other is None
        else sections.against(known, data.other, foreign, most=most, level=level, seed=seed),
        "examples": _examples(data, foreign, examples, maps, progress),
        "limits": {"left_out": "The model answers at every position."}
        if known.everywhere
        else far_away.audited(audit, source.model, rows, data.places, seed, data.class_names),
        "repeat": {**(repeat or {}), "seed": str(seed), **facts.origin(source, rows)},
        "summary": [],
    }
    result["summary"] = summary(result)
    finite: Findings = _finite(result)
    return finite


def _check(rows: Rows, labels: Tensor | None, guard: Guard | RegionGuard | None, level: float, **counts: int) -> None:
    """Refuse arguments that do not fit."""
    for name, least in (("most", 2), ("examples", 0), ("batch", 1), ("seed", 0)):
        integer(name, counts[name], at_least=least)
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"labels: expected one for each of the {len(rows)} rows, got {len(labels)}")
    if guard is not None:
        check_level(level, guard.fitted.ranks)


@dataclass(frozen=True)
class _Data:
    """What was measured of the rows, and of the second set; and what is known beside it."""

    rows: Rows
    about: Subject
    places: Sequence[int]
    """The rows that were sampled."""
    methods: Sequence[Method]
    why: str
    """Why these methods; empty where the user chose them."""
    known: Measured
    other: Measured | None
    counts: Mapping[int, int]
    """The places of different inputs, and how often each is there."""
    kind: Kind
    truth: Labels
    labels: str
    """What the labels are, in words."""
    class_names: Sequence[str] | None

    @property
    def leading(self) -> str:
        """The first of the scores."""
        return next(iter(self.known.scores))


def _measured(
    source: Source,
    rows: Rows,
    foreign: Rows | None,
    labels: Tensor | None,
    training: Data | None,
    methods: Sequence[Method] | None,
    guard: Guard | RegionGuard | None,
    level: float,
    *,
    most: int,
    batch: int,
    seed: int,
    progress: bool | None,
) -> _Data:
    """Choose rows and methods, and measure."""
    places = sample(len(rows), most, seed)
    first = _first(rows, places)
    about = subject(source.model, training, first, guard, level)
    samples, _, *somewhere, classes = about.answers.predict(first, progress=False).shape
    if somewhere and labels is not None:
        raise InputError("labels: expected none for a model that answers at every position, got one for each row")
    if source.classes is not None and len(source.classes) != classes:
        raise InputError(
            f"expected {classes} names of classes, as the model has, got {len(source.classes)}; "
            "--class-names gives others"
        )
    chosen, why = usual(source.model, samples) if methods is None else (list(methods), "")
    if any(map(must_be_fitted, chosen)):
        check_fit({one.name: one for one in chosen}, training)
        assert training is not None
        chosen = fit(source.model, chosen, training, progress=False)
    known = measure(about, rows, places, chosen, batch=batch, labels=labels, what="scoring", progress=progress)
    other = None
    if foreign is not None:
        drawn, what = sample(len(foreign), most, seed), "scoring the other set"
        other = measure(about, foreign, drawn, chosen, batch=batch, labels=None, what=what, progress=progress)
    truth, words = _truth(source, rows, known, labels, classes)
    truth = with_labels.fitting_labels(truth, classes)
    class_names = next((c for c in (source.classes, rows.classes) if c is not None and len(c) == classes), None)
    kind = single.kind(rows, first)
    return _Data(rows, about, places, chosen, why, known, other, known.copies(), kind, truth, words, class_names)


def _answer(data: _Data, guard: Guard | RegionGuard | None, level: float, again: str | None) -> FirstScreen:
    """The first screen: verdicts of the guard, or without one an order."""
    known, counts, kind = data.known, data.counts, data.kind
    show = partial(single.tile, data.rows, known, labels=data.truth, class_names=data.class_names)
    if known.verdict is not None and guard is not None:
        front = first_screen.with_guard(known.verdict, guard, counts, show, kind=kind, level=level, again=again)
        for card in front["cards"]["foreign"]:
            batch = data.rows.assemble([card["index"]], [data.rows.attempt(card["index"])])
            one = None if batch is None else foreignness(guard, batch.inputs)
            if one is not None:
                card["foreignness"] = one.numpy()
    else:
        front = first_screen.ranked(known.scores[data.leading], data.leading, counts, show, kind=kind, again=again)
    if known.everywhere:
        front["lines"].append(WORDS)
    return front


def _examples(
    data: _Data, foreign: Rows | None, most: int, maps: bool, progress: bool | None
) -> dict[str, list[Example]]:
    """The most and the least doubtful inputs, and of the second set the least doubtful."""
    leading, few = data.leading, -(-most // 2)
    describe = partial(
        single.described, data.about, leading=leading, method=data.methods[0], class_names=data.class_names, maps=maps,
        progress=progress,
    )  # fmt: skip
    picked = single.most_and_least_doubtful(data.known.scores[leading], most, few, data.counts)
    shown = {
        key: describe(data.rows, data.known, at, labels=data.truth, what=f"the {key} doubtful")
        for key, at in picked.items()
    }
    if foreign is not None and data.other is not None:
        low = single.most_and_least_doubtful(data.other.scores[leading], 0, few, data.other.copies())["least"]
        shown["foreign"] = describe(foreign, data.other, low, labels=None, what="the others")
    return shown


def plain(result: object) -> Any:
    """Leave out the arrays of pictures and maps, so that JSON can hold the rest.

    Args:
        result: What `gather` found, or anything in it.

    Returns:
        The same without them.

    Examples:
        >>> plain({"examples": [{"row": 3, "picture": np.zeros((8, 8))}]})
        {'examples': [{'row': 3}]}
    """
    if isinstance(result, Mapping):
        return {key: plain(value) for key, value in result.items() if key not in ARRAYS}
    return [plain(value) for value in result] if isinstance(result, list) else result


def _first(rows: Rows, places: Sequence[int]) -> Any:
    """The first row that can be used, as a batch."""
    for place in places:
        batch = rows.assemble([place], [rows.attempt(place)])
        if batch is not None:
            return batch.inputs
    last = f"; the first: {rows.problems[0]}" if rows.problems else ""
    raise InputError(f"expected at least one row that can be used, but got none of {rows.about}{last}")


def usual(model: ModelOrPosterior, samples: int = 2) -> tuple[list[Method], str]:
    """Choose the methods where nobody chose any.

    Args:
        model: The network or posterior.
        samples: How many members a posterior has; a calibrated network has one, which agrees with itself.

    Returns:
        The methods, of which the first leads, and in words why it does.

    Examples:
        >>> from nescio.models import Classifier
        >>> methods, why = usual(Classifier(torch.nn.Linear(4, 3)))
        >>> methods[0].name == nescio.scores.default_method()[0]
        True
    """
    first, why = scores.default_method()
    beside = BESIDE if isinstance(model, Classifier) else OF_POSTERIORS[1:] if samples == 1 else OF_POSTERIORS
    return [scores.get(name) for name in (first, *beside)], why


def _truth(
    source: Source, rows: Rows, known: Measured, given: Tensor | None, classes: int
) -> tuple[NDArray[np.int64] | None, str]:
    """The labels that fit the model's classes, and in words what they are."""
    if known.everywhere:
        return None, "none: those of positions are not read"
    if known.labels is None:
        return None, "none"
    if given is not None:
        return known.labels, "given in a file of their own"
    if None not in (source.classes, rows.classes) and source.classes != rows.classes:
        few = ", ".join((rows.classes or ())[:3])
        return None, f"none that fit: the data's ({few} …) are not the classes of the model, so they were not used"
    if source.classes is None and rows.classes is not None and len(rows.classes) != classes:
        few = ", ".join(rows.classes[:3])
        words = f"none that fit: the data have {len(rows.classes)} classes ({few} …), the model has {classes}"
        return None, f"{words}, so they were not used (--class-names says how the model's are called)"
    return known.labels, "those of the data"


def _finite(value: object) -> Any:
    """The same as JSON can hold it: tuples as lists, numbers of numpy as Python's, what is not finite as None."""
    if isinstance(value, Mapping):
        return {key: one if key in ARRAYS else _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
