"""What was asked and has no result, found by looking at the results: the list shrinks by itself."""

from __future__ import annotations

from claims import STAR
from claims_attention import rows
from claims_labels import accuracies, methods, sets
from results import SCALES, files, parts, ran
from runs_again import not_again

from nescio_papers.ua_backprop.signs import HALF, HOW

SETS = {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def not_run() -> list[str]:
    """A line for each."""
    made: list[str] = []

    def asked(about: str, missing: bool = True) -> None:
        if missing:
            made.append(about)

    for line in (*_learning(), *_signs()):
        asked(line)
    scales = (f"propositions@{scale}" for scale in SCALES)
    proved = [name for scale in scales if files(scale) for name in ran(scale, "ratio")]
    networks = {
        "mnist": "the CNN of MNIST",
        "svhn": "the CNN of SVHN",
        "cifar10": "ResNet18 of CIFAR-10",
        "vit-cifar10": "a ViT of CIFAR-10",
    }
    left = [network for known, network in networks.items() if known not in proved]
    asked(f"The propositions on {_listed(left)}.", bool(left))
    pairs = [c for c in ("svhn→cifar10", "svhn→cifar100") if c not in ran("readings", "auroc")]
    asked(
        "The readings of the formulas on SVHN; the pairs above are MNIST's and CIFAR-10's.",
        len(pairs) == 2,
    )
    asked(
        f"The readings of the formulas on SVHN against {SETS.get(''.join(pairs).partition('→')[2])}.",
        len(pairs) == 1,
    )
    asked(
        "Mitigation with softmax normalisation, flat controls of each row's own mean, and NLL after temperature scaling.",
        not files("ua-attention"),
    )
    attended = rows() if files("ua-attention") else {}
    alone = [name for known, name in SETS.items() if known != "cifar100" and known not in attended]
    asked(
        f"Mitigation with flat controls and temperature scaling on {_listed(alone)}.",
        bool(attended and alone),
    )
    fewer = [
        SETS[known]
        for known, own in attended.items()
        if not any("Grad, " in row and "UA" not in row for row in own)
    ]
    asked(f"Mitigation with the maps of Grad and IG on {_listed(fewer)}.", bool(fewer))
    small = bool(files("hundred"))
    asked("L1 rows, a second seed and an ensemble for CIFAR-100.", not small)
    asked("L1 rows and a second seed of ResNet152 on CIFAR-100; `hundred` has ResNet18.", small)
    columns = [c for at in range(len(parts("schedules"))) for c in ran("schedules", "auroc", at)]
    own = "cifar10→svhn" in columns
    asked(
        "The paper's own schedule for CIFAR-10 and CIFAR-100, which takes longer than there was a GPU.",
        not own,
    )
    asked(
        "The paper's own schedule for CIFAR-100, which takes longer than there was a GPU, and a second network by that of CIFAR-10.",
        own,
    )
    old = not_again()
    asked(
        f"A second run of early files whose commit was not recorded: {'; '.join(old)}.", bool(old)
    )
    asked("SVHN with all 73,257 training pictures, which are not at hand.")
    asked(
        "LSUN, which is not at hand; `scenes` is another set of scenes, and has no number of the paper beside it."
    )
    return made


def _learning() -> list[str]:
    """What is missing of active learning: sets, seeds, methods, pictures of the pool."""
    if not files("acquisition@quick"):
        return [
            "Active learning with the paper's protocol: 200 epochs, the whole pool, five seeds, differences from random acquisition."
        ]
    made = []
    known = sets()
    left = [SETS[one] for one in SETS if one not in known]
    if left:
        made.append(f"Active learning with the paper's protocol on {_listed(left)}.")
    few = [
        f"{SETS[one]} ({_count(len(accuracies(STAR, one)))})"
        for one in known
        if len(accuracies(STAR, one)) < 5
    ]
    if few:
        made.append(f"Active learning with five seeds on {_listed(few)}.")
    twelve = len(methods("mnist")) if "mnist" in known else 12
    fewer = [
        f"{twelve - len(methods(one))} of {twelve} on {SETS[one]}"
        for one in known
        if len(methods(one)) < twelve
    ]
    if fewer:
        made.append(
            f"Active learning with all of the paper's methods; missing are {_listed(fewer)}."
        )
    made.append(
        f"Active learning with the whole pool{'' if known == ['mnist'] else ' on MNIST'} (10,000 pictures of it were searched), and with all validation pictures (2,000 were used)."
    )
    return made


def _signs() -> list[str]:
    """What is missing of the test of signs: whole sets, halves, widths."""
    columns = ran("ua-signs", "murr5") if files("ua-signs") else []
    made = []
    left = [
        SETS[one] for one in SETS if not any(column.startswith(f"{one}→") for column in columns)
    ]
    for one, name in SETS.items():
        missing = [how for how in HOW if f"{one}→{how}" not in columns]
        if missing == [how for how in HOW if how.startswith(HALF)]:
            made.append(f"The test of signs on the upper half of {name}.")
        elif missing and name not in left:
            made.append(f"The test of signs on {name}: {'; '.join(missing)}.")
    if left:
        made.append(
            f"The test of signs on {_listed(left)}: whether UA-Backprop's place depends on which pictures are chosen is open there."
        )
    return made


def _count(seeds: int) -> str:
    return f"{seeds} seeds were run" if seeds > 1 else "one was run"


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
