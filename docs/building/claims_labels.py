"""Claims of the REGrad paper on active learning, and on a hundred classes."""

from __future__ import annotations

import math

from claims import ARTEFACT, HOLDS, NOT, PARTLY, REGRAD, STAR, Claim
from results import cell, files, lines, pair, parts, ran, rank

from nescio_papers.regrad.label_charts import interval

STUDY = "acquisition"
FULL = {"cifar10": "CIFAR-10", "mnist": "MNIST", "svhn": "SVHN"}


def named(columns: list[str]) -> str:
    """Data sets as in "MNIST, SVHN and CIFAR-10"."""
    words = [FULL[column] for column in columns]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def gain(row: str, column: str) -> tuple[float, float]:
    """By how many points a method is ahead of random acquisition, and half of the 95 % interval."""
    cells = parts(STUDY)[1][0]["cells"]
    values = [
        100 * one["metrics"]["gain"]
        for one in cells
        if (one["row"], one["column"]) == (row, column) and "metrics" in one
    ]
    return sum(values) / len(values), interval(values)


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
    rows = [line.label for line in parts(STUDY)[1][1].lines]
    places = [
        1 + sum(cell(STUDY, row, column, "acc").mean > cell(STUDY, STAR, column, "acc").mean for row in rows)
        for column in columns
    ]  # fmt: skip
    told = []
    for column in columns:
        gains = {row: gain(row, column) for row in rows}
        ahead = [row for row, (mean, half) in gains.items() if half and mean > half]
        behind = [row for row, (mean, half) in gains.items() if half and -mean > half]
        best, (most, _) = max(gains.items(), key=lambda item: item[1][0])
        mean, half = gains[STAR]
        told.append(
            f"{FULL[column]}, {cell(STUDY, STAR, column, 'acc').seeds} seeds: REGrad* {mean:+.1f} ± {half:.1f} points over random choice (95 % interval), the most has {best} with "
            f"{most:+.1f}; certainly better than random {'are ' + _listed(ahead) if ahead else 'is none'}, certainly worse {_listed(behind) if behind else 'none'}"
        )
    verdict = HOLDS if set(places) == {1} else PARTLY if 1 in places else NOT
    return [
        Claim(
            REGRAD, "REGrad* chooses best what to label", f"{pair(STUDY, STAR, tuple(columns), metric='acc', paper=True)} %, first",
            f"{pair(STUDY, STAR, tuple(columns), metric='acc')} %, {' / '.join(map(str, places))} of {len(rows)}", verdict, STUDY,
            f"{about}{named(columns)}, the paper's protocol: 200 epochs, the whole pool, ten rounds; mean accuracy over the rounds. {'. '.join(told)}.",
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

    twice, plain = (pair(STUDY, STAR, columns, 2, metric=metric) for metric in ("twice", "nll"))
    return [
        Claim(
            REGRAD, "NLL in active learning", pair(STUDY, STAR, columns, 2, True, metric="twice"),
            f"{plain}", ARTEFACT, STUDY,
            f"REGrad*'s NLL on {named(list(columns))}. {why} Cross-entropy of softmax outputs is {twice} here. Over all methods it is at most {far('twice')} from the paper's numbers, and NLL {far('nll')}; expected was 0.05 for the first, and not for the second.",
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
    lead, theirs = (
        ours[STAR].mean - ours["Entropy"].mean,
        ours[STAR].paper - ours["Entropy"].paper,
    )
    errors = [cell(name, row, "cifar100", "raulc", 1).mean for row in (STAR, "Entropy")]
    return [
        Claim(
            REGRAD, "Of 100 classes gradients know far more", f"REGrad* {ours[STAR].paper:.1f}, entropy {ours['Entropy'].paper:.1f}",
            f"REGrad* {ours[STAR].mean:.1f}, entropy {ours['Entropy'].mean:.1f}", HOLDS if lead > theirs / 2 else PARTLY if lead > 0 else NOT, name,
            f"CIFAR-100 against SVHN, AUROC. The paper has ResNet152, these are three ResNet18 of 16 epochs and 500 pictures of each set; ResNet152 with one seed has {cell('table1', STAR, column).mean:.1f} and {cell('table1', 'Entropy', column).mean:.1f} "
            f"(`table1`). ExGrad has {ours['ExGrad, L2'].mean:.1f} (the paper {ours['ExGrad, L2'].paper:.1f}). Against scenes REGrad* has {cell(name, STAR, scenes, part=0).mean:.1f} and entropy {cell(name, 'Entropy', scenes, part=0).mean:.1f}. "
            f"Summed magnitudes (L1) in the place of lengths (L2) move UNGrad, ExGrad and GradNorm by {' / '.join(f'{gap:+.1f}' for gap in norms)} points; expected was less than three. Mutual information of the three networks has {several:.1f}; expected was no more than REGrad*. "
            f"Errors: rAULC {errors[0]:.3f}, entropy {errors[1]:.3f}.",
        )
    ]  # fmt: skip
