"""Where the papers contradict themselves, in their own printed numbers, and what ours say to it."""

from __future__ import annotations

from results import cell

from nescio_papers.regrad import table1, table4, table5, table7, table8
from nescio_papers.ua_backprop import table1 as maps

STAR = "REGrad*, k = 2"
ABOUT = "Found while copying the papers' numbers. None decides a verdict; who compares with the papers should know them."


def contradictions() -> list[str]:
    """A line for each."""
    lower, exgrad = table1.LOWER, "ExGrad"
    near = [
        table8.MNIST[f"λ = {decay}"]["mnist→fashion"][0][0] for decay in ("0.25", "0.3", "0.35")
    ]
    ours = [
        cell("table8", f"λ = {decay}, k = 2", "mnist→fashion").mean
        for decay in ("0.25", "0.3", "0.35")
    ]
    laplace = [number[0] for number in lower["LA"]["svhn→cifar10"]]
    again = [cell("table1", "LA", "svhn→cifar10", metric).mean for metric in ("auroc", "aupr")]
    murr = {
        (row, known): [number[0] for number in maps.MURR[row][known]]
        for row in ("Ours", "IG", "FullGrad")
        for known in ("mnist", "svhn")
    }
    return [
        f"**λ for SVHN.** λ says how much more later layers count. The supplement gives 0.2 for SVHN. But {lower['REGrad*']['svhn→cifar10'][0][0]} in "
        f"Table 1 is {table5.PAPER['λ = 0.3, σ = .02']['svhn→cifar10'][0][0]} in Table 5, and "
        f"{table4.PAPER['REGrad + layer-selective']['svhn→cifar10'][0][0]} in Table 4 is {table5.PAPER['λ = 0.3']['svhn→cifar10'][0][0]} there, both with λ = 0.3. "
        f"Here it makes no difference: {cell('table5', 'λ = 0.3, σ = .02, k = 2', 'svhn→cifar10').mean:.2f} with 0.3 and "
        f"{cell('table1', STAR, 'svhn→cifar10').mean:.2f} with 0.2. `nescio reproduce table5`",
        f"**The best λ.** On MNIST against Fashion-MNIST Table 8 has {near[0]}, {near[1]} and {near[2]} for λ = 0.25, 0.3 and 0.35: a peak at just the λ that was "
        f"chosen. Ours are {ours[0]:.2f}, {ours[1]:.2f} and {ours[2]:.2f}. `nescio reproduce table8`",
        f"**ExGrad on CIFAR-100 against SVHN.** The area under the precision-recall curve is {lower[exgrad]['cifar100→svhn'][1][0]} in Tables 1 and 4 and "
        f"{table7.PAPER[exgrad]['cifar100→svhn'][1][0]} in Table 7: two digits changed places.",
        f"**Laplace on SVHN against CIFAR-10.** Table 1 has an AUROC of {laplace[0]} beside an area under the precision-recall curve of {laplace[1]}. Ours are "
        f"{again[0]:.1f} and {again[1]:.1f}: the first of the paper's two is probably a misprint.",
        "**Labels a round.** In active learning on MNIST 20 labels are added in each round (section 5.3, appendix B.4), or 10 (appendix C). We add 20.",
        "**SVHN's network.** The list of its last layers ends with a ReLU on top of the logits. Read so, it is [another network](#regrad).",
        f"**Integrated gradients.** The text of the UA-Backprop paper says that it “consistently outperforms” integrated gradients and FullGrad. Its Table 1 has integrated gradients ahead on SVHN "
        f"({_pair(murr['IG', 'svhn'])} against {_pair(murr['Ours', 'svhn'])} at 2 % and 5 % of the pixels) and FullGrad on MNIST ({_pair(murr['FullGrad', 'mnist'])} against {_pair(murr['Ours', 'mnist'])}).",
    ]  # fmt: skip


def _pair(values: list[float]) -> str:
    return " / ".join(f"{value:.3f}" for value in values)
