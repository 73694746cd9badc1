"""Claims on maps, on what networks say far away, and our own; `claims` has those of the REGrad paper, and the words."""

from __future__ import annotations

import json

from claims import ARTEFACT, DOES_NOT, HOLDS, KYL, NOT, OURS, OWN, PARTLY, STAR, UA, Claim, ran
from results import average, cell, files, lines, measured, pair, parts, rank


def maps() -> list[Claim]:
    """Claims of the paper on maps."""
    sets = ("mnist", "cifar10", "svhn")
    acc = {
        row: lines("ua-table2", row, 0)[0].averages
        for row in (OURS, "No attention", "Random attention")
    }
    found = [average("ua-table1", row, both=False) for row in (OURS, "CLUE")]
    seconds = pair("ua-table1", OURS, sets, 2, metric="seconds", part=3)
    return [
        Claim(
            UA, "Its maps blame the right pixels", f"{pair('ua-table1', OURS, sets, 2, True, metric='murr5')}, first",
            f"{pair('ua-table1', OURS, sets, 2, metric='murr5')}, {rank('ua-table1', OURS)}", NOT, "ua-table1",
            "The blurring test: the share of the doubt that goes when the 5 % most blamed pixels are blurred, on MNIST, CIFAR-10 and SVHN. Signs decide it (the claim after the next two): integrated gradients "
            f"({pair('ua-table1', 'IG', sets, 2, metric='murr5')}) and Blur IG ({pair('ua-table1', 'Blur IG', sets, 2, metric='murr5')}) know whether a pixel adds doubt or takes it away, "
            "maps of magnitudes do not. The paper prints neither the width of the blur nor how pictures were chosen.",
        ),
        Claim(
            UA, "Training with its maps helps", f"{acc[OURS]['acc'].paper:.1f} %, none {acc['No attention']['acc'].paper:.1f} %",
            f"{acc[OURS]['acc'].mean:.1f} %, none {acc['No attention']['acc'].mean:.1f} %", ARTEFACT, "ua-table2",
            f"Maps of random numbers give {acc['Random attention']['acc'].mean:.1f} % at a negative log-likelihood of "
            f"{acc['Random attention']['nll'].mean:.2f}, its maps {acc[OURS]['nll'].mean:.2f}, no attention {acc['No attention']['nll'].mean:.2f} (means "
            "of three sets, three runs): what attention gains is not the maps' doing. It may be that features which are larger in training than in "
            "testing soften the answers; the control that settles this was not run.",
        ),
        Claim(
            UA, "Maps are cheap and add up", "–", f"{seconds} s for 1,000", HOLDS, "ua-table1",
            "Seconds on one H200 for 1,000 maps, ensembles of five, MNIST, CIFAR-10 and SVHN. Each map adds up to the doubt that it explains; the tests hold it to that. To find "
            f"a patch of noise in a picture they are weak: AUROC {found[0]:.0f} over the pixels, where CLUE, a method that changes the picture until the doubt goes, has {found[1]:.0f}.",
        ),
    ]  # fmt: skip


def signs() -> list[Claim]:
    """What signs do to the blurring test, by the hypotheses of the study."""
    name, signed, product = "ua-signs", f"{OURS}, signed", "Gradient × (x − blur x)"
    columns = ran(name, "murr5")
    result = json.loads(files(name)[-1].read_text())
    members = max(len(seeds) for seeds in result["settings"]["seeds"].values())

    def found(row: str, part: int, metric: str = "murr5") -> list[float]:
        return [cell(name, row, column, metric, part).mean for column in columns]

    def shown(values: list[float], digits: int = 2) -> str:
        return " / ".join(f"{value:.{digits}f}" for value in values)

    rivals = [line.label for line in parts(name)[0][1].lines if line.label != OURS]
    best = [max(values) for values in zip(*(found(row, 0) for row in rivals), strict=True)]
    leaders = {
        max(rivals, key=lambda row: cell(name, row, column, "murr5", 0).mean): 0
        for column in columns
    }
    first = [_first(name, column, product) for column in columns]
    ranks = {
        column.partition("→")[2]: 1
        + sum(cell(name, row, column, "urr5", 0).mean < own for row in rivals)
        for column, own in zip(columns, found(OURS, 0, "urr5"), strict=True)
    }
    lifted = all(own > other for own, other in zip(found(signed, 1), best, strict=True))
    where = "; ".join(column.partition("→")[2] for column in columns)
    return [
        Claim(
            UA, "Signs decide the blurring test", "–", f"{shown(found(OURS, 0))} → {shown(found(signed, 1))}", HOLDS if lifted else PARTLY, name,
            f"Ours. Share of the doubt that goes, before and after each pixel of UA-Backprop's maps gets a sign: does blurring it take doubt away or add some? MNIST, {members} networks, 200 pictures; pictures and width of the blur: {where}. "
            f"The best map of magnitudes ({' or '.join(leaders)}) has {shown(best)}: signs lift UA-Backprop past all of them, as expected, and that is why `UABackprop(signed=True)` stays in the library. Expected was, too, that the sign alone would do it: it does not, "
            f"random numbers with these signs have {shown(found('Random numbers, signed', 1))}. The gradient times what the blur takes from each pixel, a map of one backward pass, has {shown(found(product, 1))}; "
            f"{'it is the best map of all or as good as the best, as expected' if all(first) else 'it was expected to be the best of all, and is not everywhere'}. "
            f"UA-Backprop's place among {len(rivals) + 1} magnitudes, by the area under the curve: " + ", ".join(f"{place} ({how})" for how, place in ranks.items()) + "." + _again(name),
        )
    ]  # fmt: skip


def _again(name: str) -> str:
    """What the same study says at the scale of a processor, where it was run there too."""
    small, column = f"{name}@small", "mnist→most doubtful, σ = 1.5"
    if not files(small):
        return ""
    before, after = (
        cell(small, row, column, "murr5", part).mean
        for part, row in enumerate((OURS, f"{OURS}, signed"))
    )
    return f" Four other networks, trained for three epochs on a processor, with σ = 1.5: {before:.2f} → {after:.2f}."


def _first(name: str, column: str, row: str) -> bool:
    """Whether a map with signs is the best one of a column, or its interval holds the best one's distance."""
    leads = {
        line.label: line.values[column, "lead"].mean
        for line in parts(name)[1][1].lines
        if line.values[column, "lead"].mean is not None
    }
    low, high = (cell(name, row, column, f"lead_{end}", 1).mean for end in ("low", "high"))
    return bool(low <= min(leads.values()) <= high)


def limits() -> list[Claim]:
    """Claims on ReLU networks far away."""
    escape = measured("escape")
    cases = escape["cases"].values()
    rows = {(row["case"], row["score"]): row for row in escape["rows"]}

    def far(score: str) -> str:
        shares = [rows[case, score]["flagged"][-1] for case in ("moons", "wine")]
        return " / ".join(f"{100 * share:.0f}" for share in shares) + " %"

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
