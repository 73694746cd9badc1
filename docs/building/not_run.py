"""What was asked and has no result, found by looking at the results: the list shrinks by itself."""

from __future__ import annotations

from results import SCALES, files, ran

SETS = {"mnist": "MNIST", "svhn": "SVHN", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}


def not_run() -> list[str]:
    """A line for each."""
    made: list[str] = []

    def asked(about: str, missing: bool = True) -> None:
        if missing:
            made.append(about)

    learned = ran("acquisition", "acc") if files("acquisition@quick") else []
    asked(
        "Active learning with the paper's protocol: 200 epochs, the whole pool, five seeds, differences from random acquisition.",
        not learned,
    )
    left = [SETS[known] for known in SETS if known not in learned]
    asked(f"Active learning with the paper's protocol on {_listed(left)}.", bool(learned and left))
    asked(
        "Active learning with the whole pool (10,000 pictures of it were searched)"
        + ("; of SVHN seven of the twelve methods." if "svhn" in learned else "."),
        bool(learned),
    )
    turned = {column.partition("→")[0] for column in ran("ua-signs", "murr5")}
    halves = [
        SETS[one.partition("→")[0]] for one in ran("ua-signs", "murr5") if "upper half" in one
    ]
    left = [name for known, name in SETS.items() if known in turned and name not in halves]
    asked(f"The test of signs on the upper half of {_listed(left)}.", bool(left))
    left = [SETS[known] for known in SETS if known not in turned]
    asked(
        f"The test of signs on {_listed(left)}: whether UA-Backprop's place depends on which pictures are chosen is open there.",
        bool(left),
    )
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
    asked(
        "The readings of the formulas on SVHN; the four pairs above are MNIST's and CIFAR-10's.",
        not any(column.startswith("svhn") for column in ran("readings", "auroc")),
    )
    asked(
        "Mitigation with softmax normalisation, flat controls of each row's own mean, and NLL after temperature scaling.",
        not files("ua-attention"),
    )
    small = bool(files("hundred"))
    asked("L1 rows, a second seed and an ensemble for CIFAR-100.", not small)
    asked("L1 rows and a second seed of ResNet152 on CIFAR-100; `hundred` has ResNet18.", small)
    asked(
        "The paper's own schedule for CIFAR-10 and CIFAR-100, which takes longer than there was a GPU; SVHN with all 73,257 training pictures, which are not at hand."
    )
    asked(
        "LSUN, which is not at hand; `scenes` is another set of scenes, and has no number of the paper beside it."
    )
    return made


def _listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
