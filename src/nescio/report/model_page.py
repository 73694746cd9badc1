"""The page of a model on somebody's data: which inputs not to trust, why, and what to do; then the details.

Every number on the page is in the result of a report. Sections that there is nothing for are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nescio.report import model_sections as sections
from nescio.report.answer import Answer, answer_of
from nescio.report.content import Row, Table, ascending, count_cell, descending, word_cell
from nescio.report.findings_types import Findings
from nescio.report.findings_types import ModelFacts as ModelRecord
from nescio.report.findings_types import SetFacts as SetRecord
from nescio.report.model_cards import InputCard, input_card
from nescio.report.overlays import scales
from nescio.report.render import render
from nescio.types import InputError

GROUPS = {
    "most": "Most doubtful",
    "least": "Least doubtful",
    "foreign": "Least doubtful of the other set: the most easily taken for known ones",
}
NAMED_CLASSES = 12
"""Classes that are listed by name."""


@dataclass(frozen=True)
class Section:
    """One section: its anchor, which is also its macro in the templates, its title, and what it says."""

    key: str
    title: str
    content: Any


@dataclass(frozen=True)
class ModelPage:
    """What is on the page of a model: the first screen, what else is to be said in sentences, and the sections."""

    model: str
    data: str
    answer: Answer
    summary: Sequence[str]
    sections: Sequence[Section]


@dataclass(frozen=True)
class Examples:
    """The inputs that are most and least in doubt by a score, as cards by title; `members`: whose doubt it is."""

    leading: str
    members: str
    groups: Mapping[str, Sequence[InputCard]]


@dataclass(frozen=True)
class ModelFacts:
    """What the model is, and its layers."""

    facts: Mapping[str, str]
    layers: Table


@dataclass(frozen=True)
class DataFacts:
    """What a set of data is, and the rows of it that could not be used."""

    facts: Mapping[str, str]
    problems: Table


@dataclass(frozen=True)
class Repeat:
    """What is needed to repeat the report, and the settings of each score."""

    facts: Mapping[str, str]
    methods: Mapping[str, str]


def model_page(result: Findings) -> str:
    """Return a report as one self-contained HTML page.

    Args:
        result: What `nescio.findings.gather` returns for a model and data.

    Returns:
        The HTML, which opens offline.

    Raises:
        InputError: Where the result is another dictionary.
    """
    if result.get("format") != "nescio.report":
        raise InputError("result: expected what nescio.findings.gather gives, but got another dictionary")
    every = [
        Section("examples", "Where doubt comes from", _examples(result)),
        Section("doubt", "How doubtful it is", sections.doubt(result)),
        Section("kinds", "Which kind of doubt", sections.kinds(result)),
        Section("calibration", "Do its probabilities mean what they say?", sections.calibration(result)),
        Section("selective", "Answering only where doubt is low", sections.selective(result)),
        Section("other", "Does it notice the other set?", sections.separation(result)),
        Section("limits", "Far away from the data", sections.limits(result)),
        Section("model", "What the model is", _model(result["model"])),
        Section("data", "The data", [_data(one) for one in (result["data"], result["foreign"]) if one is not None]),
        Section("repeat", "To repeat it", _repeat(result)),
    ]
    front = result["answer"]
    said = (front["headline"], *front["said"], *front["lines"])
    page = ModelPage(
        model=result["model"]["about"],
        data=result["data"]["about"],
        answer=answer_of(front),
        summary=[line for line in result["summary"] if line not in said],
        sections=[section for section in every if section.content is not None],
    )
    return render("model.html.j2", page=page)


def _examples(result: Findings) -> Examples | None:
    leading, by_group = result["leading"], result["examples"]
    reasons = [one["why"] for own in by_group.values() for one in own]
    if not any(why["form"] for why in reasons):
        return None  # the strip shows the inputs themselves
    about = next((why["about"] for why in reasons if why.get("about")), "")
    members = about.partition(" uncertainty of ")[2].replace("Deterministic (1 members)", "the network")
    ends = scales(one["maps"] for own in by_group.values() for one in own if one["why"]["form"] == "positions")
    groups = {GROUPS[key]: [input_card(one, leading, ends) for one in own] for key, own in by_group.items() if own}
    return Examples(leading, members, groups)


def _model(model: ModelRecord) -> ModelFacts:
    names = model["class_names"] or ()
    named = ": " + ", ".join(names[:NAMED_CLASSES]) if names else ""
    facts = {
        "source": model["about"],
        "what": model["kind"] + (f" of {model['networks']} networks" if model["networks"] > 1 else ""),
        "pre-processing": model["preprocess"],
        "classes": f"{model['classes']:,}{named}{' …' if len(names) > NAMED_CLASSES else ''}",
        "parameters": f"{model['parameters']:,} in {len(model['layers'])} layers",
        "runs on": f"{model['device'] or 'unknown'}, {model['dtype'] or 'unknown'}",
        "hash of the weights": ", ".join(one or "none" for one in model["hash"]) or "none",
    }
    rows = [
        Row(one["name"], [word_cell(one["type"]), word_cell(one["of"]), count_cell(one["parameters"])])
        for one in model["layers"]
    ]
    columns = [*ascending("layer", "type", "of"), *descending("parameters")]
    return ModelFacts(facts, Table(columns, rows, "The layers of the model", long=True))


def _data(one: SetRecord) -> DataFacts:
    drawn = f"a sample of {one['read']:,}, drawn with the seed (--most {one['most']})" if one["sampled"] else "all"
    facts = {"what": one["about"], "read": drawn, "used": f"{one['used']:,} rows"}
    if labels := one.get("labels"):
        facts["labels"] = f"{labels} ({one.get('labelled'):,} rows)"
    if copies := one.get("copies"):
        facts["copies"] = f"{copies:,} are copies of others, and are shown once"
    rows = [Row(bad["name"], [count_cell(bad["index"]), word_cell(bad["reason"])]) for bad in one["problems"]]
    return DataFacts(facts, Table(ascending("name", "row", "why"), rows, "Rows that could not be used", long=True))


def _repeat(result: Findings) -> Repeat:
    methods = {}
    for one in result["methods"]:
        settings = ", ".join(f"{key}={value}" for key, value in one["settings"].items()) or "no settings"
        methods[one["name"]] = f"{one['summary']} ({one['chosen']}) {settings}"
    return Repeat(result["repeat"], methods)
