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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nescio import scores
from nescio._common.argument_checks import integer
from nescio.data.sources import Rows
from nescio.findings import examples as single
from nescio.findings import far_away, first_screen, sections, with_labels
from nescio.findings import model_facts as facts
from nescio.findings.measuring import Measured, measure, sample, subject
from nescio.findings.sections import Labels
from nescio.findings.sentences import summary
from nescio.guard import Guard
from nescio.guard.promise import check_level
from nescio.models import Classifier
from nescio.models.sources import Source
from nescio.report.findings_types import (
    Example,
    Findings,
    Tile,
)
from nescio.scores import Method
from nescio.scores.base import must_be_fitted
from nescio.scoring import check_fit, fit
from nescio.types import InputError

BESIDE = ("entropy", "max_probability", "energy")
"""Scores that a report shows beside the first where nobody chose any: those of the same forward pass."""
OF_POSTERIORS = ("mutual_information", "entropy", "max_probability")


def gather(
    source: Source,
    rows: Rows,
    *,
    foreign: Rows | None = None,
    labels: Tensor | None = None,
    training: Any = None,
    methods: Sequence[Method] | None = None,
    guard: Guard | None = None,
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
    """
    for name, value, least in (("most", most, 2), ("examples", examples, 0), ("batch", batch, 1), ("seed", seed, 0)):
        integer(name, value, at_least=least)
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"labels: expected one for each of the {len(rows)} rows, got {len(labels)}")
    if guard is not None:
        check_level(level, guard.fitted.ranks)
    places = sample(len(rows), most, seed)
    first = _first(rows, places)
    about = subject(source.model, training, first, guard)
    samples, _, classes = about.answers.predict(first, progress=False).shape
    if source.classes is not None and len(source.classes) != classes:
        raise InputError(
            f"expected {classes} names of classes, as the model has, got {len(source.classes)}; "
            "--class-names gives others"
        )
    chosen, why = usual(source.model, samples) if methods is None else (list(methods), "")
    if any(map(must_be_fitted, chosen)):
        check_fit({one.name: one for one in chosen}, training)
        chosen = fit(source.model, chosen, training, progress=False)
    known = measure(about, rows, places, chosen, batch=batch, labels=labels, what="scoring", progress=progress)
    other = None
    if foreign is not None:
        drawn, what = sample(len(foreign), most, seed), "scoring the other set"
        other = measure(about, foreign, drawn, chosen, batch=batch, labels=None, what=what, progress=progress)

    truth, note = _truth(source, rows, known, labels)
    truth = with_labels.checked(truth, classes)
    right = None if truth is None else known.p.argmax(1).numpy() == truth
    told = None if truth is None else truth >= 0
    leading = next(iter(known.scores))
    class_names = next((c for c in (source.classes, rows.classes) if c is not None and len(c) == classes), None)
    lead, counts, kind = known.scores[leading], known.copies(), single.kind(rows, first)

    def show(at: int) -> Tile:
        return single.tile(rows, known, at, truth, class_names)

    def described(own: Rows, measured: Measured, at: Sequence[int], labels: Labels, what: str) -> list[Example]:
        return single.described(
            about, own, measured, at, leading=leading, labels=labels, class_names=class_names, maps=maps,
            progress=progress, what=what,
        )  # fmt: skip

    if known.verdict is not None and guard is not None:
        answer = first_screen.judged(known.verdict, guard, counts, show, kind=kind, level=level, again=again)
    else:
        answer = first_screen.ranked(lead, leading, counts, show, kind=kind, again=again)
    calibration, selective = None, None
    if truth is not None and right is not None and told is not None:
        calibration = with_labels.calibration(known.p[told], torch.from_numpy(truth[told]), seed)
        selective = with_labels.selective(
            {name: values[told] for name, values in sections.every_score(known).items()}, right[told]
        )
    few = -(-examples // 2)
    picked = single.chosen(lead, examples, few, counts)
    shown = {key: described(rows, known, at, truth, f"the {key} doubtful") for key, at in picked.items()}
    against = None
    if other is not None and foreign is not None:
        flagged = None if other.verdict is None else int(other.verdict.foreign(level).sum())
        against = sections.against(
            known, other, seed, sections.set_facts(foreign, other, min(len(foreign), most), most), flagged
        )
        low = single.chosen(other.scores[leading], 0, few, other.copies())["least"]
        shown["foreign"] = described(foreign, other, low, None, "the others")
    result: Findings = {
        "format": "nescio.report",
        "version": 2,
        "answer": answer,
        "model": facts.model_facts(source, rows, classes, class_names),
        "data": {
            **sections.set_facts(rows, known, len(places), most),
            "labels": note,
            "labelled": 0 if told is None else int(told.sum()),
            "copies": len(known) - len(counts),
        },
        "leading": leading,
        "methods": sections.method_facts(chosen, list(known.scores), why),
        "inputs": sections.input_columns(known, truth, level),
        "scores": {name: sections.spread(values) for name, values in known.scores.items()},
        "by_class": sections.class_rows(known, truth, lead, level, class_names),
        "kinds": sections.kinds_of_doubt(about, known),
        "calibration": calibration,
        "selective": selective,
        "foreign": against,
        "examples": shown,
        "limits": far_away.audited(audit, source.model, rows, places, seed),
        "repeat": {
            **(repeat or {}),
            "seed": str(seed),
            "data": f"{rows.about} (identity {rows.identity})",
            "versions": ", ".join(f"{name} {number}" for name, number in facts.versions().items()),
            "machine": facts.machine(source),
        },
        "summary": [],
    }
    result["summary"] = summary(result)
    finite: Findings = _finite(result)
    return finite


def plain(result: Any) -> Any:
    """The same without the arrays of pictures and maps, as JSON can hold it."""
    if isinstance(result, Mapping):
        return {key: plain(value) for key, value in result.items() if key not in ("picture", "maps")}
    return [plain(value) for value in result] if isinstance(result, list) else result


def _first(rows: Rows, places: Sequence[int]) -> Any:
    """The first row that can be used, as a batch."""
    for place in places:
        batch = rows.assemble([place], [rows.attempt(place)])
        if batch is not None:
            return batch.inputs
    last = f"; the first: {rows.problems[0]}" if rows.problems else ""
    raise InputError(f"expected at least one row that can be used, but got none of {rows.about}{last}")


def usual(model: Any, samples: int = 2) -> tuple[list[Method], str]:
    """The methods where nobody chose any, and why these.

    samples: those of a posterior; a calibrated network has one, which agrees with itself.
    """
    first, why = scores.default_method()
    beside = BESIDE if isinstance(model, Classifier) else OF_POSTERIORS[1:] if samples == 1 else OF_POSTERIORS
    return [scores.get(name) for name in (first, *beside)], why


def _truth(source: Source, rows: Rows, known: Measured, given: Tensor | None) -> tuple[NDArray[np.int64] | None, str]:
    """The labels that fit the model's classes, and in words what they are."""
    if known.labels is None:
        return None, "none"
    if given is not None:
        return known.labels, "given in a file of their own"
    if None not in (source.classes, rows.classes) and source.classes != rows.classes:
        few = ", ".join((rows.classes or ())[:3])
        return None, f"none that fit: the data's ({few} …) are not the classes of the model, so they were not used"
    return known.labels, "those of the data"


def _finite(value: Any) -> Any:
    """The same as JSON can hold it: tuples as lists, numbers of numpy as Python's, what is not finite as None."""
    if isinstance(value, Mapping):
        return {key: one if key in ("picture", "maps") else _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
