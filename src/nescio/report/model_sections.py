"""The sections with figures on the page of a model, each from its part of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nescio import plots
from nescio.evaluate import Reliability, risk_coverage
from nescio.plots.style import COLOURS, legend_above
from nescio.report import audit
from nescio.report.embed import svg
from nescio.report.html import escape, facts
from nescio.report.tables import Cell, share, table, words
from nescio.report.text import number, percent

Result = Mapping[str, Any]
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
        middle = (
            f"median {number(spread['50 %'])}, 5 % below {number(spread['5 %'])}, 5 % above {number(spread['95 %'])}"
        )
        figure = plots.histogram(
            {"this data": values}, f"{name} (higher = more uncertain)", width=5.2, height=2.9, bins=_bins(values)
        )
        figure.axes[0].legend_ = None  # there is one group
        alt = f"Histogram of {name} for {len(values)} inputs: {middle}"
        panels.append(_figure(svg(figure, alt, f"doubt-{name}"), f"<b>{escape(name)}</b>: {middle}."))
    rows = [
        (
            one["class"],
            [
                Cell(f"{one['inputs']:,}", one["inputs"]),
                share(one["share"]),
                share(one["probability"]),
                Cell(number(one["median"]), repr(one["median"])),
                share(one["referred"]),
                *([share(one["right"])] if "right" in one else []),
            ],
        )
        for one in result["by_class"]
    ]
    names = ["inputs", "share", "mean probability", f"median {leading}", "for a person"]
    names += ["right"] if "right" in result["by_class"][0] else []
    heads = [("taken for", "ascending"), *((name, "descending") for name in names)]
    return f"""<div class="panels wide">{"".join(panels)}</div>
<h3>By the class that it answers</h3>
<p class="quiet">Press a heading to sort. Shares are in percent. <b>For a person</b>: the share that the policy below
refers to a person{"; <b>right</b>: the share of right answers" if "right" in names else ""}.</p>
{table(heads, rows, "Doubt by predicted class", kind="long" if len(rows) > 12 else "scroll")}"""


def kinds(result: Result) -> str:
    """Total, aleatoric and epistemic."""
    found = result["kinds"]
    panels = []
    parts = found["values"] if found["members"] > 1 else {"total": found["values"]["total"]}
    for kind, values in parts.items():
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
    """Reliability, ECE and temperature."""
    found = result["calibration"]
    if found is None:
        return f"<p>That takes labels, and here are {escape(result['data']['labels'])}.</p>"
    sets = {"all": found["all"]}
    shown = {"as it is": found["all"]}
    says = ""
    if found["temperature"] is not None:
        sets |= {"held-out half, as it is": found["before"], "held-out half, with the temperature": found["after"]}
        shown = {"as it is": found["before"], f"with T = {found['temperature']:.3g}": found["after"]}
        word = "it is too sure" if found["temperature"] > 1 else "it is not sure enough"
        says = (
            f"<p>A temperature of <b>{found['temperature']:.4g}</b>, fitted to {found['fitted']:,} of the rows, suits "
            f"them best ({word}); the other {found['tested']:,} show what it does. A temperature never changes an "
            "answer. <code>nescio calibrate</code> makes it part of the model.</p>"
        )
    figure = plots.reliability({name: _reliability(one) for name, one in shown.items()}, size=4.4)
    listing = "; ".join(f"{name}: ECE {percent(one['ece'])} percent" for name, one in shown.items())
    alt = f"Reliability diagram, accuracy against confidence. {listing}"
    heads = [("rows", "ascending"), ("n", "descending"), ("accuracy", "descending"), ("confidence", "descending")]
    heads += [("ECE", "ascending"), ("MCE", "ascending"), ("NLL", "ascending"), ("Brier", "ascending")]
    rows = [
        (
            name,
            [
                Cell(f"{one['n']:,}", one["n"]),
                *(share(one[key]) for key in ("mean_accuracy", "mean_confidence", "ece", "mce")),
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


def policy(result: Result) -> str:
    """The suggested rule, and what is gained by it where labels exist."""
    rule, leading = result["policy"], result["leading"]
    pairs = {
        "score": leading,
        "accept when at most": "nothing is accepted" if rule["threshold"] is None else f"{rule['threshold']!r}",
        "accepted here": f"{rule['accepted']:,} of {rule['n']:,} ({percent(rule['coverage'])} %)",
    }
    if rule["errors"] is not None:
        pairs["wrong among those"] = f"{rule['errors']:,}"
    first = f'<p class="promise">{words(rule["says"])}</p>\n{facts(pairs)}\n'
    care = (
        '<p class="quiet">The promise holds for new inputs of the kind of these data, and only if neither the model '
        "nor the score was fitted to them. <code>nescio decide</code> writes such a rule, <code>nescio apply</code> "
        "uses it.</p>"
    )
    if result["selective"] is None:
        return f"{first}{care}\n<p>With labels a rule could promise how many accepted answers are wrong.</p>"
    inputs, truth = result["inputs"], result["inputs"]["label"]
    told = np.array([label is not None for label in truth])
    right = np.array([a == b for a, b in zip(inputs["predicted"], truth, strict=True)])[told]
    own = {**inputs["scores"], **(result["kinds"]["values"] if result["kinds"]["members"] > 1 else {})}
    curves = {name: risk_coverage(np.asarray(values)[told], right) for name, values in own.items()}
    figure = plots.risk_coverage(curves, width=5.0, height=4.4)
    if rule["threshold"] is not None and rule["accepted"]:
        risk = rule["errors"] / rule["accepted"]
        look: dict[str, Any] = {"color": COLOURS[1], "markeredgecolor": "white", "markersize": 8, "zorder": 6}
        figure.axes[0].plot(rule["coverage"], risk, "o", **look)
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
    return f"""{first}{care}
<h3>Risk and coverage</h3>
<p>Answer only where doubt is low: to the right more is answered, upwards more of it is wrong.
{"The point is the rule above." if rule["threshold"] is not None else ""}</p>
<div class="plot"><div style="max-width: 34rem">{svg(figure, alt, "risk-coverage")}</div></div>
<p></p>
{table(heads, rows, "Risk and coverage")}
<p class="quiet">AURC: the share of wrong answers, a mean over all coverages, in percent; E-AURC: by how much that
exceeds the best order. rAULC: 1 is the best order, 0 is chance.</p>"""


def foreign(result: Result) -> str:
    """How well each score separates the second set."""
    found = result["foreign"]
    if found is None:
        return "<p>That takes a second set of inputs of another kind (--ood).</p>"
    leading = result["leading"]
    mine = {**result["inputs"]["scores"], **result["kinds"]["values"]}
    panels = []
    for name in dict.fromkeys((leading, *(("epistemic",) if "epistemic" in found["separation"] else ()))):
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
    return f"""<p>{found["used"]:,} inputs of {escape(found["about"])} against {result["data"]["used"]:,} of the data.
The policy above would accept {percent(found["accepted"])}&nbsp;% of them.</p>
{table(heads, rows, "Separation of the other set")}
<p class="quiet">In percent, with 95 % intervals of a bootstrap. AUROC: take one input of each set; how often is the
other set's the more uncertain? 50 is chance. FPR95: the share of the data that is flagged as well when 95 % of the
other set is.</p>
<div class="panels wide">{"".join(panels)}</div>"""


def limits(result: Result) -> str:
    """The audit."""
    found = result["limits"]
    if "left_out" in found:
        return f"<p>Not looked at: {escape(found['left_out'])}</p>"
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
