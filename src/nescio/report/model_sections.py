"""The sections with figures on the page of a model, each from its part of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nescio import plots
from nescio.evaluate import Reliability, risk_coverage
from nescio.plots.style import legend_above
from nescio.report import audit
from nescio.report.embed import svg
from nescio.report.html import escape
from nescio.report.tables import Cell, share, table, words
from nescio.report.text import number, percent

Result = Mapping[str, Any]
MANY = 100
"""Inputs from which on one in twenty of them is told."""
WORDS = {
    "total": "All doubt: the entropy of the mean prediction.",
    "aleatoric": "Doubt of the data: more than one answer fits. More examples would not help.",
    "epistemic": "Doubt of the model: it has seen little like this. More examples would help.",
}


def doubt(result: Result) -> str:
    """The distribution of each score, and the shares by predicted class."""
    every, leading = result["inputs"]["scores"], result["leading"]
    panels = []
    for name, values in every.items():
        spread = result["scores"][name]
        middle = f"median {number(spread['50 %'])}"
        if len(values) >= MANY:
            middle += f", 5 % below {number(spread['5 %'])}, 5 % above {number(spread['95 %'])}"
        figure = plots.histogram(
            {"this data": values}, f"{name} (higher = more uncertain)", width=5.2, height=2.9, bins=_bins(values)
        )
        figure.axes[0].legend_ = None  # there is one group
        alt = f"Histogram of {name} for {len(values)} inputs: {middle}"
        panels.append(_figure(svg(figure, alt, f"doubt-{name}"), f"<b>{escape(name)}</b>: {middle}."))
    by_class = result["by_class"]
    names = ["inputs", "mean probability", f"median {leading}"]
    names += ["foreign"] if "foreign" in by_class[0] else []
    names += ["right"] if "right" in by_class[0] else []
    rows = [(one["class"], _of_class(one)) for one in by_class]
    heads = [("taken for", "ascending"), *((name, "descending") for name in names)]
    others = f'<details><summary>Other scores</summary>\n<div class="panels wide">{"".join(panels[1:])}</div></details>'
    return f"""<div class="panels wide">{panels[0]}</div>
{others if panels[1:] else ""}
<h3>By the class that it answers</h3>
<p class="quiet">Press a heading to sort. Probabilities are in percent.</p>
{table(heads, rows, "Doubt by predicted class", kind="long" if len(rows) > 12 else "scroll")}"""


def _of_class(one: Mapping[str, Any]) -> list[Cell]:
    cells = [
        Cell(f"{one['inputs']:,}", one["inputs"]),
        share(one["probability"]),
        Cell(number(one["median"]), repr(one["median"])),
    ]
    if "foreign" in one:
        cells.append(Cell(f"{one['foreign']:,}", one["foreign"]))
    if "right" in one:
        part = repr(one["right"] / one["labelled"]) if one["labelled"] else "Infinity"
        cells.append(Cell(f"{one['right']:,} of {one['labelled']:,}" if one["labelled"] else "–", part))
    return cells


def kinds(result: Result) -> str:
    """Total, aleatoric and epistemic; nothing where there is nothing that tells them apart."""
    found = result["kinds"]
    if found["members"] == 1:
        return ""
    panels = []
    for kind, values in found["values"].items():
        mean = f"mean {number(found['mean'][kind])} nats"
        figure = plots.histogram({kind: values}, f"{kind} (nats)", width=4.2, height=2.7, log=False, bins=_bins(values))
        figure.axes[0].legend_ = None  # there is one group
        alt = f"Histogram of the {kind} doubt of {len(values)} inputs: {mean}, of at most {number(found['highest'])}"
        panels.append(_figure(svg(figure, alt, f"kind-{kind}"), f"<b>{kind}</b>, {mean}. {WORDS[kind]}"))
    part = found["epistemic_share"]
    shared = "" if part is None else f" Of all doubt {percent(part)}&nbsp;% is epistemic."
    return f"""<p>Through {escape(found["about"])}, {found["members"]} members. The highest possible doubt is
{number(found["highest"])} nats: all {result["model"]["classes"]:,} classes alike.{shared}</p>
<div class="panels third">{"".join(panels)}</div>"""


def calibration(result: Result) -> str:
    """Reliability, ECE and temperature; nothing without labels."""
    found = result["calibration"]
    if found is None:
        return ""
    sets = {"all": found["all"]}
    shown = {"as it is": found["all"]}
    says = ""
    if found["temperature"] is not None:
        sets |= {"held-out half, as it is": found["before"], "held-out half, with the temperature": found["after"]}
        shown = {"as it is": found["before"], f"with T = {found['temperature']:.3g}": found["after"]}
        says = (
            f"<p>A temperature of <b>{found['temperature']:.2g}</b>, fitted to {found['fitted']:,} of the rows, suits "
            f"them best; the other {found['tested']:,} show what it does. A temperature never changes an answer. "
            "<code>nescio calibrate</code> makes it part of the model.</p>"
        )
    whole = found["all"]
    beyond = "more than" if whole["ece"] > whole["ece_by_chance"] else "within what"
    says += (
        f"<p>The ECE of all {whole['n']:,} rows is {percent(whole['ece'])}&nbsp;%, {beyond} chance gives: a model "
        f"whose probabilities are true stays below {percent(whole['ece_by_chance'])}&nbsp;% in 95 of 100 such sets.</p>"
    )
    figure = plots.reliability({name: _reliability(one) for name, one in shown.items()}, size=4.4)
    listing = "; ".join(f"{name}: ECE {percent(one['ece'])} percent" for name, one in shown.items())
    alt = f"Reliability diagram, accuracy against confidence. {listing}"
    heads = [("rows", "ascending"), ("n", "descending"), ("accuracy", "descending"), ("confidence", "descending")]
    heads += [
        ("ECE", "ascending"),
        ("by chance", "ascending"),
        ("MCE", "ascending"),
        ("NLL", "ascending"),
        ("Brier", "ascending"),
    ]
    rows = [
        (
            name,
            [
                Cell(f"{one['n']:,}", one["n"]),
                *(share(one[key]) for key in ("mean_accuracy", "mean_confidence", "ece", "ece_by_chance", "mce")),
                *(Cell("∞" if one[key] is None else number(one[key]), _sortable(one[key])) for key in ("nll", "brier")),
            ],
        )
        for name, one in sets.items()
    ]
    note = f'<p class="quiet">{escape(found["note"])}</p>' if found["note"] else ""
    return f"""{says}{note}
{table(heads, rows, "Calibration")}
<p class="quiet">ECE: by how much confidence and accuracy differ in a bin of confidences, on average. Shares are in
percent. On the dotted line a confidence of 80 % is right in 80 % of the cases; below it the model is too sure.</p>
<div class="plot"><div style="max-width: 26rem">{svg(figure, alt, "reliability")}</div></div>"""


def selective(result: Result) -> str:
    """What is gained by answering only where doubt is low; nothing without labels."""
    if result["selective"] is None:
        return ""
    inputs, truth = result["inputs"], result["inputs"]["label"]
    told = np.array([label is not None for label in truth])
    right = np.array([a == b for a, b in zip(inputs["predicted"], truth, strict=True)])[told]
    own = {**inputs["scores"], **(result["kinds"]["values"] if result["kinds"]["members"] > 1 else {})}
    curves = {name: risk_coverage(np.asarray(values)[told], right) for name, values in own.items()}
    figure = plots.risk_coverage(curves, width=5.0, height=4.4)
    listing = ", ".join(f"{name} {100 * one['aurc']:.3g} percent" for name, one in result["selective"].items())
    alt = f"Risk against coverage for each score. Mean risk: {listing}"
    rows = [
        (
            name,
            [
                *(Cell(number(100 * one[key]), repr(one[key])) for key in ("aurc", "eaurc")),
                Cell(_known(one["raulc"]), _sortable(one["raulc"])),
            ],
        )
        for name, one in result["selective"].items()
    ]
    heads = [("score", "ascending"), ("AURC", "ascending"), ("E-AURC", "ascending"), ("rAULC", "descending")]
    return f"""<p>To the right more is answered, upwards more of it is wrong. A rule for new inputs, with a promise
of how many accepted answers are wrong, comes from <code>nescio decide</code>.</p>
<div class="plot"><div style="max-width: 34rem">{svg(figure, alt, "risk-coverage")}</div></div>
<p></p>
{table(heads, rows, "Risk and coverage")}
<p class="quiet">AURC: the share of wrong answers, a mean over all coverages, in percent; E-AURC: by how much that
exceeds the best order. rAULC: 1 is the best order, 0 is chance.</p>"""


def foreign(result: Result) -> str:
    """How well each score separates the second set; nothing without one."""
    found = result["foreign"]
    if found is None:
        return ""
    leading = result["leading"]
    mine = {**result["inputs"]["scores"], **result["kinds"]["values"]}
    if "guard" in found["separation"]:
        mine["guard"] = result["inputs"]["guard"]["score"]
    panels = []
    for name in [one for one in ("guard", leading, "epistemic") if one in found["separation"]]:
        groups = {"this data": mine[name], "the other set": found["scores"][name]}
        figure = plots.histogram(
            groups, f"{name} (higher = more uncertain)", width=5.2, height=3.4, bins=_bins(mine[name])
        )
        legend_above(figure.axes[0])
        medians = "; ".join(f"{set_} {number(float(np.median(values)))}" for set_, values in groups.items())
        alt = f"Histogram of {name} for both sets. Medians: {medians}"
        panels.append(_figure(svg(figure, alt, f"sets-{name}"), f"<b>{escape(name)}</b>. Medians: {escape(medians)}."))
    rows = []
    for name, one in found["separation"].items():
        cells = []
        for key in ("auroc", "aupr", "fpr95"):
            low, high = one[f"{key}_interval"]
            cells.append(Cell(f"{percent(one[key])} ({percent(low)}–{percent(high)})", repr(one[key]), one[key]))
        rows.append((name, cells))
    heads = [("score", "ascending"), ("AUROC", "descending"), ("AUPR", "descending"), ("FPR95", "ascending")]
    flagged = "" if found["flagged"] is None else f" The guard calls {found['flagged']:,} of them foreign."
    return f"""<p>{found["used"]:,} inputs of {escape(found["about"])} against {result["data"]["used"]:,} of the
data.{flagged}</p>
{table(heads, rows, "Separation of the other set")}
<p class="quiet">In percent, with 95 % intervals of a bootstrap. AUROC: take one input of each set; how often is the
other set's the more uncertain? 50 is chance. FPR95: the share of the data that is flagged as well when 95 % of the
other set is.</p>
<div class="panels wide">{"".join(panels)}</div>"""


def limits(result: Result) -> str:
    """The audit; nothing where there is none."""
    found = result["limits"]
    if "left_out" in found:
        return ""
    ways: dict[str, dict[str, Any]] = {}
    for row in found["rows"]:
        endless = {key: math.inf if row[key] is None else row[key] for key in ("reached", "sure_from")}
        ways.setdefault(row["direction"], {})[row["score"]] = {**row, **endless}
    scores = list(next(iter(ways.values())))
    items = "".join(f"<li>{words(line)}</li>" for line in found["summary"])
    return f"""<ul>{items}</ul>
<p class="quiet">A spread is a feature's standard deviation, or the root mean square distance of the data from their
mean. Proven: it follows from the linear pieces of the network. Measured: seen at the distances that were tried.
<code>nescio audit</code> says more.</p>
<h3>{audit.ON_THE_WAY}</h3>
{audit.figures(ways, scores, found["distances"])}
<details><summary>All {len(ways)} directions</summary>
{audit.listing(ways, scores, "h4")}</details>"""


def _bins(values: Sequence[float]) -> int:
    return min(36, max(8, len(values) // 3))  # no comb where there are few


def _figure(drawn: str, caption: str) -> str:
    return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"


def _reliability(one: Mapping[str, Any]) -> Reliability:
    bins = {key: np.array([math.nan if v is None else v for v in values]) for key, values in one["bins"].items()}
    bins["count"] = bins["count"].astype(np.int64)
    means: dict[str, Any] = {name: one[name] for name in ("ece", "mce", "mean_accuracy", "mean_confidence")}
    return Reliability(**(bins | means))


def _known(value: float | None) -> str:
    return "–" if value is None else number(value)


def _sortable(value: float | None) -> str:
    return "Infinity" if value is None else repr(value)
