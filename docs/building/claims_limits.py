"""Claims on what networks say far away, and our own."""

from __future__ import annotations

from claims import ARTEFACT, DOES_NOT, HOLDS, KYL, OWN, PARTLY, STAR, Claim
from results import average, cell, measured, parts


def limits() -> list[Claim]:
    """Claims on ReLU networks far away."""
    escape = measured("escape")
    cases = escape["cases"].values()
    rows = {(row["case"], row["score"]): row for row in escape["rows"]}

    def far(score: str) -> str:
        shares = [rows[case, score]["flagged"][-1] for case in ("moons", "wine")]
        return " / ".join(f"{100 * share:.0f}" for share in shares) + " %"

    moons = [
        line.label
        for line in parts("kyl-moons")[0][1].lines
        if line.label.endswith(("max probability", "entropy", "variance", "mutual information"))
        and not line.label.startswith("dropout left off")
    ]
    between, beyond = (
        [cell("kyl-moons", row, f"moons→{place}").mean for row in moons]
        for place in ("between", "100×")
    )
    kinds = list(dict.fromkeys(row.partition(",")[0] for row in moons))
    several = next(score for _, score in rows if score.startswith("mutual"))
    last = "breast cancer→×10,000"
    return [
        Claim(
            KYL, "Prop. 2: far away one class wins", "proof",
            f"{sum(case['one_hot'] for case in cases)} of {sum(case['rays'] for case in cases)} rays", HOLDS, "escape",
            "A ReLU network is made of linear pieces. We walked along rays out of the data of two trained networks, from piece to piece to the last one, and looked whether one class gets all the probability there. "
            f"REGrad falls exponentially on the way, at the rate of [the derivation](limits.md) to {100 * max(c['rate_largest'] - 1 for c in cases):.1f} %.",
        ),
        Claim(
            KYL, "Prop. 1, Lemmas 4–7: doubt stands still", "proof",
            f"rays flagged: {far('entropy')}, by MI {far(several)}", HOLDS, "escape",
            "Share of the rays on which entropy, and MI of five networks, is higher than on 95 % of held-out data, at 1,024 times the spread of the data (half-moons, wine): all rays should be flagged. Several networks keep doubt where they disagree far away, and "
            f"that share does not grow. Mahalanobis distance flags {far('mahalanobis')}. [Gradient scores do not escape either](limits.md).",
        ),
        Claim(
            KYL, "Half-moons: no doubt far away", "figure",
            f"between {min(between):.0f} to {max(between):.0f}, far {min(beyond):.0f} to {max(beyond):.0f}", HOLDS, "kyl-moons",
            f"AUROC of two kinds of places against held-out points: between the moons, and at a hundred times the radius of the data. {len(kinds)} kinds of networks ({', '.join(kinds)}) with {len(moons)} scores in all: "
            "every one is in doubt between the classes, and none far away. [The surfaces](limits.md) look like the paper's.",
        ),
        Claim(
            KYL, "Scaled features are not noticed", "figure",
            f"entropy {cell('kyl-scaling', 'one network: entropy', last).mean:.1f}, ensemble's MI "
            f"{cell('kyl-scaling', 'ensemble: mutual information', last).mean:.1f}", HOLDS, "kyl-scaling",
            "AUROC where one feature of a table of breast-cancer data is multiplied by 10,000: below 50 a score is surer of the nonsense than of the data. Mahalanobis distance "
            f"has {cell('kyl-scaling', 'one network: Mahalanobis', last).mean:.1f}.",
        ),
        Claim(
            KYL, "Public code's mutual information", "figure: high far away",
            f"between the moons {cell('kyl-moons', 'ensemble, public code' + chr(39) + 's MI', 'moons→between').mean:.1f}, ours "
            f"{cell('kyl-moons', 'ensemble, mutual information', 'moons→between').mean:.1f}", ARTEFACT, "kyl-moons",
            "AUROC of two kinds of places against held-out points of the half-moons. What the paper's public code computes is a constant less the mean entropy of the networks: it is high wherever each network is sure. "
            f"So it seems to see far places ({cell('kyl-moons', 'ensemble, public code' + chr(39) + 's MI', 'moons→2×').mean:.1f} at twice the radius; mutual information "
            f"has {cell('kyl-moons', 'ensemble, mutual information', 'moons→2×').mean:.1f}), and calls places between the classes the least uncertain of all.",
        ),
    ]  # fmt: skip


def own() -> list[Claim]:
    """Claims of our own."""
    found: dict[str, list[float]] = {}
    for part, made in parts("guard"):
        if part["title"].endswith("AUROC of foreign pictures"):
            for line in made.lines:
                found.setdefault(line.label, []).extend(
                    value.mean for value in line.values.values()
                )
    means = {name: sum(values) / len(values) for name, values in found.items()}
    best = max((mean, name) for name, mean in means.items() if name != "guard")
    first = [
        max(values)
        for values in zip(
            *(values for name, values in found.items() if name != "guard"), strict=True
        )
    ]
    near = sum(own >= single - 0.5 for own, single in zip(found["guard"], first, strict=True))
    even, star = (average("table1", row, both=False) for row in ("EvenGrad", STAR))
    ex, top, h = (
        cell("language", row, "docstrings").mean for row in ("exgrad", "max_probability", "entropy")
    )
    code = {row: cell("language", row, "code").mean for row in ("nll", "energy")}
    return [
        Claim(
            OWN, "The guard beats each single score", "–",
            f"{means['guard']:.1f}, best single {best[0]:.1f}", PARTLY, "guard",
            f"Mean AUROC of {len(first)} pairs; the best single score is `{best[1]}`. On average yes; within half a point of the best single score of the pair, or above, on {near}. "
            "It loses where foreign pictures look more typical than known ones. Its form was chosen on changed pictures, and on the foreign sets of MNIST and SVHN, which takes part of the worth of those numbers.",
        ),
        Claim(
            OWN, "EvenGrad is good everywhere", "–", f"{even:.1f}, REGrad* {star:.1f}", DOES_NOT, "even",
            "EvenGrad is our own weighting of the gradients, mean AUROC of eight pairs. Better than REGrad* on MNIST and CIFAR-10, not on SVHN; on CIFAR-100 worse against SVHN, better against scenes. The score that is good everywhere is not found.",
        ),
        Claim(
            OWN, "Gradients tell more of next characters", "–", f"{ex:.1f}, max_probability {top:.1f}", DOES_NOT, "language",
            f"A small language model, three seeds: wrong predictions of the next character told from right ones, AUROC of ExGrad of the last layer; entropy has {h:.1f}. That it would not was expected. Not expected: "
            f"code is told from docstrings better by energy ({code['energy']:.1f}) than by the likelihood of the text itself ({code['nll']:.1f}).",
        ),
    ]  # fmt: skip
