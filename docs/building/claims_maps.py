"""Claims on maps; `claims` has those of the REGrad paper on its scores, and the words of the page."""

from __future__ import annotations

from claims import ARTEFACT, HOLDS, NOT, OURS, UA, Claim
from claims_labels import named
from results import average, beside, files, lines, pair, rank


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
            "The blurring test: the share of the doubt that goes when the 5 % most blamed pixels are blurred, on MNIST, CIFAR-10 and SVHN. Signs decide it (see below): integrated gradients "
            f"({pair('ua-table1', 'IG', sets, 2, metric='murr5')}) and Blur IG ({pair('ua-table1', 'Blur IG', sets, 2, metric='murr5')}) know whether a pixel adds doubt or takes it away, "
            "maps of magnitudes do not. The paper prints neither the width of the blur nor how pictures were chosen.",
        ),
        Claim(
            UA, "Training with its maps helps", f"{acc[OURS]['acc'].paper:.1f} %, none {acc['No attention']['acc'].paper:.1f} %",
            f"{acc[OURS]['acc'].mean:.1f} %, none {acc['No attention']['acc'].mean:.1f} %", ARTEFACT, "ua-table2",
            f"Maps of random numbers give {acc['Random attention']['acc'].mean:.1f} % at a negative log-likelihood of "
            f"{acc['Random attention']['nll'].mean:.2f}, its maps {acc[OURS]['nll'].mean:.2f}, no attention {acc['No attention']['nll'].mean:.2f} (means "
            "of three sets, three runs): what attention gains is not the maps' doing. " + ("What it is, see below." if files("ua-attention") else
            "It may be that features which are larger in training than in testing soften the answers; the control that settles this was not run."),
        ),
        Claim(
            UA, "Maps are cheap and add up", "–", f"{seconds} s for 1,000", HOLDS, "ua-table1",
            f"Seconds on one H200 for 1,000 maps, ensembles of five, MNIST, CIFAR-10 and SVHN{_beside()}. Each map adds up to the doubt that it explains; the tests hold it to that. To find "
            f"a patch of noise in a picture they are weak: AUROC {found[0]:.0f} over the pixels, where CLUE, a method that changes the picture until the doubt goes, has {found[1]:.0f}.",
        ),
    ]  # fmt: skip


def _beside() -> str:
    """Which times are of a machine that did other work too."""
    sets = beside("ua-table1", 3)
    return f" (on {named(sets)} beside other work on the same machine)" if sets else ""
