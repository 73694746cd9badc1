"""Claims of the REGrad paper on active learning, and on a hundred classes."""

from __future__ import annotations

import math

from claims import ARTEFACT, HOLDS, NOT, PARTLY, REGRAD, STAR, Claim
from results import cell, files, lines, pair, parts, ran, rank

from nescio_papers.regrad.label_charts import interval, twice_sure

STUDY = "acquisition"
WORDS = {2: "two", 3: "three"}
FULL = {"cifar10": "CIFAR-10", "mnist": "MNIST", "svhn": "SVHN"}


def named(columns: list[str]) -> str:
    """Data sets as in "MNIST, SVHN and CIFAR-10"."""
    words = [FULL[column] for column in columns]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def gain(row: str, column: str, over: str = "Random") -> tuple[float, float]:
    """By how many points a method is ahead of another with the same seeds, and half of the 95 % interval."""
    cells = [one for one in parts(STUDY)[0][0]["cells"] if one["column"] == column]
    one, two = (
        {c["seed"]: 100 * c["metrics"]["acc"] for c in cells if c["row"] == name and "metrics" in c}
        for name in (row, over)
    )
    values = [value - two[seed] for seed, value in one.items() if seed in two]
    return sum(values) / len(values), interval(values)


def _sure(gap: tuple[float, float]) -> str:
    """A difference with its interval, where there are several seeds."""
    mean, half = gap
    return f"{mean:+.1f} ± {half:.1f}" if half else f"{mean:+.1f}"


def labels() -> list[Claim]:
    """Whether REGrad* chooses best what to label: by the paper's protocol, or, before that was run, by table3."""
    about = "Active learning: in each round the pictures that a score doubts most get labels, and the network is trained again. "
    if not files(f"{STUDY}@quick"):
        return [
            Claim(
                REGRAD, "REGrad* chooses best what to label", f"{lines('table3', STAR)[0].averages['acc'].paper:.1f} %, first",
                f"{lines('table3', STAR)[0].averages['acc'].mean:.1f} %, {rank('table3', STAR)}", NOT, "table3",
                f"{about}Mean accuracy on MNIST and CIFAR-10, with one seed and 50 epochs instead of 200: one seed ranks nothing, so this says little either way. "
                f"The study with the paper's protocol and five seeds is written (`{STUDY}`), and not run as a whole.",
            )
        ]  # fmt: skip
    columns = ran(STUDY, "acc")
    made = parts(STUDY)[0][1].lines
    rows = {
        column: [
            line.label
            for line in made
            if line.label != "Random" and line.values[column, "acc"].mean is not None
        ]
        for column in columns
    }
    acc = {c: {row: cell(STUDY, row, c, "acc", 0).mean for row in rows[c]} for c in columns}
    places = [1 + sum(value > acc[c][STAR] for value in acc[c].values()) for c in columns]
    told = []
    clear = []
    for column in columns:
        gains = {row: gain(row, column) for row in rows[column]}
        ahead = [row for row, (mean, half) in gains.items() if half and mean > half]
        behind = [row for row, (mean, half) in gains.items() if half and -mean > half]
        best, (most, _) = max(gains.items(), key=lambda item: item[1][0])
        over = {other: gain(STAR, column, other) for other in rows[column] if other != STAR}
        clear += [bool(half) and mean > half for mean, half in over.values()]
        beaten = [other for other, (mean, half) in over.items() if half and mean > half]
        told.append(
            f"{FULL[column]}, {cell(STUDY, STAR, column, 'acc', 0).seeds} seeds: REGrad* is {_sure(gains[STAR])} points over random choice (95 % interval), {_sure(over['Entropy'])} over entropy and "
            f"{_sure(over['ExGrad, L2'])} over ExGrad; the most over random choice has {_listed([best])} with {most:+.1f}. Clear of random choice {'are ' + _listed(ahead) if ahead else 'is none'}, "
            f"certainly worse {'are ' + _listed(behind) if behind else 'is none'}; REGrad* is certainly ahead of {_listed(beaten) if beaten else 'none'}"
        )
    verdict = HOLDS if all(clear) else PARTLY if set(places) == {1} else NOT
    theirs = " and ".join(
        f"{cell(STUDY, STAR, c, 'acc', 0).paper - cell(STUDY, 'Entropy', c, 'acc', 0).paper:.1f} points on {FULL[c]}"
        for c in columns
    )
    return [
        Claim(
            REGRAD, "REGrad* chooses best what to label", f"{pair(STUDY, STAR, tuple(columns), metric='acc', paper=True, part=0)} %, first",
            f"{pair(STUDY, STAR, tuple(columns), metric='acc', part=0)} %, {' / '.join(f'{place} of {len(rows[c])}' for place, c in zip(places, columns, strict=True))}", verdict, STUDY,
            f"{about}{named(columns)}, 200 epochs and ten rounds as in the paper, 10,000 pictures to choose from; mean accuracy over the rounds, differences with the same seed. {'. '.join(told)}. "
            f"The paper has REGrad* ahead of entropy by {theirs}.",
            STUDY,
        )
    ]  # fmt: skip


def _listed(rows: list[str]) -> str:
    return ", ".join(row.removesuffix(", k = 2").removesuffix(", L2") for row in rows)


def likelihood() -> list[Claim]:
    """What the paper's column of NLL is."""
    sums = [
        line.values["cifar10", "acc"].paper / 100 + line.values["cifar10", "nll"].paper
        for line in {
            line.paper_row: line for line in parts("table3")[0][1].lines if line.paper_row
        }.values()
    ]
    why = (
        f"In all {len(sums)} rows of the paper's CIFAR-10 accuracy and NLL add up to nearly one number, {min(sums):.3f} to {max(sums):.3f}. The loss of a network that is sure of all its answers would be "
        f"just that, if its probabilities were passed through softmax once more: log(e + C − 1) − accuracy with C classes, and log(e + 9) = {math.log(math.e + 9):.3f}. So the column is almost certainly the cross-entropy of "
        "softmax outputs, another quantity than NLL."
    )
    if not files(f"{STUDY}@quick"):
        nll = lines("table3", STAR)[0].values["cifar10", "nll"]
        return [
            Claim(
                REGRAD, "NLL in active learning (C10)", f"{nll.paper:.2f}", f"{nll.mean:.2f}", ARTEFACT, "table3",
                f"REGrad*'s NLL on CIFAR-10. {why}", "nll-identity",
            )
        ]  # fmt: skip
    columns = tuple(ran(STUDY, "acc"))

    def far(metric: str) -> str:
        gaps = [
            max(
                abs(line.values[column, metric].mean - line.values[column, "twice"].paper)
                for line in parts(STUDY)[0][1].lines
                if line.paper_row and line.values[column, metric].mean is not None
            )
            for column in columns
        ]
        return " / ".join(f"{gap:.2f}" for gap in gaps)

    def off(metric: str) -> float:
        """How far a number is from what a network gives that is sure of every answer, at most."""
        rows = [
            {name: line.values[column, name].mean for name in ("acc", metric)}
            for line in parts(STUDY)[0][1].lines
            for column in columns
            if line.values[column, metric].mean is not None
        ]
        return max(abs(row[metric] - twice_sure(row["acc"] / 100, 10)) for row in rows)

    twice, plain = (
        pair(STUDY, STAR, columns, 2, metric=metric, part=0) for metric in ("twice", "nll")
    )
    return [
        Claim(
            REGRAD, "NLL in active learning", pair(STUDY, STAR, columns, 2, True, metric="twice", part=0),
            f"{plain}", ARTEFACT, STUDY,
            f"REGrad*'s NLL on {named(list(columns))}. {why} Cross-entropy of softmax outputs is {twice} here. Over all methods it is at most {far('twice')} from the paper's numbers, and NLL {far('nll')}; expected was 0.05 for the first, and not for the second. From log(e + 9) − our own accuracy it is at most {off('twice'):.3f} away, NLL {off('nll'):.2f}.",
            "nll-identity",
        )
    ]  # fmt: skip


def hundred() -> list[Claim]:
    """What CIFAR-100 says with a network that can be trained several times."""
    name, column, scenes = "hundred", "cifar100→svhn", "cifar100→scenes"
    rows = ("Entropy", "ExGrad, L2", STAR)
    ours = {row: cell(name, row, column, part=0) for row in rows}
    norms = [
        cell(name, f"{row}, L1", column, part=0).mean - cell(name, f"{row}, L2", column, part=0).mean
        for row in ("UNGrad", "ExGrad", "GradNorm as published")
    ]  # fmt: skip
    several = cell(name, "Deep ensemble, mutual information", column, part=0).mean
    seeds = WORDS[ours[STAR].seeds]
    lead, theirs = (
        ours[STAR].mean - ours["Entropy"].mean,
        ours[STAR].paper - ours["Entropy"].paper,
    )
    errors = [cell(name, row, "cifar100", "raulc", 1).mean for row in (STAR, "Entropy")]
    return [
        Claim(
            REGRAD, "Of 100 classes gradients know far more", f"REGrad* {ours[STAR].paper:.1f}, entropy {ours['Entropy'].paper:.1f}",
            f"REGrad* {ours[STAR].mean:.1f}, entropy {ours['Entropy'].mean:.1f}", HOLDS if lead > theirs / 2 else PARTLY if lead > 0 else NOT, name,
            f"CIFAR-100 against SVHN, AUROC. The paper has ResNet152, these are {seeds} ResNet18 of 16 epochs, trained on 25,000 pictures, and 500 pictures of each set; ResNet152 with one seed has {cell('table1', STAR, column).mean:.1f} and {cell('table1', 'Entropy', column).mean:.1f} "
            f"(`table1`). ExGrad has {ours['ExGrad, L2'].mean:.1f} (the paper {ours['ExGrad, L2'].paper:.1f}). Against scenes REGrad* has {cell(name, STAR, scenes, part=0).mean:.1f} and entropy {cell(name, 'Entropy', scenes, part=0).mean:.1f}. "
            f"Summed magnitudes (L1) in the place of lengths (L2) move UNGrad, ExGrad and GradNorm by {' / '.join(f'{gap:+.1f}' for gap in norms)} points; expected was less than three. Mutual information of the {seeds} networks has {several:.1f}; expected was no more than REGrad*. "
            f"Errors: rAULC {errors[0]:.3f}, entropy {errors[1]:.3f}.",
        )
    ]  # fmt: skip
