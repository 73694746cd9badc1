"""What a report says in a few sentences, each with its numbers: what is printed when the page is written."""

from __future__ import annotations

import math

from nescio._common.formatting import percent
from nescio.report.findings_types import CalibrationFigures, Findings


def summary(result: Findings) -> list[str]:
    """Return the answer first, then the findings that matter most, in plain words."""
    kinds, front = result["kinds"], result["answer"]
    lines = [front["headline"], *front["said"], *front["lines"], *details(result)]
    if kinds["members"] > 1 and kinds["epistemic_share"] is not None:
        lines.append(
            f"Of the doubt {percent(kinds['epistemic_share'], digits=3)} is of the model (epistemic: more data of the "
            f"kind would help) and {percent(1 - kinds['epistemic_share'], digits=3)} is in the data (aleatoric: more "
            "would not)."
        )
    return lines


def details(result: Findings) -> list[str]:
    """Return what labels, a second set and the audit tell."""
    data, measured, lines = result["data"], result["calibration"], []
    if measured is not None:
        lines.append(calibrated(measured["all"]))
    if (other := result["foreign"]) is not None:
        by = "guard" if "guard" in other["separation"] else result["leading"]
        lead = other["separation"][by]
        low, high = lead["auroc_interval"]
        lines.append(
            f"{by} tells the other set from the data with an AUROC of {percent(lead['auroc'], digits=3)} "
            f"({percent(low, digits=3)} to {percent(high, digits=3)})."
        )
        if other["flagged"] is not None:
            lines[-1] += f" The guard calls {other['flagged']:,} of its {other['used']:,} inputs foreign."
        best, figures = max(other["separation"].items(), key=lambda item: float(item[1]["auroc"]))
        if figures["auroc_interval"][0] > lead["auroc"]:
            lines[-1] += f" {best} does better: {percent(figures['auroc'], digits=3)}."
    if "summary" in (limits := result["limits"]):
        lines.append(limits["summary"][0])
    if data["problems"]:
        lines.append(f"{len(data['problems'])} of {data['read']:,} rows could not be used; they are listed below.")
    return lines


def calibrated(figures: CalibrationFigures) -> str:
    """Say how often the model is right, how sure it is, and whether that differs by more than chance."""
    low, high = figures["accuracy_interval"]
    sure = figures["mean_confidence"]
    ends = math.floor(100 * low + 1e-9) / 100, math.ceil(100 * high - 1e-9) / 100
    told = f"is between {percent(ends[0])} and {percent(ends[1])} with 95 % confidence"
    word = (
        f"the model is too sure: the share of right answers {told}"
        if sure > high
        else f"the model is not sure enough: the share of right answers {told}"
        if sure < low
        else f"that is no contradiction: with so many examples the share of right answers {told}"
    )
    return (
        f"Of {figures['n']:,} labelled inputs {figures['right']:,} are answered rightly, with a mean confidence of "
        f"{percent(sure, digits=3)}; {word}."
    )
