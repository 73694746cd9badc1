"""The sections with figures on the page of a model, each from its part of the result; None where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nescio import plots
from nescio._common.formatting import number, percentage
from nescio.evaluate import Reliability, risk_coverage
from nescio.plots.style import legend_above
from nescio.report.audit_page import AuditContent, audit_content
from nescio.report.content import Cell, Figure, Row, Table, ascending, count_cell, descending, share_cell
from nescio.report.figure_svg import svg
from nescio.report.findings_types import CalibrationFigures, ClassRow, Findings

MANY = 100
"""Inputs from which on one in twenty of them is told."""
LONG = 12
"""Rows of a table by class from which on it scrolls."""
KINDS = {
    "total": "All doubt: the entropy of the mean prediction.",
    "aleatoric": "Doubt of the data: more than one answer fits. More examples would not help.",
    "epistemic": "Doubt of the model: it has seen little like this. More examples would help.",
}


@dataclass(frozen=True)
class Doubt:
    """How doubtful the inputs are: a histogram of each score, the leading one first, and a table by answered class."""

    figures: Sequence[Figure]
    classes: Table


@dataclass(frozen=True)
class Kinds:
    """Total, aleatoric and epistemic doubt, in nats; `highest` is that of all classes alike."""

    about: str
    members: int
    highest: float
    classes: int
    epistemic_share: float | None
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Calibration:
    """Whether probabilities mean what they say; `fit` has the temperature where one was fitted."""

    fit: Mapping[str, Any] | None
    n: int
    ece: float
    ece_by_chance: float
    note: str
    table: Table
    figure: Figure


@dataclass(frozen=True)
class Selective:
    """What is gained by answering only where doubt is low."""

    figure: Figure
    table: Table


@dataclass(frozen=True)
class Separation:
    """How well each score tells the second set from the data; `flagged` is what the guard calls foreign."""

    about: str
    others: int
    used: int
    flagged: int | None
    table: Table
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Limits:
    """What an audit found far away from the data."""

    summary: Sequence[str]
    audit: AuditContent


def doubt(result: Findings) -> Doubt:
    """Return the distribution of each score, and the shares by predicted class.

    Args:
        result: What a report says.

    Returns:
        The content of the section.
    """
    figures = []
    for name, values in result["inputs"]["scores"].items():
        spread = result["scores"][name]
        middle = f"median {number(spread['50 %'])}"
        if len(values) >= MANY:
            middle += f", 5 % below {number(spread['5 %'])}, 5 % above {number(spread['95 %'])}"
        figure = _histogram(values, f"{name} (higher = more uncertain)", width=5.2, height=2.9)
        alt = f"Histogram of {name} for {len(values)} inputs: {middle}"
        figures.append(Figure(svg(figure, alt, f"doubt-{name}"), name, f": {middle}."))
    by_class = result["by_class"]
    names = ["inputs", "mean probability", f"median {result['leading']}"]
    names += [name for name in ("foreign", "right") if name in by_class[0]]
    rows = [Row(one["class"], _class_cells(one)) for one in by_class]
    columns = [*ascending("taken for"), *descending(*names)]
    return Doubt(figures, Table(columns, rows, "Doubt by predicted class", long=len(rows) > LONG))


def _class_cells(one: ClassRow) -> list[Cell]:
    cells = [count_cell(one["inputs"]), share_cell(one["probability"]), Cell(number(one["median"]), one["median"])]
    if "foreign" in one:
        cells.append(count_cell(one["foreign"]))
    if "right" in one:
        right, labelled = one["right"], one["labelled"]
        cells.append(Cell(f"{right:,} of {labelled:,}", right / labelled) if labelled else Cell("–", None))
    return cells


def kinds(result: Findings) -> Kinds | None:
    """Return total, aleatoric and epistemic doubt.

    Args:
        result: What a report says.

    Returns:
        The content of the section; None for a single network, where nothing tells them apart.
    """
    own = result["kinds"]
    if own["members"] == 1:
        return None
    figures = []
    for kind, values in own["values"].items():
        mean = f"mean {number(own['mean'][kind])} nats"
        figure = _histogram(values, f"{kind} (nats)", width=4.2, height=2.7, log=False)
        alt = f"Histogram of the {kind} doubt of {len(values)} inputs: {mean}, of at most {number(own['highest'])}"
        figures.append(Figure(svg(figure, alt, f"kind-{kind}"), kind, f", {mean}. {KINDS[kind]}"))
    return Kinds(
        about=own["about"],
        members=own["members"],
        highest=own["highest"],
        classes=result["model"]["classes"],
        epistemic_share=own["epistemic_share"],
        figures=figures,
    )


def calibration(result: Findings) -> Calibration | None:
    """Return reliability, ECE and temperature.

    Args:
        result: What a report says.

    Returns:
        The content of the section; None without labels.
    """
    own = result["calibration"]
    if own is None:
        return None
    whole, fitted = own["all"], own["temperature"] is not None
    sets = {"all": whole}
    drawn = {"as it is": whole}
    if fitted:
        sets |= {"held-out half, as it is": own["before"], "held-out half, with the temperature": own["after"]}
        drawn = {"as it is": own["before"], f"with T = {own['temperature']:.3g}": own["after"]}
    figure = plots.reliability({name: _reliability(one) for name, one in drawn.items()}, size=4.4)
    listing = "; ".join(f"{name}: ECE {percentage(one['ece'])} percent" for name, one in drawn.items())
    alt = f"Reliability diagram, accuracy against confidence. {listing}"
    columns = [*ascending("rows"), *descending("n", "accuracy", "confidence")]
    columns += ascending("ECE", "by chance", "MCE", "NLL", "Brier")
    rows = []
    for name, one in sets.items():
        shares = (one[key] for key in ("mean_accuracy", "mean_confidence", "ece", "ece_by_chance", "mce"))
        losses = (Cell("∞" if loss is None else number(loss), loss) for loss in (one["nll"], one["brier"]))
        rows.append(Row(name, [count_cell(one["n"]), *map(share_cell, shares), *losses]))
    return Calibration(
        fit={key: own[key] for key in ("temperature", "fitted", "tested")} if fitted else None,
        n=whole["n"],
        ece=whole["ece"],
        ece_by_chance=whole["ece_by_chance"],
        note=own["note"] or "",
        table=Table(columns, rows, "Calibration"),
        figure=Figure(svg(figure, alt, "reliability")),
    )


def selective(result: Findings) -> Selective | None:
    """Return what is gained by answering only where doubt is low.

    Args:
        result: What a report says.

    Returns:
        The content of the section; None without labels.
    """
    if result["selective"] is None:
        return None
    inputs, truth = result["inputs"], result["inputs"]["label"] or []
    labelled = np.array([label is not None for label in truth])
    right = np.array([a == b for a, b in zip(inputs["predicted"], truth, strict=True)])[labelled]
    by_score = {**inputs["scores"], **(result["kinds"]["values"] if result["kinds"]["members"] > 1 else {})}
    curves = {name: risk_coverage(np.asarray(values)[labelled], right) for name, values in by_score.items()}
    figure = plots.risk_coverage(curves, width=5.0, height=4.4)
    listing = ", ".join(f"{name} {100 * one['aurc']:.3g} percent" for name, one in result["selective"].items())
    alt = f"Risk against coverage for each score. Mean risk: {listing}"
    rows = []
    for name, one in result["selective"].items():
        risks = [Cell(number(100 * risk), risk) for risk in (one["aurc"], one["eaurc"])]
        rows.append(Row(name, [*risks, Cell("–" if one["raulc"] is None else number(one["raulc"]), one["raulc"])]))
    columns = [*ascending("score", "AURC", "E-AURC"), *descending("rAULC")]
    return Selective(Figure(svg(figure, alt, "risk-coverage")), Table(columns, rows, "Risk and coverage"))


def separation(result: Findings) -> Separation | None:
    """Return how well each score separates the second set.

    Args:
        result: What a report says.

    Returns:
        The content of the section; None without a second set.
    """
    own = result["foreign"]
    if own is None:
        return None
    values = {**result["inputs"]["scores"], **result["kinds"]["values"]}
    if (guard := result["inputs"]["guard"]) is not None and "guard" in own["separation"]:
        values["guard"] = guard["score"]
    figures = []
    for name in [one for one in ("guard", result["leading"], "epistemic") if one in own["separation"]]:
        groups = {"this data": values[name], "the other set": own["scores"][name]}
        label = f"{name} (higher = more uncertain)"
        figure = plots.histogram(groups, label, width=5.2, height=3.4, bins=_bins(values[name]))
        legend_above(figure.axes[0])
        medians = "; ".join(f"{group} {number(float(np.median(scores)))}" for group, scores in groups.items())
        alt = f"Histogram of {name} for both sets. Medians: {medians}"
        figures.append(Figure(svg(figure, alt, f"sets-{name}"), name, f". Medians: {medians}."))
    rows = []
    for name, one in own["separation"].items():
        cells = []
        for value, (low, high) in (
            (one["auroc"], one["auroc_interval"]),
            (one["aupr"], one["aupr_interval"]),
            (one["fpr95"], one["fpr95_interval"]),
        ):
            cells.append(Cell(f"{percentage(value)} ({percentage(low)}–{percentage(high)})", value, value))
        rows.append(Row(name, cells))
    columns = [*ascending("score"), *descending("AUROC", "AUPR"), *ascending("FPR95")]
    table = Table(columns, rows, "Separation of the other set")
    return Separation(own["about"], own["used"], result["data"]["used"], own["flagged"], table, figures)


def limits(result: Findings) -> Limits | None:
    """Return what an audit found far away from the data.

    Args:
        result: What a report says.

    Returns:
        The content of the section; None where there was no audit.
    """
    own = result["limits"]
    if "left_out" in own:
        return None
    directions: dict[str, dict[str, Any]] = {}
    for row in own["rows"]:
        endless = {key: math.inf if row[key] is None else row[key] for key in ("reached", "sure_from")}
        directions.setdefault(row["direction"], {})[row["score"]] = {**row, **endless}
    return Limits(own["summary"], audit_content(directions, own["distances"], own.get("classes", ())))


def _histogram(values: Sequence[float], label: str, **look: Any) -> Any:
    figure = plots.histogram({"this data": values}, label, bins=_bins(values), **look)
    figure.axes[0].legend_ = None  # there is one group
    return figure


def _bins(values: Sequence[float]) -> int:
    return min(36, max(8, len(values) // 3))  # no comb where there are few


def _reliability(one: CalibrationFigures) -> Reliability:
    bins = {key: np.array([math.nan if v is None else v for v in values]) for key, values in one["bins"].items()}
    bins["count"] = bins["count"].astype(np.int64)
    means: dict[str, Any] = {name: one[name] for name in ("ece", "mce", "mean_accuracy", "mean_confidence")}
    return Reliability(**(bins | means))
