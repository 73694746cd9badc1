"""Propositions of the REGrad paper, in numbers."""

from __future__ import annotations

import json
import re

from claims import HOLDS, PARTLY, REGRAD, Claim
from results import cell, files, ran

from nescio_papers.regrad.propositions import BRIEF

NAME = "propositions"
NETWORKS = {
    "mnist": "the CNN of MNIST",
    "svhn": "the CNN of SVHN",
    "cifar10": "ResNet18 of CIFAR-10",
    "vit-cifar10": "a small ViT of CIFAR-10",
}


def propositions() -> list[Claim]:
    """What each proposition says, network after network."""
    source = {
        column: scale
        for scale in (
            f"{NAME}@small",
            f"{NAME}@quick",
        )  # the larger scale, where a network has both
        if files(scale)
        for column in ran(scale, "ratio")
    }
    known = [column for column in NETWORKS if column in source]
    results = {
        scale: [json.loads(path.read_text()) for path in files(scale)] for scale in source.values()
    }
    violated = [
        (int(found[1]), int(found[2]))
        for scale in dict.fromkeys(source[column] for column in known)
        for one in results[scale]
        for note in one["notes"]
        if (found := re.search(r"(\d+) of (\d+) pictures violate", note))
    ]
    bound = (
        "held for every picture and σ"
        if not any(broken for broken, _ in violated)
        else f"was expected to hold for every picture; at some σ it is exceeded for {' / '.join(f'{one} of {all_}' for one, all_ in violated)}"
    )

    def values(row: str, metric: str, part: int) -> list[float]:
        return [cell(source[column], row, column, metric, part).mean for column in known]

    def at(row: str, metric: str, part: int, digits: int = 0) -> str:
        return " / ".join(f"{value:,.{digits}f}" for value in values(row, metric, part))

    def span(row: str, metric: str, part: int, digits: int = 0) -> str:
        """The least and the most, where there are several networks."""
        low, high = (f"{end(values(row, metric, part)):,.{digits}f}" for end in (min, max))
        return low if low == high else f"{low} to {high}"

    test, foreign = (values(f"{one} pictures", "predicted", 2) for one in ("test", "foreign"))
    alike = [
        NETWORKS[c] for c, own, other in zip(known, test, foreign, strict=True) if own > 0.8 * other
    ]
    unlike = f": hardly longer than on test pictures for {' and '.join(alike)}" if alike else ""
    fine, usual, coarse = "σ = 1e-05", "σ = 0.001", "σ = 0.03"
    sizes = []
    for scale, (one, *_) in results.items():
        here = [column for column in known if source[column] == scale]
        settings = one["settings"]
        large = set(here) <= set(BRIEF)
        pictures, draws = (
            settings["pictures and draws of large networks"]
            if large
            else (settings["pictures"], settings["draws"])
        )
        sizes.append(
            f"{' and '.join(NETWORKS[name] for name in here)} ({pictures} test pictures, {draws} draws for each)"
        )
    return [
        Claim(
            REGRAD, "Prop. 3.5: ExGrad bounds Perturb θ", "proof", f"yes, {span(usual, 'looseness', 0)} times above", PARTLY, NAME,
            f"Noise of width σ on every parameter of {'; '.join(sizes)}. Medians over pictures; numbers in the order of the networks. "
            f"The bound {bound}. For small noise it is loose: {at(usual, 'looseness', 0)} times what it bounds for σ = 0.001, and {at(fine, 'looseness', 0)} times for σ = 0.00001: it falls like σ, the divergence like σ², as expected, "
            "since the term that it rests on [is zero](mathematics/gradients.md#why-gradients).",
        ),
        Claim(
            REGRAD, "Perturb θ is (σ²/2) Σ p‖g‖²", "–", f"ratio {span(fine, 'ratio', 0, 3)}", HOLDS, NAME,
            f"Ours: what does describe Perturb θ for small noise, without a draw. The ratio of the two is {at('σ = 0.0001', 'ratio', 0, 3)} at σ = 0.0001, {at(usual, 'ratio', 0, 3)} at 0.001, {at('σ = 0.01', 'ratio', 0, 2)} at 0.01 and {at(coarse, 'ratio', 0, 1)} at 0.03: "
            "it tends to 1 as σ falls, as expected. It is offered as the score `squared`.",
        ),
        Claim(
            REGRAD, "Prop. 3.3: inputs can mimic parameters", "proof", f"{span(fine, 'left', 1, 3)} left over", HOLDS, NAME,
            f"For noise of σ = 0.00001 on the parameters we take the change of the input that moves the logits alike, to first order: what is left of the difference, as a share of it. It is {at(fine, 'left', 1, 4)}, at σ = 0.0001 {at('σ = 0.0001', 'left', 1, 3)}, "
            f"at 0.001 {at(usual, 'left', 1, 2)}. It was expected to fall in proportion to σ, and falls more slowly. The proof's own way (Eq. 24) divides by pixels; a share of {at('share of pixels that are zero', 'left', 1, 2)} of them is zero.",
        ),
        Claim(
            REGRAD, "Prop. 3.4: no gradient on known inputs", "proof", f"{span('test pictures', 'predicted', 2, 3)}, foreign {span('foreign pictures', 'predicted', 2, 1)}", PARTLY, NAME,
            f"Median length of the gradient of the predicted class: {at('training pictures', 'predicted', 2, 3)} on training pictures, {at('test pictures', 'predicted', 2, 3)} on test pictures, {at('foreign pictures', 'predicted', 2, 1)} on foreign ones{unlike}. For the other classes it is long on all, as expected: "
            f"{at('training pictures', 'others', 2)}, {at('test pictures', 'others', 2)} and {at('foreign pictures', 'others', 2)}.",
        ),
    ]  # fmt: skip
