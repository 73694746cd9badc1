"""The claims of the papers and of our own: what each says, what came out, and why, with numbers from the results.

Typed here are settings, and what a formula gives; every result is read from a file. Verdicts and reasons are for people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from results import average, cell, lines, measured, pair, parts, rank

HOLDS, PARTLY, NOT, ARTEFACT = "holds", "holds under conditions", "not reproduced", "artefact"
DOES_NOT = "does not hold"
REGRAD, UA, KYL, OWN = "REGrad", "UA-Backprop", "Know your limits", "nescio"
ABOUT = """nescio is built on three papers. We ran their experiments again, wrote down what we expected before the runs of our own studies, and kept what
came out. A *claim* is what a paper says. *Not reproduced* means that it did not come out here, with settings that the text does not always give: it does not mean
refuted. *Artefact* means that a number measures something else than its name says. AUROC is the chance that a foreign input gets a higher score than a known one, in
percent: 50 is guessing. The last column names the study: `nescio reproduce NAME`."""
RUNS = """Every result above comes from one of these files, which have the settings, versions and seeds inside. `nescio reproduce NAME --scale smoke` tries the machinery of
a study in about a minute; shown here is `--scale quick`. Networks that were trained for an earlier run are taken again, so some times are without training."""
PAPERS = {
    REGRAD: "Wang and Ji, *Epistemic Uncertainty Quantification For Pre-trained Neural Networks*, CVPR 2024: the length of gradients as doubt.",
    UA: "Wang et al., *Gradient-based Uncertainty Attribution for Explainable Bayesian Deep Learning*, CVPR 2023: which pixels cause the doubt.",
    KYL: "Ulmer and Cinà, *Know Your Limits*, UAI 2021: what ReLU networks say far away from all data.",
    OWN: "Claims of our own, judged as the others are.",
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A claim, what its paper has, what we have, the verdict, the study that shows it, and why it is so."""

    of: str
    claim: str
    paper: str
    ours: str
    verdict: str
    shown: str
    why: str


STAR, OURS = "REGrad*, k = 2", "UA-Backprop + FullGrad"
MNIST = ("mnist→omniglot", "mnist→fashion")
SVHN = ("svhn→cifar10", "svhn→cifar100")


def regrad() -> list[Claim]:
    """Claims of the REGrad paper on its scores."""
    table4 = parts("table4")[0][1]
    full, plain = "REGrad + layer-selective + perturb, k = 2", "REGrad, k = 2"
    steps = {line.label: line.averages[""] for line in table4.lines}
    errors = [lines("table6", row, 1)[0].averages[""] for row in (full, plain)]
    gains = [
        cell("table4", full, column).mean - cell("table4", plain, column).mean
        for column in ("mnist→fashion", "cifar10→svhn", "svhn→cifar10", "cifar100→svhn")
    ]
    lacks = {
        key[0]: value.paper - value.mean
        for line in lines("table1", STAR)
        for key, value in line.values.items()
        if key[1] == "auroc" and value.mean is not None and value.paper is not None
    }
    others = {
        row: lines("table2", row)[0].averages[""].mean
        for row in ("ExGrad, L2", "Entropy", "Max probability")
    }
    return [
        Claim(
            REGRAD, "REGrad* finds foreign inputs best", f"{average('table1', STAR, paper=True):.1f} AUROC, first",
            f"{average('table1', STAR):.1f}, {rank('table1', STAR)}", PARTLY, "table1",
            f"Means over the {len(lacks)} pairs that both have. Among the paper's methods it is {rank('table1', STAR)} on MNIST and CIFAR-10 and "
            f"{rank('table1', STAR, 1)} on SVHN and CIFAR-100; KNN on features, which needs the training data, has "
            f"{average('table1', 'KNN', both=False):.1f} over all eight pairs of ours where REGrad* has "
            f"{average('table1', STAR, both=False):.1f}. Of the {sum(lacks.values()):.1f} points that it lacks over these pairs together, "
            f"{sum(lacks[column] for column in SVHN):.1f} are those of SVHN's network.",
        ),
        Claim(
            REGRAD, "Layers and noise both help detection", f"{steps[plain].paper:.1f} → {steps[full].paper:.1f}",
            f"{steps[plain].mean:.1f} → {steps[full].mean:.1f}", HOLDS, "table4",
            "Plain REGrad, then with both refinements; AUROC and AUPR together, four pairs. In AUROC alone both together "
            f"gain {gains[0]:+.1f} points on MNIST, {gains[1]:+.1f} on CIFAR-10, {gains[2]:+.1f} on SVHN and {gains[3]:+.1f} on CIFAR-100.",
        ),
        Claim(
            REGRAD, "Layers and noise help to rank errors", f"{errors[1].paper:.3f} → {errors[0].paper:.3f} rAULC",
            f"{errors[1].mean:.3f} → {errors[0].mean:.3f}", NOT, "table6",
            "rAULC is 1 for the perfect order of right before wrong answers. Here the refinements cost a little.",
        ),
        Claim(
            REGRAD, "REGrad* ranks errors best", f"{lines('table2', STAR)[0].averages[''].paper:.3f}, first",
            f"{lines('table2', STAR)[0].averages[''].mean:.3f}, {rank('table2', STAR)}", NOT, "table2",
            "How well right answers are told from wrong ones, mean rAULC of four sets: "
            + ", ".join(f"{row} {value:.3f}" for row, value in others.items()) + ".",
        ),
        Claim(
            REGRAD, "REGrad* chooses best what to label", f"{lines('table3', STAR)[0].averages['acc'].paper:.1f} %, first",
            f"{lines('table3', STAR)[0].averages['acc'].mean:.1f} %, {rank('table3', STAR)}", NOT, "table3",
            "Active learning on MNIST and CIFAR-10 with one seed and 50 epochs instead of 200: one seed ranks nothing, so this says little either "
            "way. The study with the paper's protocol and five seeds is written (`acquisition`).",
        ),
        Claim(
            REGRAD, "SVHN's numbers (own schedule)", f"REGrad* {pair('schedules', STAR, SVHN, paper=True, part=1)}",
            f"{pair('schedules', STAR, SVHN, part=1)} (fast: {pair('table1', STAR, SVHN)})", PARTLY, "schedules",
            "With the paper's 50 epochs and all 40,000 pictures at hand REGrad* comes closer, as expected, and entropy too "
            f"({pair('schedules', 'Entropy', SVHN, part=1)}; the paper {pair('schedules', 'Entropy', SVHN, paper=True, part=1)}). The layer list read "
            f"literally, with a ReLU on the logits, gives REGrad* {pair('schedules', STAR, SVHN, part=2)} and entropy "
            f"{pair('schedules', 'Entropy', SVHN, part=2)}. The paper trained on 73,257 pictures.",
        ),
        Claim(
            REGRAD, "It holds on transformers", f"{lines('table10', STAR)[0].averages[''].paper:.1f}, first",
            f"{lines('table10', STAR)[0].averages[''].mean:.1f}, {rank('table10', STAR)}", PARTLY, "table10",
            "The order holds. The numbers cannot be compared: the paper took a pretrained ViT-B/16 at 384 pixels, ours are "
            "small and trained from nothing.",
        ),
    ]  # fmt: skip


def formulas() -> list[Claim]:
    """Claims of the REGrad paper on the scores it compares with, and on formulas."""
    columns = tuple(f"normalised, bright on dark→{name}" for name in ("Omniglot", "FMNIST"))
    turned = tuple(f"normalised, dark on bright→{name}" for name in ("Omniglot", "FMNIST"))
    sums = [
        line.values["cifar10", "acc"].paper / 100 + line.values["cifar10", "nll"].paper
        for line in {
            line.paper_row: line for line in parts("table3")[0][1].lines if line.paper_row
        }.values()
    ]
    nll = [lines("table3", STAR)[0].values["cifar10", "nll"]]
    ways = [line.averages["auroc"].mean for _, made in parts("readings") for line in made.lines
            if line.label.startswith("REGrad*") and line.averages["auroc"].mean is not None]  # fmt: skip
    gen, star = (lines("no-gradient", row, 0)[0].averages["auroc"].mean for row in ("GEN", STAR))
    return [
        Claim(
            REGRAD, "UNGrad is good on MNIST", f"{pair('table1', 'UNGrad, L2', MNIST, paper=True)}",
            f"{pair('table1', 'UNGrad, L2', MNIST)}", NOT, "polarity",
            "Three guesses were written down before the run. Pictures inverted, dark on bright: "
            f"{pair('polarity', 'UNGrad, ε = 0', turned)}, so brightness does not turn it round. Normalisation alone does not "
            "either. A small ε inside the logarithm, log(p + ε), does: with ε = 1e-4 it is "
            f"{pair('polarity', 'UNGrad, ε = 0.0001', columns)}, further from the paper than the three points that were asked for. So UNGrad's number "
            "hangs on ε, which the paper does not give.",
        ),
        Claim(
            REGRAD, "GradNorm is bad everywhere", f"{pair('table1', 'GradNorm as published, L2', (*MNIST, *SVHN), 0, True)}",
            f"{pair('table1', 'GradNorm as published, L2', (*MNIST, *SVHN), 0)}", NOT, "polarity",
            "MNIST and SVHN. Below 50 on MNIST in both, since it is long where a network is confident; on SVHN it is not. The ε that would explain "
            f"UNGrad makes GradNorm {pair('polarity', 'GradNorm as published, ε = 0.0001', columns)} on MNIST: no one ε gives both of the paper's rows.",
        ),
        Claim(
            REGRAD, "NEGrad's numbers mean something", f"{pair('table1', 'NEGrad, L2', MNIST, paper=True)}",
            f"{pair('table1', 'NEGrad, L2', MNIST)}", ARTEFACT, "table1",
            "The expected gradient is zero for every input, by algebra ([derivation](mathematics/gradients.md#negrad-is-zero)). What is ranked is "
            "round-off.",
        ),
        Claim(
            REGRAD, "NLL in active learning (C10)", f"{nll[0].paper:.2f}",
            f"{nll[0].mean:.2f}", ARTEFACT, "table3",
            f"In all {len(sums)} rows of the paper accuracy + NLL is {min(sums):.3f} to {max(sums):.3f}. A softmax that is passed through softmax again "
            f"has a loss of log(e + C − 1) − accuracy, and log(e + 9) = {math.log(math.e + 9):.3f}. So the column is almost certainly cross-entropy of "
            "softmax outputs, another quantity than ours.",
        ),
        Claim(
            REGRAD, "How the formulas are read matters little", "–",
            f"{min(ways):.1f} to {max(ways):.1f}", HOLDS, "readings",
            f"{len(ways)} readings of REGrad* (power, smoothing, sum of norms, tensors as layers) on four pairs of MNIST and CIFAR-10, mean AUROC. "
            "SVHN's columns were not run.",
        ),
        Claim(
            REGRAD, "Gradients add to p and features", "–", f"{star:.1f}, GEN {gen:.1f}", HOLDS, "no-gradient",
            "REGrad* beside the best function of the probabilities and the length of the features alone, mean AUROC of eight pairs. "
            "The gain is small, and costs a backward pass for each class.",
        ),
    ]  # fmt: skip


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
            "Share of the doubt that goes when the 5 % most blamed pixels are blurred (MNIST, CIFAR-10, SVHN). Signs seem to decide this test: integrated gradients "
            f"({pair('ua-table1', 'IG', sets, 2, metric='murr5')}) and Blur IG ({pair('ua-table1', 'Blur IG', sets, 2, metric='murr5')}) know them, "
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
            "An H200, ensembles of five, MNIST, CIFAR-10 and SVHN. Each map adds up to the doubt that it explains; the tests hold it to that. As a detector "
            f"of a corrupted patch they are weak: AUROC {found[0]:.0f}, CLUE {found[1]:.0f}.",
        ),
    ]  # fmt: skip


def limits() -> list[Claim]:
    """Claims on ReLU networks far away."""
    escape = measured("escape")
    cases = escape["cases"].values()
    rows = {(row["case"], row["score"]): row for row in escape["rows"]}

    def far(score: str) -> str:
        return " / ".join(
            f"{100 * rows[case, score]['flagged'][-1]:.0f} %" for case in ("moons", "wine")
        )

    several = next(score for _, score in rows if score.startswith("mutual"))
    last = "breast cancer→×10,000"
    return [
        Claim(
            KYL, "Prop. 2: far away one class wins", "proof",
            f"{sum(case['one_hot'] for case in cases)} of {sum(case['rays'] for case in cases)} rays", HOLDS, "escape",
            "Rays out of the data of two trained networks, walked from piece to piece to the last one. "
            f"The rate at which REGrad's logarithm falls is that of the derivation to {100 * max(c['rate_largest'] - 1 for c in cases):.1f} %.",
        ),
        Claim(
            KYL, "Prop. 1, Lemmas 4–7: doubt stands still", "proof",
            f"flagged: entropy {far('entropy')}, MI {far(several)}", HOLDS, "escape",
            "Share of rays flagged at 1,024 spreads (half-moons, wine), where all should be. Five networks keep doubt where their limits disagree, and "
            f"that share is fixed. Mahalanobis distance flags {far('mahalanobis')}. [Gradient scores do not escape](limits.md).",
        ),
        Claim(
            KYL, "Scaled features are not noticed", "figure",
            f"entropy {cell('kyl-scaling', 'one network: entropy', last).mean:.1f}, ensemble's MI "
            f"{cell('kyl-scaling', 'ensemble: mutual information', last).mean:.1f}", HOLDS, "kyl-scaling",
            "AUROC where one feature of breast-cancer data is multiplied by 10,000: below 50 a score is surer of the scaled input. Mahalanobis distance "
            f"has {cell('kyl-scaling', 'one network: Mahalanobis', last).mean:.1f}.",
        ),
        Claim(
            KYL, "Public code's mutual information", "figure: high far away",
            f"between the moons {cell('kyl-moons', 'ensemble, public code' + chr(39) + 's MI', 'moons→between').mean:.1f}, ours "
            f"{cell('kyl-moons', 'ensemble, mutual information', 'moons→between').mean:.1f}", ARTEFACT, "kyl-moons",
            "AUROC against held-out points. What the public code computes is a constant less the aleatoric part: it is high wherever networks are sure. "
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
    return [
        Claim(
            OWN, "The guard beats each single score", "–",
            f"{means['guard']:.1f}, best single {best[0]:.1f}", PARTLY, "guard",
            f"Mean AUROC of {len(first)} pairs; the best single score is `{best[1]}`. On average yes; within half a point of the best single score of the pair, or above, on {near}. "
            "It loses where foreign pictures look more typical than known ones. Its form was chosen on shifted pictures and on the foreign sets of MNIST and SVHN.",
        ),
        Claim(
            OWN, "EvenGrad is good everywhere", "–", f"{even:.1f}, REGrad* {star:.1f}", DOES_NOT, "even",
            "Better on MNIST and CIFAR-10, not on SVHN; on CIFAR-100 worse against SVHN, better against scenes. The score that is good everywhere is not found.",
        ),
    ]  # fmt: skip


PLANNED = {
    "propositions": "Propositions 3.3 to 3.5 of REGrad in numbers. What algebra says: the bound of 3.5 rests on a first-order term that is zero (it is NEGrad); the leading term of Perturb θ is (σ²/2) Σ p‖g‖², offered as `squared`.",
    "acquisition": "Active learning with the paper's protocol: 200 epochs, the whole pool, five seeds, differences from random acquisition.",
    "ua-signs": "Maps with and without signs as two groups, pictures chosen both ways, two widths of the blur, intervals.",
    "ua-attention": "Mitigation with softmax normalisation, flat controls of each row's own mean, and NLL after temperature scaling.",
    "cifar100-l1": "L1 rows, a second seed and an ensemble for CIFAR-100; an ensemble of five there for maps.",
    "cifar10-own": "The paper's own schedule for CIFAR-10 and CIFAR-100; SVHN with all 73,257 training pictures, which are not at hand.",
    "lsun": "LSUN, which is not at hand; `scenes` is another set of scenes, and has no number of the paper beside it.",
}  # fmt: skip
"""What was asked and has no result yet, by the name that its result would have."""


def claims() -> list[Claim]:
    """All claims, in the order of the page."""
    return [*regrad(), *formulas(), *maps(), *limits(), *own()]
