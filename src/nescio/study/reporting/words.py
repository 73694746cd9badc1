"""What a report says first: a few sentences, each with its numbers."""

from __future__ import annotations

from typing import Any

from nescio.decide.policy import percent


def summary(result: dict[str, Any]) -> list[str]:
    """The findings that matter most, in plain words."""
    data, kinds, lines = result["data"], result["kinds"], []
    used = f"{data['used']:,} inputs"
    measured = result["calibration"]
    if measured is not None:
        sure = measured["all"]
        gap = sure["mean_confidence"] - sure["mean_accuracy"]
        word = "about as sure as it is right" if abs(gap) < 0.01 else "too sure" if gap > 0 else "not sure enough"
        lines.append(
            f"Of {sure['n']:,} labelled inputs {_share(sure['mean_accuracy'])} are answered rightly, with a mean "
            f"confidence of {_share(sure['mean_confidence'])}: the model is {word} (ECE {_share(sure['ece'])})."
        )
    else:
        mean = sum(result["inputs"]["probability"]) / data["used"]
        lines.append(
            f"On {used} the mean probability of the answer is {_share(mean)}. Without labels nobody can say how many "
            "answers are right."
        )
    if kinds["members"] > 1 and kinds["epistemic_share"] is not None:
        lines.append(
            f"Of the doubt {_share(kinds['epistemic_share'])} is of the model (epistemic: more data of the kind would "
            f"help) and {_share(1 - kinds['epistemic_share'])} is in the data (aleatoric: more would not)."
        )
    lines.append(result["policy"]["says"])
    if (other := result["foreign"]) is not None:
        lead = other["separation"][result["leading"]]
        low, high = lead["auroc_interval"]
        lines.append(
            f"{result['leading']} tells the other set from the data with an AUROC of {_share(lead['auroc'])} "
            f"({_share(low)} to {_share(high)}); the rule above would accept {_share(other['accepted'])} of it."
        )
        best, found = max(other["separation"].items(), key=lambda item: float(item[1]["auroc"]))
        if found["auroc_interval"][0] > lead["auroc"]:
            lines[-1] += f" {best} does better: {_share(found['auroc'])}."
    if "summary" in (far := result["limits"]):
        lines.append(far["summary"][0])
    if data["problems"]:
        lines.append(f"{len(data['problems'])} of {data['read']:,} rows could not be used; they are listed below.")
    return lines


def _share(value: float) -> str:
    """Three digits at most, and never 100 % of what is less."""
    return percent(float(f"{value:.3g}")) if value < 0.9995 else percent(value)
