"""What holds and what does not: `python docs/building/evidence.py` writes docs/evidence.md from results.

With two folders it takes results from the first and writes the page and its figures into the second.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from claims import ABOUT, PAPERS, RUNS, WORDS, Claim, formulas, regrad
from claims_attention import attention
from claims_labels import labels, likelihood
from claims_limits import limits, own
from claims_maps import maps
from claims_networks import hundred, schedules, transformers
from claims_pixels import pixels
from claims_propositions import propositions
from claims_signs import signs
from contradictions import ABOUT as CONTRADICTIONS
from contradictions import contradictions
from not_run import not_run
from results import ROOT, files, look_into, measured, parts, read, span
from runs_again import again

from nescio.plots.style import ACCENT, FAINT, INK
from nescio_papers import reproduce
from nescio_papers.regrad.label_charts import gains, identity
from nescio_papers.ua_backprop import charts

PAGE = ROOT / "docs" / "evidence.md"


def command(shown: str) -> str:
    """What shows it."""
    if shown == "escape":
        return "python benchmarks/escape.py"
    scale = json.loads(files(shown)[-1].read_text())["scale"]
    return _typed(shown, scale)


def starred(text: str) -> str:
    """The text with REGrad's star as one, where Markdown would begin or end something."""
    return text.replace("REGrad*", r"REGrad\*")


def runs() -> list[str]:
    """A line for each study, scale and machine, of all result files that the page has read."""
    groups: dict[tuple[str, str, str], list[tuple[Path, dict[str, Any]]]] = {}
    for path in read():
        result = json.loads(path.read_text())
        key = result["study"], result["scale"], result["machine"]["name"]
        groups.setdefault(key, []).append((path, result))
    made, order = [], list(reproduce.studies())
    for (study, scale, machine), some in sorted(
        groups.items(), key=lambda group: order.index(group[0][0])
    ):
        every = [run for _, result in some for run in (*result.get("earlier", []), result)]
        seconds = sum(run["seconds"] for run in every)
        commits = ", ".join(dict.fromkeys(map(_commit, every)))
        names = [path.stem for path, _ in some]
        more = "".join(f", {name.rpartition('-')[2]}" for name in names[1:])
        made.append(
            f"| `{_typed(study, scale)}` | `{names[0]}`{more} | {machine} | {seconds:,.0f} s | {commits} |"
        )
    escape = measured("escape")["machine"]
    commit = escape["commit"].replace("-dirty", "+")
    file = "benchmarks/results/escape"
    return [*made, f"| `{command('escape')}` | `{file}` | {escape['device']} | – | {commit} |"]


def hours(machine: str) -> str:
    """How long a kind of machine was at work for all that the page has read, added up and by the clock."""
    results = [json.loads(path.read_text()) for path in read()]
    every = [run for result in results for run in (*result.get("earlier", []), result)]
    own = [run for run in every if machine in run["machine"]["name"]]
    added, until = sum(run["seconds"] for run in own) / 3600, 0.0
    clock = 0.0
    for begin, end in sorted(map(span, own)):
        clock += max(0.0, end - max(begin, until))
        until = max(until, end)
    return f"{added:.1f} hours ({clock / 3600:.1f} by the clock)"


UNKNOWN = "not recorded"
COMMITS = {
    "+": "`+` after a commit: files were changed since that were not committed yet",
    "with ": "*with* before a commit: the sources lay outside of a repository, "
    "and this is the commit that brought the file in",
    UNKNOWN: f"*{UNKNOWN}*: the sources lay outside of a repository",
}
"""What is said of a commit, by the sign that says it."""


def _commit(run: dict[str, Any]) -> str:
    """A run's commit, with a plus where files were changed since; or the one that its file came with."""
    git, came = run["git"], run.get("came_with")
    if git is None:
        return f"with {came}" if came else UNKNOWN
    return str(git["commit"][:7]) + ("+" if git["dirty"] else "")


def _drawn(table: tuple[tuple[str, ...], ...]) -> list[str]:
    """A table in Markdown, of which the first row is the head."""
    head, *rest = (f"| {starred(' | '.join(row))} |" for row in table)
    return [head, "|---" + "|---:" * (len(table[0]) - 1) + "|", *rest]


def _typed(study: str, scale: str) -> str:
    """What is typed to run a study."""
    return f"nescio reproduce {study}" + ("" if scale == "quick" else f" --scale {scale}")


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
        *schedules(),
        *transformers(),
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
                if c.table:
                    text += ["", *_drawn(c.table)]
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
    for name in {c.shown for c in every} - {"escape"}:
        parts(name)  # so that its files are among the runs, also where the claim reads others
    made = runs()
    last = [line.split("|")[-2] for line in made]
    signs_of = [about for sign, about in COMMITS.items() if any(sign in one for one in last)]
    text += [
        "",
        "## Runs",
        "",
        " ".join((RUNS, f"{'; '.join(signs_of)}.")) if signs_of else RUNS,
        f"All together: runs of {hours('H200')} on an H200 and of {hours('EPYC')} on a processor; "
        "many ran side by side.",
        *(["", again()] if again() else []),
        "",
        "| command | files in `papers/results` | machine | time | commit |",
        "|---|---|---|---:|---|",
        *made,
        "",
    ]
    return "\n".join(text)


def main(results: Path | None = None, place: Path | None = None) -> None:
    """Write the page and its figures.

    Args:
        results: The folder of result files; None for the committed ones.
        place: The folder that gets `evidence.md` and `figures`; None for the documentation.
    """
    if results is not None:
        look_into(results)
        figures.cache_clear()
    page_file = PAGE if place is None else place / PAGE.name
    (page_file.parent / "figures").mkdir(parents=True, exist_ok=True)
    page_file.write_text(page())
    for name, (_, _, picture) in figures().items():
        (page_file.parent / "figures" / f"{name}.svg").write_text(picture)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
