"""The claims of the papers and of our own: what each says, what came out, and why, with numbers from the results.

Typed here are settings, and what a formula gives; every result is read from a file. Verdicts and reasons are for people.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from results import average, cell, lines, pair, parts, ran, rank

from nescio_papers.runner.study import FULL_NAMES as NAMES

HOLDS, PARTLY, NOT, ARTEFACT = "holds", "holds under conditions", "not reproduced", "artefact"
DOES_NOT = "does not hold"
REGRAD, UA, KYL, OWN = "REGrad", "UA-Backprop", "Know your limits", "nescio"
ABOUT = """nescio is built on three papers. We ran their experiments again, wrote down what we expected before the runs of our own studies, and kept what
came out. A *claim* is what a paper says, with its numbers and ours. *Not reproduced* means that it did not come out here, with settings that the text does not always give: it does not mean
refuted. *Artefact* means that a number measures something else than its name says. *2 of 12* is a place among the paper's own methods. The last column names the study.

Below: [words](#words), the claims of [REGrad](#regrad), [UA-Backprop](#ua-backprop), [Know your limits](#know-your-limits) and [ours](#nescio) one by one,
[where the papers contradict themselves](#where-the-papers-contradict-themselves), what was [not run](#not-run), and the [runs](#runs)."""
WORDS = """- **Foreign**: an input of another kind than the network was trained on, as letters for a network of digits. **AUROC**: the chance that a foreign input gets a higher score than a known one, in percent. 50 is
  guessing. Where two numbers stand with a slash, they belong to two foreign sets, or to several data sets, in the order that the text names.
- **REGrad**: how far a network's parameters would have to move to make each class likelier, added up over the classes. **REGrad\\***: the same, where later layers count more (by λ), averaged over noisy copies of the input.
  **ExGrad, UNGrad, NEGrad, GradNorm**: older sums of the same gradients. **Perturb θ**: how far the prediction moves under noise on the parameters. All have [their formulas](mathematics/gradients.md).
- **Entropy**: how evenly a prediction is spread over the classes. **Mutual information (MI)**: how much several networks disagree. **GEN**: a sharper kind of entropy. **Laplace (LA)**: networks drawn around the trained one.
- **NLL**: negative log-likelihood, the usual loss on test pictures; lower is better. **Temperature scaling**: all answers of a network made softer or sharper by one number, which is chosen on held-out pictures. **rAULC**: 1 where all right answers are ranked before all wrong ones, 0 where the order is chance.
- **Map**: a number for each pixel, how much of the doubt it causes. **Blurring test**: the pixels that a map blames most are blurred, and one looks how much of the doubt goes."""
RUNS = """Every number above that is ours comes from one of these files, which have the settings, versions, seeds and networks inside. The name has the scale: `quick` is for a GPU,
but `language`, `kyl-*` and the tables of `guard` were made on a processor; `small` is for one processor core (the machine was shared while it ran). `nescio reproduce NAME --scale smoke` tries the machinery of a study in about a minute.
The time is that of all runs that a file joins, side by side or one after the other; networks that were trained for another study are taken again, so some times are without training."""
PAPERS = {
    REGRAD: "Wang and Ji, *Epistemic Uncertainty Quantification For Pre-trained Neural Networks*, CVPR 2024. Its idea: a network that knows an input would hardly have to change to be surer of it, so the length of its gradients is a measure of doubt.",
    UA: "Wang et al., *Gradient-based Uncertainty Attribution for Explainable Bayesian Deep Learning*, CVPR 2023. Its question: which pixels cause the doubt of an ensemble of networks?",
    KYL: "Ulmer and Cinà, *Know Your Limits*, UAI 2021. It proves that networks with ReLU become sure far away from all data, and that many scores of doubt do not see it.",
    OWN: "Claims of our own, judged as the others are.",
}  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A claim, what its paper has, what we have, the verdict, the study that shows it, why it is so, a figure and a table."""

    of: str
    claim: str
    paper: str
    ours: str
    verdict: str
    shown: str
    why: str
    figure: str = ""
    table: tuple[tuple[str, ...], ...] = ()


STAR, OURS = "REGrad*, k = 2", "UA-Backprop + FullGrad"
MNIST = ("mnist→omniglot", "mnist→fashion")
SVHN = ("svhn→cifar10", "svhn→cifar100")
FOREIGN = {**NAMES, "omniglot": "Omniglot", "fashion": "Fashion-MNIST", "scenes": "scenes"}


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
            f"Means over the {len(lacks)} pairs of known and foreign sets that both have. Among the paper's methods it is {rank('table1', STAR)} on MNIST and CIFAR-10 and "
            f"{rank('table1', STAR, 1)} on SVHN and CIFAR-100; KNN on features, which needs the training data, has "
            f"{average('table1', 'KNN', both=False):.1f} over all eight pairs of ours where REGrad* has "
            f"{average('table1', STAR, both=False):.1f}. Added up over the pairs it lacks {sum(lacks.values()):.1f} points, "
            f"{sum(lacks[column] for column in SVHN):.1f} of them on SVHN, where entropy lacks more: our network there is weaker (see below).",
        ),
        Claim(
            REGRAD, "Layers and noise both help detection", f"{steps[plain].paper:.1f} → {steps[full].paper:.1f}",
            f"{steps[plain].mean:.1f} → {steps[full].mean:.1f}", HOLDS, "table4",
            "Plain REGrad, then REGrad* with its two refinements; the mean of AUROC and the area under the precision-recall curve over four pairs. In AUROC alone both together "
            f"gain {gains[0]:+.1f} points on MNIST, {gains[1]:+.1f} on CIFAR-10, {gains[2]:+.1f} on SVHN and {gains[3]:+.1f} on CIFAR-100.",
        ),
        Claim(
            REGRAD, "Layers and noise help to rank errors", f"{errors[1].paper:.3f} → {errors[0].paper:.3f} rAULC",
            f"{errors[1].mean:.3f} → {errors[0].mean:.3f}", NOT, "table6",
            "How well the score tells right answers from wrong ones, mean of four data sets. Here the refinements cost a little.",
        ),
        Claim(
            REGRAD, "REGrad* ranks errors best", f"{lines('table2', STAR)[0].averages[''].paper:.3f}, first",
            f"{lines('table2', STAR)[0].averages[''].mean:.3f}, {rank('table2', STAR)}", NOT, "table2",
            "How well right answers are told from wrong ones, mean rAULC of four sets: "
            + ", ".join(f"{row} {value:.3f}" for row, value in others.items()) + ".",
        ),
    ]  # fmt: skip


WAYS = (
    "REGrad*, k = 2",
    "REGrad*, k = 1",
    "REGrad*, mean probability",
    "REGrad*, sum of norms",
    "REGrad*, tensors as layers",
    "REGrad*, all three",
)
"""The forms of REGrad* that its formulas leave open; another λ is no other reading."""
TURNED = "GradNorm of the last weight, L1, sign turned"


def readings() -> list[Claim]:
    """Whether it matters how the formulas are read, by what was expected before the runs."""
    name = "readings"
    made = {line.label: line.values for line in parts(name)[0][1].lines}

    def shared(*rows: str) -> list[str]:
        """The pairs that all these rows have."""
        return [
            c
            for c in ran(name, "auroc")
            if all(made[row][c, "auroc"].mean is not None for row in rows)
        ]

    def values(row: str, columns: list[str]) -> str:
        return pair(name, row, tuple(columns))

    def mean(row: str, columns: list[str]) -> float:
        return fmean(made[row][c, "auroc"].mean for c in columns)

    there = shared(*WAYS)
    ways = [mean(row, there) for row in WAYS]
    near = max(ways) - min(ways) < 1.0
    middle = sorted(ways)[len(ways) // 2]
    apart = max(WAYS, key=lambda row: abs(mean(row, there) - middle))
    others = [mean(row, there) for row in WAYS if row != apart]
    without = f" Most apart is {apart} with {mean(apart, there):.1f}; the others have {min(others):.1f} to {max(others):.1f}."
    both = shared(STAR, TURNED)
    laplace = shared("LA, prior precision 1", "LA, prior by marginal likelihood")
    better = mean(TURNED, both) > mean(STAR, both)
    third = [c for c in shared("REGrad*, λ = 0.3", STAR) if c.startswith("svhn")]
    thirds = (
        f" On SVHN λ = 0.3 gives {values('REGrad*, λ = 0.3', third)}, and 0.2 {values(STAR, third)}."
        if third
        else ""
    )
    known = list(dict.fromkeys(c.partition("→")[0] for c in there))
    return [
        Claim(
            REGRAD, "How the formulas are read matters little", "–", f"{min(ways):.1f} to {max(ways):.1f}", HOLDS if near else DOES_NOT, name,
            f"Mean AUROC of {len(ways)} readings of REGrad*'s formulas (the square inside or outside of the root, where copies are averaged, how layers are added up and what a layer is) on "
            f"{len(there)} pairs of {', '.join(NAMES[one] for one in known)}. Expected was less than a point between them: {'so it is' if near else 'that fails'}.{without}{thirds} GradNorm in its authors' form, turned round, has "
            f"{values(TURNED, both)} ({_told(both)}), where REGrad* has {values(STAR, both)}: {'better on average, which was not expected' if better else 'no better on average, as expected'}. Laplace with prior precision 1 has {values('LA, prior precision 1', laplace)}, "
            f"with a prior fitted to the data {values('LA, prior by marginal likelihood', laplace)}.",
        )
    ]  # fmt: skip


def _told(columns: list[str]) -> str:
    """Pairs of sets as in "MNIST against Omniglot"; the foreign sets of one network stand together."""
    foreign: dict[str, list[str]] = {}
    for column in columns:
        known, _, other = column.partition("→")
        foreign.setdefault(known, []).append(FOREIGN[other])
    return "; ".join(f"{NAMES[one]} against {', '.join(others)}" for one, others in foreign.items())


def formulas() -> list[Claim]:
    """Claims of the REGrad paper on the scores it compares with, and on formulas."""
    columns = tuple(f"normalised, bright on dark→{name}" for name in ("Omniglot", "FMNIST"))
    known, last = (*MNIST, "cifar10→svhn"), "GradNorm of the last weight, L1, as published"
    turned = tuple(f"normalised, dark on bright→{name}" for name in ("Omniglot", "FMNIST"))
    there = tuple(
        c
        for c in SVHN
        if c in ran("readings", "auroc") and cell("readings", last, c).mean is not None
    )
    svhn = (
        f" On SVHN it has {pair('readings', last, there)}, where the paper has {pair('table1', 'GradNorm as published, L2', there, paper=True)} and the whole gradient {pair('table1', 'GradNorm as published, L2', there)}."
        if there
        else ""
    )
    gen, star = (lines("no-gradient", row, 0)[0].averages["auroc"].mean for row in ("GEN", STAR))
    return [
        Claim(
            REGRAD, "UNGrad is good on MNIST", f"{pair('table1', 'UNGrad, L2', MNIST, paper=True)}",
            f"{pair('table1', 'UNGrad, L2', MNIST)}", NOT, "polarity",
            "Against Omniglot and Fashion-MNIST. UNGrad is the plain mean of the gradients' lengths; far below 50 it ranks the wrong way round. Three guesses were written down before the run. Foreign pictures inverted, dark on bright, give "
            f"{pair('polarity', 'UNGrad, ε = 0', turned)}: brightness does not turn it round. Unnormalised pictures do not "
            "either. A small number ε inside the logarithm, log(p + ε), does: with ε = 1e-4 it is "
            f"{pair('polarity', 'UNGrad, ε = 0.0001', columns)}, further from the paper than the three points that the guess allowed. So UNGrad's number "
            "hangs on ε, which the paper does not give. With the paper's own training schedule it is "
            f"{pair('schedules', 'UNGrad, L2', MNIST, part=0)}, so training is not the reason.", "polarity",
        ),
        Claim(
            REGRAD, "GradNorm is bad everywhere", f"{pair('table1', 'GradNorm as published, L2', (*MNIST, *SVHN), 0, True)}",
            f"{pair('table1', 'GradNorm as published, L2', (*MNIST, *SVHN), 0)}", NOT, "polarity",
            "Networks of MNIST and of SVHN, two foreign sets each. GradNorm is long where a network is confident, so on MNIST it is below 50 in both; on SVHN it is not here. The ε that would explain "
            f"UNGrad makes GradNorm {pair('polarity', 'GradNorm as published, ε = 0.0001', columns)} on MNIST: no one ε gives both of the paper's rows. "
            f"In its authors' form, the last layer's weight alone and summed magnitudes (L1), it has {pair('readings', last, known)} against Omniglot, Fashion-MNIST and, on CIFAR-10, SVHN, where the paper has "
            f"{pair('table1', 'GradNorm as published, L2', known, paper=True)}: on CIFAR-10 that is nearer than the whole gradient's {pair('table1', 'GradNorm as published, L2', known[2:])} (`readings`).{svhn}",
        ),
        Claim(
            REGRAD, "NEGrad's numbers mean something", f"{pair('table1', 'NEGrad, L2', MNIST, paper=True)}",
            f"{pair('table1', 'NEGrad, L2', MNIST)}", ARTEFACT, "table1",
            "The expected gradient is zero for every input, by algebra ([derivation](mathematics/gradients.md#negrad-is-zero)). What is ranked is "
            "round-off of the arithmetic.",
        ),
        *readings(),
        Claim(
            REGRAD, "Gradients say more than p and features", "–", f"{star:.1f}, GEN {gen:.1f}", HOLDS, "no-gradient",
            "REGrad* beside GEN, the best score made of the probabilities p and the length of the features alone; mean AUROC of eight pairs. "
            "The gain is small, and costs a backward pass for each class.",
        ),
    ]  # fmt: skip
