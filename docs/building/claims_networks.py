"""Claims of the REGrad paper on how its networks were trained, on a hundred classes, and on transformers."""

from __future__ import annotations

import json
from statistics import fmean

from claims import DOES_NOT, HOLDS, NOT, PARTLY, REGRAD, STAR, SVHN, Claim
from results import cell, files, lines, pair, parts, ran, rank

WORDS = {2: "two", 3: "three", 4: "four", 5: "five"}
BOUND = 3.0
"""Points of AUROC that an expectation allowed: between L1 and L2, and between two ways of training."""


def schedules() -> list[Claim]:
    """What the paper's own schedules change."""
    literal, entropy = (
        [cell("schedules", row, column, part=2).mean - cell("schedules", row, column, part=1).mean for column in SVHN]
        for row in (STAR, "Entropy")
    )  # fmt: skip
    worse = [
        name
        for name, gaps in (("REGrad*", literal), ("entropy", entropy))
        if all(gap < 0 for gap in gaps)
    ]
    judged = (
        "as expected"
        if len(worse) == 2
        else f"expected was that it is worse, which fails{' but for ' + worse[0] if worse else ''}"
    )
    return [
        Claim(
            REGRAD, "SVHN's numbers (longer training)", f"REGrad* {pair('schedules', STAR, SVHN, paper=True, part=1)}",
            f"{pair('schedules', STAR, SVHN, part=1)} (fast: {pair('table1', STAR, SVHN)})", PARTLY, "schedules",
            "CIFAR-10 and CIFAR-100 as foreign sets. With the paper's 50 epochs of training, on the 40,000 pictures at hand, REGrad* comes closer than with our fast schedule, as expected, and entropy too "
            f"({pair('schedules', 'Entropy', SVHN, part=1)}; the paper {pair('schedules', 'Entropy', SVHN, paper=True, part=1)}). The paper's list of layers read "
            f"literally, with a ReLU on the logits, gives REGrad* {pair('schedules', STAR, SVHN, part=2)} and entropy "
            f"{pair('schedules', 'Entropy', SVHN, part=2)}: {judged}. The paper trained on 73,257 pictures.",
        ),
        *_cifar10(),
    ]  # fmt: skip


def _cifar10() -> list[Claim]:
    """What the paper's own schedule changes on CIFAR-10, where it was run."""
    name, column, scenes = "schedules", "cifar10→svhn", "cifar10→scenes"
    part = next((at for at, (one, _) in enumerate(parts(name)) if one["title"] == "CIFAR-10"), None)
    if part is None or column not in ran(name, "auroc", part):
        return []
    rows = (STAR, "Entropy")
    own, fast = (
        {row: cell(study, row, column, part=at).mean for row in rows}
        for study, at in ((name, part), ("table1", 0))
    )
    theirs = {row: cell("table1", row, column, part=0).paper for row in rows}
    if None in own.values():
        return []
    right, before = (
        _right(study, plan) for study, plan in ((name, "own-cifar10"), ("table1", "cifar10-fast"))
    )
    gaps = {row: own[row] - fast[row] for row in rows}
    ahead = [one[STAR] > one["Entropy"] for one in (own, fast)]
    span = [100 * value for value in _seeds("table1", "Entropy", column)]
    steady = max(map(abs, gaps.values())) < BOUND
    judged = [
        fmean(right) >= fmean(before),
        steady,
        ahead[0] == ahead[1],
    ]
    said = ["so it is" if one else "that fails" for one in judged]
    moved = [
        name for name, row in (("REGrad*", STAR), ("entropy", "Entropy")) if abs(gaps[row]) >= BOUND
    ]
    said[1] += f" for {' and '.join(moved)}" if moved else ""
    leads = [one[STAR] - one["Entropy"] for one in (own, fast, theirs)]
    more = ""
    if scenes in ran(name, "auroc", part) and all(
        cell(name, row, scenes, part=part).mean is not None for row in rows
    ):
        more = f" Against scenes: {_both(name, scenes, part)}, with the fast schedule {_both('table1', scenes, 0)}."
    seeds = f"{len(right)} networks" if len(right) > 1 else "one network"
    return [
        Claim(
            REGRAD, "Training is not why CIFAR-10 differs", "–",
            f"{own[STAR]:.1f} (fast {fast[STAR]:.1f}), entropy {own['Entropy']:.1f} ({fast['Entropy']:.1f})",
            HOLDS if all(judged) else PARTLY if steady else DOES_NOT, name,
            f"Ours. ResNet18 by the paper's own schedule, {seeds}, trained in bfloat16, beside {len(before)} by the fast one. AUROC against SVHN; the paper has {theirs[STAR]:.1f} for REGrad* and {theirs['Entropy']:.1f} for entropy. "
            f"{100 * fmean(right):.1f} % of the answers are right (fast {100 * fmean(before):.1f} %); as many were expected, or more: {said[0]}. REGrad* changes by {gaps[STAR]:+.1f} and entropy by {gaps['Entropy']:+.1f} points; less than {BOUND:.0f} were expected of both: {said[1]}. "
            + _beyond_the_paper(own["Entropy"], fast["Entropy"], theirs["Entropy"], span)
            + f"With the fast schedule {_first(ahead[1])} is ahead; it was expected to stay ahead: {said[2]}. REGrad* less entropy is {leads[0]:+.1f} (fast {leads[1]:+.1f}, the paper {leads[2]:+.1f}).{more}",
        )
    ]  # fmt: skip


def _beyond_the_paper(own: float, fast: float, theirs: float, span: list[float]) -> str:
    """What is said of entropy where the schedule moves it further than it was from the paper."""
    if abs(own - fast) <= abs(theirs - fast) or min(span) <= own <= max(span):
        return ""
    return (
        f"So the schedule moves entropy further than the fast one is from the paper ({abs(theirs - fast):.1f}), "
        f"and out of what the {len(span)} fast networks have ({min(span):.1f} to {max(span):.1f}): training may be a reason there. One more network would tell whether it is this one alone. "
    )


def _seeds(study: str, row: str, column: str) -> list[float]:
    """AUROC of a row, network by network."""
    cells = (c for c in parts(study)[0][0]["cells"] if (c["row"], c["column"]) == (row, column))
    return [c["metrics"]["auroc"] for c in cells if "metrics" in c]


def _first(star: bool) -> str:
    return "REGrad*" if star else "entropy"


def _both(study: str, column: str, part: int) -> str:
    star, entropy = (cell(study, row, column, part=part).mean for row in (STAR, "Entropy"))
    return f"REGrad* {star:.1f} and entropy {entropy:.1f}"


def _right(study: str, plan: str) -> list[float]:
    """The shares of right answers of the networks of a plan, in all runs of a study."""
    found = {
        one["seed"]: one["accuracy"]
        for path in files(study)
        for one in json.loads(path.read_text())["models"]
        if one["plan"] == plan
    }
    return list(found.values())


def transformers() -> list[Claim]:
    """Whether it holds on transformers."""
    return [
        Claim(
            REGRAD, "It holds on transformers", f"{lines('table10', STAR)[0].averages[''].paper:.1f}, first",
            f"{lines('table10', STAR)[0].averages[''].mean:.1f}, {rank('table10', STAR)}", PARTLY, "table10",
            "REGrad* is first in both. The numbers cannot be compared: the paper takes `vit_timm` of a public repository, a pretrained ViT-B/16 at 384 pixels; ours "
            "have six layers and are trained from nothing.",
        ),
    ]  # fmt: skip


def hundred() -> list[Claim]:
    """What CIFAR-100 says with a network that can be trained several times."""
    name, column, scenes = "hundred", "cifar100→svhn", "cifar100→scenes"
    foreign = [one for one in (column, scenes) if one in ran(name, "auroc", 0)]

    def value(row: str, where: str = column, metric: str = "auroc", part: int = 0) -> float | None:
        found = cell(name, row, where, metric, part).mean
        return None if found is None else float(found)

    rows = (STAR, "Entropy", "ExGrad, L2")
    star, entropy, exgrad = (value(row) for row in rows)
    if star is None or entropy is None or exgrad is None:
        return []
    theirs = {row: cell(name, row, column, part=0).paper for row in rows}
    count = cell(name, STAR, column, part=0).seeds
    networks = f"{WORDS[count]} ResNet18" if count > 1 else "one ResNet18"
    ahead = [star > entropy, star > exgrad]
    errors = [value(row, "cifar100", "raulc", 1) for row in (STAR, "Entropy")]
    told = (
        f" Errors: rAULC {errors[0]:.3f}, entropy {errors[1]:.3f}."
        if errors[0] is not None and errors[1] is not None
        else ""
    )
    other = (
        f" Against scenes REGrad* has {value(STAR, scenes):.1f} and entropy {value('Entropy', scenes):.1f}."
        if scenes in foreign
        and value(STAR, scenes) is not None
        and value("Entropy", scenes) is not None
        else ""
    )
    return [
        Claim(
            REGRAD, "Of 100 classes gradients know far more", f"REGrad* {theirs[STAR]:.1f}, entropy {theirs['Entropy']:.1f}",
            f"REGrad* {star:.1f}, entropy {entropy:.1f}", HOLDS if all(ahead) else PARTLY if any(ahead) else NOT, name,
            f"CIFAR-100 against SVHN, AUROC. The paper has ResNet152, here {'is' if count == 1 else 'are'} {networks} of 16 epochs, and 500 pictures of each set; ResNet152 with one seed has {cell('table1', STAR, column).mean:.1f} and {cell('table1', 'Entropy', column).mean:.1f} "
            f"(`table1`). ExGrad has {exgrad:.1f} (the paper {theirs['ExGrad, L2']:.1f}). Expected was that REGrad* is ahead of entropy and of ExGrad: "
            + ("so it is." if all(ahead) else f"that fails for {' and '.join(word for word, one in zip(('entropy', 'ExGrad'), ahead, strict=True) if not one)}.")
            + other + told,
        ),
        *_norms(column),
        *_ensemble(star, networks),
    ]  # fmt: skip


def _norms(column: str) -> list[Claim]:
    """Whether it matters how the baselines of gradients are measured."""
    name, noise = "hundred", "NEGrad"
    gaps = {}
    for row in (noise, "UNGrad", "ExGrad", "GradNorm as published"):
        one, two = (cell(name, f"{row}, L{norm}", column, part=0).mean for norm in (1, 2))
        if one is not None and two is not None:
            gaps[row] = one - two
    own = {row: gap for row, gap in gaps.items() if row != noise}
    if not own:
        return []
    most = max(own, key=lambda row: abs(own[row]))
    beyond = [row for row, gap in gaps.items() if abs(gap) >= BOUND]
    verdict = HOLDS if not beyond else PARTLY if beyond == [noise] else DOES_NOT
    return [
        Claim(
            REGRAD, "L1 or L2 matters little (100 classes)", "–", f"{own[most]:+.1f} points, {most.removesuffix(' as published')}", verdict, name,
            "Ours. The paper takes the better of summed magnitudes (L1) and lengths (L2) for each baseline of gradients. AUROC with L1 less that with L2, CIFAR-100 against SVHN: "
            + ", ".join(f"{row} {gap:+.1f}" for row, gap in gaps.items())
            + f". Less than {BOUND:.0f} points were expected: "
            + (f"that fails for {' and '.join(beyond)}{', which is round-off' if beyond == [noise] else ''}." if beyond else "so it is."),
        )
    ]  # fmt: skip


def _ensemble(star: float, networks: str) -> list[Claim]:
    """Whether several networks know more than the gradients of one."""
    name, column = "hundred", "cifar100→svhn"
    mutual = cell(name, "Deep ensemble, mutual information", column, part=0).mean
    if mutual is None:
        return []
    return [
        Claim(
            REGRAD, "An ensemble knows no more (100 classes)", "–", f"MI {mutual:.1f}, REGrad* {star:.1f}", HOLDS if mutual <= star else DOES_NOT, name,
            f"Ours. Mutual information of the {networks} together, CIFAR-100 against SVHN, AUROC; REGrad* is the mean of each by itself. Expected was that the ensemble is no better: {'so it is' if mutual <= star else 'that fails'}.",
        )
    ]  # fmt: skip
