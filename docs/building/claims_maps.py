"""Claims on maps; `claims` has those of the REGrad paper on its scores, and the words of the page."""

from __future__ import annotations

from statistics import fmean, stdev

from claims import ARTEFACT, HOLDS, NOT, OURS, PARTLY, UA, Claim
from results import average, files, lines, pair, parts, rank

from nescio import evaluate
from nescio_papers.runner.study import FULL_NAMES as NAMES


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
            "Seconds on one H200 for 1,000 maps, ensembles of five, MNIST, CIFAR-10 and SVHN. Each map adds up to the doubt that it explains; the tests hold it to that. To find "
            f"a patch of noise in a picture they are weak: AUROC {found[0]:.0f} over the pixels, where CLUE, a method that changes the picture until the doubt goes, has {found[1]:.0f}.",
        ),
    ]  # fmt: skip


STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}
"""How many standard errors the 95 % interval of a mean over so many runs has to each side."""


def attention() -> list[Claim]:
    """Whether what attention gains comes from the maps or is a temperature, by the hypotheses of the study."""
    name = "ua-attention"
    cells = [one for one in parts(name)[0][0]["cells"] if "metrics" in one]
    printed, none, ours = f"{OURS}, as printed", "No attention", f"{OURS}, range"
    random = "Random attention, range"

    def runs(row: str, column: str, metric: str) -> dict[int, float]:
        here = (one for one in cells if (one["row"], one["column"]) == (row, column))
        return {one["seed"]: one["metrics"][metric] for one in here}

    def differs(row: str, other: str, column: str, metric: str) -> bool:
        """Whether the interval of the difference over runs is clear of 0."""
        one, two = (runs(label, column, metric) for label in (row, other))
        gaps = [one[seed] - two[seed] for seed in one if seed in two]
        error = stdev(gaps) / len(gaps) ** 0.5
        return abs(fmean(gaps)) > STUDENT[len(gaps)] * error

    def mean(row: str, column: str, metric: str) -> float:
        return fmean(runs(row, column, metric).values())

    def line(row: str, metric: str) -> str:
        return " / ".join(f"{mean(row, column, metric):.2f}" for column in known)

    every = {(one["column"], one["row"]): None for one in cells}
    rows: dict[str, list[str]] = {}
    for column, row in every:
        if len(runs(row, column, "nll")) > 1:
            rows.setdefault(column, []).append(row)
    needed = {printed, none, ours, f"{ours}, flat", random}
    known = [column for column, own in rows.items() if needed <= set(own)]
    both = [
        (row, column) for column in known for row in rows[column] if f"{row}, flat" in rows[column]
    ]
    apart = {
        metric: [pair for pair in both if differs(pair[0], f"{pair[0]}, flat", pair[1], metric)]
        for metric in ("nll", "tempered")
    }
    ranks = {
        column: [
            evaluate.rank_correlation(
                *([mean(row, column, m) for row in rows[column]] for m in ("factor", metric))
            )
            for metric in ("nll", "tempered")
        ]
        for column in known
    }
    same = [column for column in known if not differs(printed, none, column, "nll")]
    flat = [(f"{row}, flat", column) for row, column in both]
    lasting = [
        (row, column)
        for row, column in flat
        if differs(row, none, column, "tempered")
        and mean(row, column, "tempered") < mean(none, column, "tempered")
    ]
    worse = [
        (row, column)
        for row, column in apart["tempered"]
        if mean(row, column, "tempered") > mean(f"{row}, flat", column, "tempered")
    ]
    allowed = 0 if len(known) == 1 else 1  # as written down before the run
    maps_are_idle = len(apart["tempered"]) <= allowed
    chance = 1 - 0.95 ** len(both)
    sets = ", ".join(NAMES[column] for column in known)
    judged = (
        "which was expected"
        if maps_are_idle
        else f"none was to, so this is undecided: by chance alone one or more would in {100 * chance:.0f} % of cases"
    )
    lead = min(lasting, key=lambda one: mean(*one, "tempered"), default=None)
    beyond = (
        f"Not foreseen: {len(lasting)} of the {len(flat)} flat maps are still better than no attention after scaling, the best with {mean(*lead, 'tempered'):.2f} against {mean(none, lead[1], 'tempered'):.2f} "
        f"and {100 * mean(*lead, 'acc'):.1f} % right against {100 * mean(none, lead[1], 'acc'):.1f} %. So the gain is more than a softening of the answers, a temperature, which was our guess: to train with features that are several times as large helps by itself. Why was not tested. "
        if lead
        else ""
    )
    return [
        Claim(
            UA, "What attention gains is no map's doing", "–",
            f"{len(apart['tempered'])} of {len(both)} maps {'worse than' if worse and worse == apart['tempered'] else 'differ from'} flat", HOLDS if maps_are_idle else PARTLY, name,
            f"Ours. {sets}; {max(len(runs(none, column, 'nll')) for column in known)} runs. Attention makes features larger in training (1 + αA) and not in the test, which softens the answers. So each map has a control, a flat map with the same mean, and the likelihood is measured again after temperature scaling on held-out pictures; α is chosen there too. "
            f"Negative log-likelihood as it is, {sets}: UA-Backprop's maps {line(ours, 'nll')}, flat {line(ours + ', flat', 'nll')}, random numbers {line(random, 'nll')}, no attention {line(none, 'nll')}. "
            f"After scaling: {line(ours, 'tempered')}, flat {line(ours + ', flat', 'tempered')}, random {line(random, 'tempered')}, none {line(none, 'tempered')}. "
            f"Of {len(both)} pairs of a map and its control {len(apart['tempered'])} differ after scaling{_pairs(apart['tempered'])}{', and there the map is worse' if worse and worse == apart['tempered'] else ''}; {judged}. Before scaling {len(apart['nll'])} do. "
            f"The larger features were in training, the lower the loss as it is: rank correlation {' / '.join(f'{ranks[c][0]:.2f}' for c in known)} (expected: below -0.5), after scaling {' / '.join(f'{ranks[c][1]:.2f}' for c in known)}. "
            f"{beyond}"
            f"With a softmax as the paper prints it and α = 8 the factor is 1 to {max(mean(printed, c, 'factor') for c in known) - 1:.2f}, and nothing differs from no attention on {len(same)} of {len(known)} sets, as expected.",
            "temperature",
        )
    ]  # fmt: skip


def _pairs(some: list[tuple[str, str]]) -> str:
    """Maps and sets, where they are few."""
    return (
        f" ({'; '.join(f'{row} on {NAMES[column]}' for row, column in some)})"
        if 0 < len(some) <= 4
        else ""
    )
