"""Claims on maps; `claims` has those of the REGrad paper on its scores, and the words of the page."""

from __future__ import annotations

import json
from statistics import fmean, stdev

from claims import ARTEFACT, DOES_NOT, HOLDS, NOT, OURS, PARTLY, UA, Claim
from results import average, cell, files, lines, pair, parts, ran, rank

from nescio import evaluate
from nescio_papers.ua_backprop.charts import NAMES


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
            "of three sets, three runs): what attention gains is not the maps' doing. " + ("The next claim says what it is." if files("ua-attention") else
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


def signs() -> list[Claim]:
    """What signs do to the blurring test, by the hypotheses of the study."""
    name, signed, product = "ua-signs", f"{OURS}, signed", "Gradient × (x − blur x)"
    columns = ran(name, "murr5")
    known = list(dict.fromkeys(column.partition("→")[0] for column in columns))
    members = max(
        len(s) for f in files(name) for s in json.loads(f.read_text())["settings"]["seeds"].values()
    )

    def found(row: str, part: int, metric: str = "murr5") -> dict[str, float]:
        return {column: cell(name, row, column, metric, part).mean for column in columns}

    def first(values: dict[str, float], how: str = "most doubtful, σ = 1.5") -> str:
        return " / ".join(f"{values[f'{one}→{how}']:.2f}" for one in known)

    rivals = [line.label for line in parts(name)[0][1].lines if line.label != OURS]
    plain, with_signs = found(OURS, 0), found(signed, 1)
    best = {c: max((found(row, 0)[c], row) for row in rivals) for c in columns}
    past = [c for c in columns if with_signs[c] > best[c][0]]
    alone = found("Random numbers, signed", 1)
    enough = [c for c in columns if alone[c] > best[c][0]]
    ceiling = [c for c in columns if _first(name, c, product)]
    sets = ", ".join(NAMES[one] for one in known)
    verdict = HOLDS if len(past) == len(columns) else PARTLY
    how = [c.partition("→")[2] for c in columns if c.startswith(f"{known[0]}→")]
    return [
        Claim(
            UA, "Signs decide the blurring test", "–", _short(first(plain), first(with_signs)), verdict, name,
            f"Ours. Share of the doubt that goes, before and after each pixel of UA-Backprop's maps gets a sign: does blurring it take doubt away or add some? {sets}, {members} networks each, 200 pictures{' (100 of the last)' if set(known) & {'cifar10', 'cifar100'} else ''}, chosen in two ways and blurred with two widths: {len(columns)} cases. "
            f"For the most doubtful pictures and σ = 1.5: {first(plain)} without and {first(with_signs)} with signs. The best map of magnitudes has {first({c: best[c][0] for c in columns})} there ({' or '.join(dict.fromkeys(best[c][1] for c in columns if c.endswith('most doubtful, σ = 1.5')))}); "
            f"with signs UA-Backprop is past all of them in {len(past)} of {len(columns)} cases{_except(columns, past)}. "
            f"{'That was expected' if len(past) == len(columns) else 'It was expected in all'}, and is why `UABackprop(signed=True)` {'stays' if len(past) == len(columns) else 'was kept as an option'} in the library. Expected was, too, that the sign alone would do it: random numbers with these signs have {first(alone)}, past every magnitude in {len(enough)} of {len(columns)}. "
            f"The gradient times what the blur takes from each pixel, a map of one backward pass, has {first(found(product, 1))}; it is the best map of all, or within the interval of the best, in {len(ceiling)} of {len(columns)}{_except(columns, ceiling)}." + _again(name),
            "signs",
        ),
        *([_places(name, columns, known, how, rivals)] if "mnist→upper half, σ = 3" in columns else []),
    ]  # fmt: skip


def _places(
    name: str, columns: list[str], known: list[str], how: list[str], rivals: list[str]
) -> Claim:
    """On which pictures UA-Backprop leads the magnitudes."""
    areas = {
        c: {row: cell(name, row, c, "urr5", 0).mean for row in (OURS, *rivals)} for c in columns
    }
    rank = {c: 1 + sum(own[row] < own[OURS] for row in rivals) for c, own in areas.items()}
    beaten = {
        c: [row for row in rivals if cell(name, row, c, "lead_low", 0).mean > 0] for c in columns
    }
    beats = {
        c: [row for row in rivals if cell(name, row, c, "lead_high", 0).mean < 0] for c in columns
    }
    half, most = (
        [rank[c] for c in columns if chosen in c] for chosen in ("upper half", "most doubtful")
    )
    mnist = [
        (rank[f"mnist→most doubtful, σ = {s}"], rank[f"mnist→upper half, σ = {s}"])
        for s in ("1.5", "3")
    ]
    higher = sum(later < before for before, later in mnist)
    listed = "; ".join(
        f"{NAMES[one]} " + " / ".join(str(rank[f"{one}→{h}"]) for h in how if f"{one}→{h}" in rank)
        for one in known
    )
    count = len(rivals) + 1
    return Claim(
        UA, "Which pictures decide its place", "“highly uncertain”, first",
        f"place of {count}: {min(most)} to {max(most)}, else {min(half)} to {max(half)}", HOLDS if higher == 2 else PARTLY if higher else DOES_NOT, name,
        f"Ours. UA-Backprop's place among {count} maps of magnitudes, by the area under the curve, one of them random numbers. Pictures and width of the blur: {'; '.join(how)}. Places: {listed}. "
        "The paper says “highly uncertain”; the public code of the work that it takes the test from draws from the upper half. Expected was a better place on the upper half of MNIST: "
        f"it came out for {higher} of 2 widths. It is behind {_counted(beats)}, and ahead of {_counted(beaten)}, where the 95 % interval of the difference is clear of 0.",
    )  # fmt: skip


def _short(before: str, after: str) -> str:
    """Both lists of numbers, short enough for the table."""
    text = f"{before} → {after}"
    return text if len(text) <= 48 else text.replace("0.", ".").replace(" / ", "/")


def _except(columns: list[str], some: list[str]) -> str:
    """The cases that are not among some, where they are few."""
    left = [c for c in columns if c not in some]
    if not left or len(left) > 4:
        return ""
    told = (f"{NAMES[c.partition('→')[0]]}, {c.partition('→')[2]}" for c in left)
    return " (not " + "; ".join(told) + ")"


def _counted(by_column: dict[str, list[str]]) -> str:
    """How often each row is named, as words."""
    every = [row for rows in by_column.values() for row in rows]
    some = sorted(dict.fromkeys(every), key=lambda row: -every.count(row))
    return (
        ", ".join(f"{row} in {every.count(row)}" for row in some) + f" of {len(by_column)} cases"
        if some
        else "none"
    )


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
