"""The parts of a report that are plain tables: the data, the scores, each input, each class, the kinds of doubt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nescio import evaluate
from nescio._common.formatting import class_name
from nescio.data.sources import Rows
from nescio.findings import single_inputs as single
from nescio.findings.measuring import Measured, Subject
from nescio.report.findings_types import (
    ClassRow,
    ForeignFacts,
    GuardColumns,
    InputColumns,
    KindsOfDoubt,
    MethodFacts,
    SetFacts,
)
from nescio.scores import Method

Labels = NDArray[np.int64] | None
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def set_facts(rows: Rows, measured: Measured, read: int, most: int) -> SetFacts:
    """Return what a set of data is.

    Args:
        rows: The data.
        measured: What was measured.
        read: How many rows were read.
        most: How many may be read.
    """
    return {
        "about": rows.about,
        "rows": len(rows),
        "read": read,
        "used": len(measured),
        "most": most,
        "sampled": read < len(rows),
        "problems": single.problems(measured.problems),
        "seconds": measured.seconds,
    }


def method_facts(methods: Sequence[Method], keys: Sequence[str], why: str) -> list[MethodFacts]:
    """Return what the scores are.

    Args:
        methods: The scores.
        keys: What they are called in the report.
        why: Why these were chosen; empty where the user did.
    """
    return [
        {
            "name": key,
            "summary": getattr(one, "summary", ""),
            "settings": {f.name: _word(getattr(one, f.name)) for f in fields(one) if f.init},  # type: ignore[arg-type]
            "chosen": why or "asked for",
        }
        for key, one in zip(keys, methods, strict=True)
    ]


def _word(value: object) -> Any:
    return value if isinstance(value, str | int | float | None) else str(value)[:80]


def input_columns(known: Measured, truth: Labels, level: float) -> InputColumns:
    """Return what is known of each input.

    Args:
        known: What was measured.
        truth: The class index of each, −1 where it is not known.
        level: At which the guard flags.
    """
    best, judged = known.p.max(1), None
    if (verdict := known.verdict) is not None:
        judged = GuardColumns(
            p_value=verdict.p_value.tolist(),
            state=verdict.states(level),
            words=verdict.words(level),
            score=verdict.score.tolist(),
        )
    return {
        "guard": judged,
        "index": known.index.tolist(),
        "name": known.names,
        "predicted": best.indices.tolist(),
        "probability": best.values.tolist(),
        "label": None if truth is None else [None if label < 0 else label for label in truth.tolist()],
        "scores": {name: values.tolist() for name, values in known.scores.items()},
    }


def spread(values: NDArray[np.float64]) -> dict[str, float]:
    """Return the ends, the quantiles and the mean of a score."""
    cuts = np.quantile(values, QUANTILES)
    named = {f"{100 * q:g} %": float(cut) for q, cut in zip(QUANTILES, cuts, strict=True)}
    return {"least": float(values.min()), **named, "most": float(values.max()), "mean": float(values.mean())}


def class_rows(
    known: Measured,
    truth: NDArray[np.int64] | None,
    lead: NDArray[np.float64],
    level: float,
    class_names: Sequence[str] | None,
) -> list[ClassRow]:
    """Return the rows by the class that they are taken for, the most common first."""
    probability, predicted = (part.numpy() for part in known.p.max(1))
    foreign = None if known.verdict is None else known.verdict.foreign(level).numpy()
    rows: list[ClassRow] = []
    for one in np.unique(predicted).tolist():
        own = predicted == one
        row: ClassRow = {
            "index": one,
            "class": class_name(one, class_names),
            "inputs": int(own.sum()),
            "probability": float(probability[own].mean()),
            "median": float(np.median(lead[own])),
        }
        if foreign is not None:
            row["foreign"] = int(foreign[own].sum())
        if truth is not None:
            labelled = own & (truth >= 0)
            row["labelled"], row["right"] = int(labelled.sum()), int((truth[labelled] == one).sum())
        rows.append(row)
    return sorted(rows, key=lambda row: (-row["inputs"], row["index"]))


def kinds_of_doubt(about: Subject, known: Measured) -> KindsOfDoubt:
    """Return the doubt; of the model and of the data apart, where there is what tells them apart."""
    kinds = single.KINDS if known.members > 1 else single.KINDS[:1]
    parts: dict[str, NDArray[np.float64]] = {kind: getattr(known.kinds, kind).numpy() for kind in kinds}
    means: dict[str, float] = {kind: float(values.mean()) for kind, values in parts.items()}
    return {
        "about": about.words,
        "members": known.members,
        "highest": math.log(known.p.shape[1]),
        "mean": means,
        "epistemic_share": means["epistemic"] / means["total"] if known.members > 1 and means["total"] > 0 else None,
        "values": {kind: values.tolist() for kind, values in parts.items()},
    }


def every_score(measured: Measured) -> dict[str, NDArray[np.float64]]:
    """Return the chosen scores, and the kinds of doubt where they are told apart."""
    kinds = single.KINDS if measured.members > 1 else ()
    return {**measured.scores, **{kind: getattr(measured.kinds, kind).numpy() for kind in kinds}}


def against(known: Measured, other: Measured, foreign: Rows, *, most: int, level: float, seed: int) -> ForeignFacts:
    """Return how well each score, and the guard, parts the second set from the data.

    Args:
        known: What was measured of the data.
        other: What was measured of the second set.
        foreign: The second set.
        most: How many of its rows may be read.
        level: At which the guard flags.
        seed: Of the intervals.
    """
    mine, theirs = every_score(known), every_score(other)
    if known.verdict is not None and other.verdict is not None:
        mine, theirs = (
            {"guard": verdict.score.numpy(), **own} for verdict, own in ((known.verdict, mine), (other.verdict, theirs))
        )
    separation: dict[str, Any] = {
        name: asdict(evaluate.ood(own, theirs[name], seed=seed)) for name, own in mine.items()
    }
    return {
        "separation": separation,
        "scores": {name: own.tolist() for name, own in theirs.items()},
        "names": other.names,
        **set_facts(foreign, other, min(len(foreign), most), most),
        "flagged": None if other.verdict is None else int(other.verdict.foreign(level).sum()),
    }
