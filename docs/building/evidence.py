"""What holds and what does not: `python docs/building/evidence.py` writes docs/evidence.md from results."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from claims import ABOUT, PAPERS, RUNS, WORDS, Claim, formulas, regrad
from claims_labels import hundred, labels, likelihood
from claims_limits import limits, own
from claims_maps import attention, maps, signs
from claims_pixels import pixels
from claims_propositions import propositions
from contradictions import ABOUT as CONTRADICTIONS
from contradictions import contradictions
from not_run import not_run
from results import ROOT, SCALES, files, measured, parts

from nescio.plots.style import ACCENT, FAINT, INK
from nescio_papers.regrad.label_charts import gains, identity
from nescio_papers.ua_backprop import charts

PAGE = ROOT / "docs" / "evidence.md"


def command(shown: str) -> str:
    """What shows it."""
    if shown == "escape":
        return "python benchmarks/escape.py"
    scale = json.loads(files(shown)[-1].read_text())["scale"]
    return f"nescio reproduce {shown}" + ("" if scale == "quick" else f" --scale {scale}")


def starred(text: str) -> str:
    """The text with REGrad's star as one, where Markdown would begin or end something."""
    return text.replace("REGrad*", r"REGrad\*")


def runs(names: list[str]) -> list[str]:
    """A line for each result file that the page reads."""
    made = []
    for name in names:
        for path in [path for scale in SCALES for path in files(f"{name}@{scale}")]:
            result = json.loads(path.read_text())
            commit = (result["git"] or {"commit": "not recorded"})["commit"][:12]
            machine = result["machine"]["name"]
            seconds = result["seconds"] + sum(run["seconds"] for run in result.get("earlier", []))
            made.append(
                f"| `papers/results/{path.name}` | {machine} | {seconds:,.0f} s | {commit} |"
            )
    escape = measured("escape")["machine"]
    return [
        *made,
        f"| `benchmarks/results/escape.json` | {escape['device']} | – | {escape['commit']} |",
    ]


def claims() -> list[Claim]:
    """All claims, in the order of the page."""
    later = {
        "hundred": hundred,
        "propositions": propositions,
        "ua-signs": signs,
        "ua-attention": attention,
    }
    some = {name: make() if files(name) else [] for name, make in later.items()}
    return [
        *regrad(),
        *some["hundred"],
        *labels(),
        *likelihood(),
        *formulas(),
        *some["propositions"],
        *maps(),
        *some["ua-attention"],
        *some["ua-signs"],
        *limits(),
        *own(),
        *pixels(),
    ]


FIGURES = {"polarity": ("polarity", 0)}
"""What the page shows of a study's figures: the study, and which of its figures."""


@cache
def figures() -> dict[str, tuple[str, str, str]]:
    """Its words, what it shows to those who cannot see it, and the picture, for each figure."""
    kept = {
        name: json.loads(files(study)[-1].read_text())["figures"][at]
        for name, (study, at) in FIGURES.items()
        if files(study)
    }
    accuracy, gain = (
        [part["cells"] for part, _ in parts("acquisition@quick")]
        if files("acquisition@quick")
        else ((), ())
    )
    kept["nll-identity"] = asdict(identity(accuracy))
    if gain:
        kept["acquisition"] = asdict(*gains(gain))
    cells = {
        name: [part["cells"] for part, _ in parts(name)]
        for name in ("ua-signs", "ua-attention")
        if files(name)
    }
    if "ua-signs" in cells:
        kept["signs"] = asdict(*charts.signs(cells["ua-signs"]))
    if "ua-attention" in cells:
        kept["temperature"] = asdict(*charts.temperature(*cells["ua-attention"]))
    return {name: (one["text"], one["alt"], _picture(one["image"])) for name, one in kept.items()}


def _picture(image: str) -> str:
    """The figure of a results page as a file of its own: on white, with the colours that the page gives it."""
    image = image.replace("<svg ", '<svg font-family="sans-serif" ', 1)
    image = image.replace('style="', 'style="background: #fff; ', 1)
    for name, colour in (("currentColor", INK), ("var(--faint)", FAINT), ("var(--accent)", ACCENT)):
        image = image.replace(name, colour)
    return image


def page() -> str:
    """The whole page."""
    every = claims()
    text = [
        "# What holds and what does not",
        "",
        ABOUT,
        "",
        "| claim | the paper | ours | verdict | shown by |",
    ]
    text += ["|---|---|---|---|---|"]
    text += [
        f"| {starred(c.claim)} | {starred(c.paper)} | {starred(c.ours)} | **{c.verdict}** | [`{c.shown}`](#runs) |"
        for c in every
    ]
    text += ["", "## Words", "", WORDS]
    for name, about in PAPERS.items():
        text += ["", f"## {name}", "", about]
        for c in every:
            if c.of == name:
                text += [
                    "",
                    f"**{starred(c.claim)}: {c.verdict}.** {starred(c.why)} `{command(c.shown)}`",
                ]
                if c.figure in figures():
                    title, alt, _ = figures()[c.figure]
                    text += ["", f"![{alt}](figures/{c.figure}.svg)", "", f"*{title}*"]
    missing = [f"- {about}" for about in not_run()]
    text += [
        "",
        "## Where the papers contradict themselves",
        "",
        CONTRADICTIONS,
        "",
        *(f"- {line}" for line in contradictions()),
        "",
        "## Not run",
        "",
        "There is no result for these, so nothing is said:",
        "",
        *missing,
    ]
    studies = [name for name in dict.fromkeys(c.shown for c in every) if name != "escape"]
    text += [
        "",
        "## Runs",
        "",
        RUNS,
        "",
        "| file | machine | time | commit |",
        "|---|---|---:|---|",
        *runs(studies),
        "",
    ]
    return "\n".join(text)


if __name__ == "__main__":
    for name, (_, _, picture) in figures().items():
        (PAGE.parent / "figures" / f"{name}.svg").write_text(picture)
    PAGE.write_text(page())
