"""Claims of the REGrad paper on active learning; verdicts follow from what `regrad/protocol.md` says before the runs."""

from __future__ import annotations

import math
from statistics import fmean

from claims import ARTEFACT, DOES_NOT, HOLDS, NOT, PARTLY, REGRAD, STAR, Claim
from results import cell, files, lines, pair, parts, ran, rank

from nescio_papers.regrad.acquisition import SIX
from nescio_papers.regrad.label_charts import ENOUGH, interval, twice_sure
from nescio_papers.runner.study import FULL_NAMES as NAMES

STUDY = "acquisition"
RIVALS = ("Entropy", "ExGrad, L2")
CLASSES = {"mnist": 10, "svhn": 10, "cifar10": 10, "cifar100": 100}
NONE_ABOVE, ALL_WITHIN = 2.0, 1.5
"""Points over random choice: on SVHN no method has more, on CIFAR-10 all of the first rows lie so near (D and E)."""
ON_THE_LINE = {"mnist": 0.15, "svhn": 0.02, "cifar10": 0.02, "cifar100": 0.02}
"""How far cross-entropy of softmax outputs was to be at most from log(e + C − 1) − accuracy (A and F)."""
Gap = tuple[float, float]


def named(columns: list[str]) -> str:
    """Data sets as in "MNIST, SVHN and CIFAR-10"."""
    return joined([NAMES[column] for column in columns])


def joined(words: list[str]) -> str:
    """Words as in "one, two and three"; "none" of nothing."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "none"


def listed(rows: list[str]) -> str:
    """Rows without what the text says anyway."""
    return joined([row.removesuffix(", k = 2").removesuffix(", L2") for row in rows])


def gain(row: str, column: str, over: str = "Random") -> Gap:
    """By how many points a method is ahead of another with the same seeds, and half of the 95 % interval."""
    one, two = (accuracies(name, column) for name in (row, over))
    values = [value - two[seed] for seed, value in one.items() if seed in two]
    return fmean(values), interval(values)


def accuracies(row: str, column: str) -> dict[int, float]:
    """Mean accuracy over the rounds, in percent, by seed."""
    cells = (c for c in parts(STUDY)[0][0]["cells"] if (c["row"], c["column"]) == (row, column))
    return {c["seed"]: 100 * c["metrics"]["acc"] for c in cells if "metrics" in c}


def methods(column: str) -> list[str]:
    """The rows of a data set that count, without random choice."""
    seeds = {line.label: accuracies(line.label, column) for line in parts(STUDY)[0][1].lines}
    least = min(ENOUGH, len(seeds.get(STAR, ())))
    return [row for row, own in seeds.items() if row != "Random" and own and len(own) >= least]


def sets() -> list[str]:
    """The data sets that were run, with REGrad* and random choice."""
    done = ran(STUDY, "acc")
    return [one for one in done if accuracies(STAR, one) and accuracies("Random", one)]


def _sure(gap: Gap) -> str:
    """A difference with its interval, where there are several seeds."""
    mean, half = gap
    return f"{_signed(mean)} ± {half:.1f}" if half else _signed(mean)


def _signed(points: float) -> str:
    """Points with their sign, where they are not nothing."""
    text = f"{points:+.1f}"
    return "0.0" if text == "-0.0" else text


def holds_zero(gap: Gap) -> bool:
    """Whether the interval of a difference holds 0."""
    return abs(gap[0]) <= gap[1]


def labels() -> list[Claim]:
    """Whether REGrad* chooses best what to label: by the paper's protocol, or, before that was run, by table3."""
    about = "Active learning: in each round the pictures that a score doubts most get labels, and the network is trained again. "
    if not files(f"{STUDY}@quick"):
        return [
            Claim(
                REGRAD, "REGrad* chooses best what to label", f"{lines('table3', STAR)[0].averages['acc'].paper:.1f} %, first",
                f"{lines('table3', STAR)[0].averages['acc'].mean:.1f} %, {rank('table3', STAR)}", NOT, "table3",
                f"{about}Mean accuracy on MNIST and CIFAR-10, with one seed and 50 epochs instead of 200: one seed ranks nothing, so this says little either way. "
                f"The study with the paper's protocol and five seeds is written (`{STUDY}`), and not run as a whole.",
            )
        ]  # fmt: skip
    every = sets()
    known = [one for one in every if len(accuracies(STAR, one)) > 1]  # one seed ranks nothing
    rows = {one: methods(one) for one in every}
    over = {one: {row: gain(STAR, one, row) for row in rows[one] if row != STAR} for one in every}
    places = [1 + sum(mean < 0 for mean, _ in over[one].values()) for one in known]
    clear = {
        one: [row for row, gap in over[one].items() if gap[0] > 0 and not holds_zero(gap)]
        for one in known
    }
    verdict = (
        HOLDS
        if all(len(clear[one]) == len(over[one]) for one in known)
        else PARTLY
        if any(
            place == 1 and gain(STAR, one)[0] > gain(STAR, one)[1]
            for place, one in zip(places, known, strict=True)
        )
        else NOT
    )
    shown = [
        (
            f"{NAMES[one]} ({_seeds(one)})",
            _sure(gain(STAR, one)),
            *(
                f"{_sure(over[one][row])} ({_signed(_printed(STAR, one) - _printed(row, one))})"
                for row in RIVALS
            ),
            f"{places[known.index(one)]} of {len(rows[one])}" if one in known else "–",
            f"{len(clear[one])} of {len(over[one])}" if one in known else "–",
        )
        for one in every
    ]
    level = {one: [holds_zero(over[one][row]) for row in RIVALS] for one in known}
    failed = [one for one in known if not all(level[one])]
    single = [one for one in every if one not in known]
    wide = tuple(known)
    of = " / ".join(
        f"{place} of {len(rows[one])}" for place, one in zip(places, known, strict=True)
    )
    accuracy = pair(STUDY, STAR, wide, metric="acc", part=0)
    ours = f"{accuracy} %, {of}"
    if len(ours) > 48:
        counts = {len(rows[one]) for one in known}
        ours = f"{accuracy} %, {' / '.join(map(str, places))}"
        ours += f" of {counts.pop()}" if len(counts) == 1 else ""
    return [
        Claim(
            REGRAD, "REGrad* chooses best what to label", f"{pair(STUDY, STAR, wide, metric='acc', paper=True, part=0)} %, first", ours, verdict, STUDY,
            f"{about}{named(every)}, 200 epochs and ten rounds as in the paper; to choose from: {_pools(every)}. Mean accuracy over the rounds; differences with the same seed, and their 95 % intervals over seeds. "
            f"The table has the points of REGrad* over others, and the paper's in brackets. "
            f"Expected was that the intervals over entropy and over ExGrad hold 0 on {named(known)}: {_outcome(failed, known)}. "
            f"{_certainly(sum(len(over[one]) for one in known))}"
            + (f" One seed ranks nothing, so {named(single)} {'has' if len(single) == 1 else 'have'} no place." if single else ""),
            STUDY,
            (("points of REGrad* over", "random choice", "entropy", "ExGrad", "its place", "certainly ahead of"), *shown),
        ),
        _random(known, rows),
    ]  # fmt: skip


def _certainly(count: int) -> str:
    """What the word means, and how often intervals of 95 % say so where nothing differs."""
    return f"Certainly means that the interval is clear of 0; where nothing differs chance makes some {count / 20:.0f} of {count} so."


def _outcome(failed: list[str], known: list[str]) -> str:
    """Whether an expectation came out, data set by data set."""
    if not failed:
        return "so it is"
    left = [one for one in known if one not in failed]
    return f"that fails on {named(failed)}" + (f", and holds on {named(left)}" if left else "")


def _seeds(column: str) -> str:
    counts = sorted({len(accuracies(row, column)) for row in methods(column)}, reverse=True)
    text = f"{counts[0]} seeds" if counts[0] > 1 else "one seed"
    return text + (f", some methods {counts[-1]}" if len(counts) > 1 else "")


def _printed(row: str, column: str) -> float:
    """The paper's accuracy."""
    return float(cell(STUDY, row, column, "acc", 0).paper)


def _pools(columns: list[str]) -> str:
    """How many pictures there were to choose from."""
    size = {"mnist": "10,000 pictures", "svhn": "20,000", "cifar10": "30,000", "cifar100": "30,000"}
    return joined([f"{size[one]} of {NAMES[one]}" for one in columns])


def _random(known: list[str], rows: dict[str, list[str]]) -> Claim:
    """What methods have over random choice, by the expectations B, D and E of the protocol."""
    gains = {one: {row: gain(row, one) for row in rows[one]} for one in known}
    most = {one: max(gains[one], key=lambda row, one=one: gains[one][row][0]) for one in known}
    judged: list[bool] = []
    said: list[str] = []
    failed: set[str] = set()
    first = [one for one in known if one in ("mnist", "svhn")]
    if first:
        places = [
            (row, one)
            for one in first
            for row in (*RIVALS, STAR)
            if not holds_zero(gains[one][row])
        ]
        apart = [
            f"{listed([row])} on {NAMES[one]} ({_sure(gains[one][row])})" for row, one in places
        ]
        judged.append(not apart)
        failed |= {one for _, one in places}
        said.append(
            f"For entropy, ExGrad and REGrad* on {named(first)} intervals were expected that hold 0: "
            + (f"that fails for {joined(apart)}" if apart else "so it is")
        )
    if "svhn" in known:
        top = gains["svhn"][most["svhn"]][0]
        above = [row for row, (mean, _) in gains["svhn"].items() if mean > NONE_ABOVE]
        judged.append(not above)
        failed |= {"svhn"} if above else set()
        said.append(
            f"On SVHN none of {len(rows['svhn'])} methods was expected more than {NONE_ABOVE:.0f} points above random choice: {f'that fails for {listed(above)}' if above else 'so it is'}; the most is {top:+.1f} ({listed([most['svhn']])})"
        )
    if "cifar10" in known:
        own = [gains["cifar10"][row][0] for row in SIX if row in gains["cifar10"]]
        reach = max(
            abs(mean) + half for row, (mean, half) in gains["cifar10"].items() if row in SIX
        )
        judged.append(max(map(abs, own)) <= ALL_WITHIN)
        failed |= set() if judged[-1] else {"cifar10"}
        said.append(
            f"On CIFAR-10 {len(own)} methods were expected within {ALL_WITHIN} points of random choice: {'so it is' if judged[-1] else 'that fails'}, they have {min(own):+.1f} to {max(own):+.1f} (their intervals reach to {reach:.1f})"
        )

    def apart_from_zero(sign: int) -> str:
        some = {
            one: [
                row
                for row, gap in gains[one].items()
                if sign * gap[0] > 0 and not holds_zero(gap)
            ]
            for one in known
        }  # fmt: skip
        there = [f"{listed(own)} on {NAMES[one]}" for one, own in some.items() if own]
        return (
            "; ".join(there) + (", none elsewhere" if len(there) < len(some) else "")
            if there
            else "none"
        )

    verdict = HOLDS if all(judged) else PARTLY if any(judged) else DOES_NOT
    return Claim(
        REGRAD, "Random choice is as good", "–",
        f"most gained: {' / '.join(f'{gains[one][most[one]][0]:+.1f}' for one in known)} points", verdict, STUDY,
        f"Ours. Mean accuracy over the rounds less that of random choice with the same seed, {named(known)}. {_in_all(failed, known)} {'. '.join(said)}. The most over random choice has {joined([f'{listed([most[one]])} on {NAMES[one]}' for one in known])}. "
        f"Certainly better than random choice: {apart_from_zero(1)}. Certainly worse: {apart_from_zero(-1)}. That an interval holds 0 does not say that nothing is gained, only that so many seeds do not show it.",
    )  # fmt: skip


def _in_all(failed: set[str], known: list[str]) -> str:
    """On which data sets all came out as expected."""
    held, not_so = ([one for one in known if (one in failed) == so] for so in (False, True))
    if not held or not not_so:
        return f"What was expected {'came out' if held else 'failed'} on {named(known)}."
    return f"What was expected came out on {named(held)} and failed on {named(not_so)}."


def likelihood() -> list[Claim]:
    """What the paper's column of NLL is."""
    sums = [
        line.values["cifar10", "acc"].paper / 100 + line.values["cifar10", "nll"].paper
        for line in {
            line.paper_row: line for line in parts("table3")[0][1].lines if line.paper_row
        }.values()
    ]
    why = (
        f"In all {len(sums)} rows of the paper's CIFAR-10 accuracy and NLL add up to nearly one number, {min(sums):.3f} to {max(sums):.3f}. The loss of a network that is sure of all its answers would be "
        f"just that, if its probabilities were passed through softmax once more: log(e + C − 1) − accuracy with C classes, and log(e + 9) = {math.log(math.e + 9):.3f}. So the column is almost certainly the cross-entropy of "
        "softmax outputs, another quantity than NLL."
    )
    if not files(f"{STUDY}@quick"):
        nll = lines("table3", STAR)[0].values["cifar10", "nll"]
        return [
            Claim(
                REGRAD, "NLL in active learning (C10)", f"{nll.paper:.2f}", f"{nll.mean:.2f}", ARTEFACT, "table3",
                f"REGrad*'s NLL on CIFAR-10. {why}", "nll-identity",
            )
        ]  # fmt: skip
    columns = tuple(sets())

    def rows(column: str) -> list[dict[str, float]]:
        """Ours and the paper's numbers of each row that counts, random choice too."""
        counted = {*methods(column), "Random"}
        own = [line.values for line in parts(STUDY)[0][1].lines if line.label in counted]
        return [
            {name: values[column, name].mean for name in ("acc", "twice", "nll")}
            | {"paper": values[column, "twice"].paper}
            for values in own
        ]

    def far(column: str, metric: str) -> float:
        """How far a number is from the paper's NLL, at most."""
        return max(abs(row[metric] - row["paper"]) for row in rows(column) if row["paper"])

    def off(column: str, metric: str) -> float:
        """How far a number is from what a network gives that is sure of every answer, at most."""
        return max(
            abs(row[metric] - twice_sure(row["acc"] / 100, CLASSES[column])) for row in rows(column)
        )

    def each(how: object, metric: str, digits: int) -> str:
        return " / ".join(f"{how(one, metric):.{digits}f}" for one in columns)  # type: ignore[operator]

    def row_of(name: str, values: str) -> tuple[str, ...]:
        return (name, *values.split(" / "))

    near = [one for one in columns if off(one, "twice") <= ON_THE_LINE[one]]
    other = [one for one in columns if off(one, "nll") > ON_THE_LINE[one]]
    failed = [one for one in columns if one not in near or one not in other]
    planned = [one for one in columns if one in ("mnist", "svhn")]
    away = [one for one in planned if not far(one, "twice") <= 0.05 < far(one, "nll")]
    since = " (our accuracies are not the paper's)" if away else ""
    bounds = " / ".join(f"{ON_THE_LINE[one]:g}" for one in columns)
    rows_each = " / ".join(str(len(rows(one))) for one in columns)
    nearer = all(far(one, "twice") < far(one, "nll") for one in columns)
    twice, plain = (
        pair(STUDY, STAR, columns, 2, metric=metric, part=0) for metric in ("twice", "nll")
    )
    printed = pair(STUDY, STAR, columns, 2, True, metric="twice", part=0)
    return [
        Claim(
            REGRAD, "NLL in active learning", printed, plain, ARTEFACT if nearer else PARTLY, STUDY,
            f"REGrad*'s NLL on {named(list(columns))}. {why} Cross-entropy of softmax outputs was expected within {bounds} of log(e + C − 1) − our own accuracy for each of {rows_each} rows, and NLL not: {_outcome(failed, list(columns))}. The line, below, is log(e + C − 1) − accuracy. "
            f"On {named(planned)} it was expected within 0.05 of the paper's column, too, and NLL not: {_outcome(away, planned)}{since}.",
            "nll-identity",
            (
                ("", *(NAMES[one] for one in columns)),
                row_of("the paper's NLL, REGrad*", printed),
                row_of("ours: cross-entropy of softmax outputs", twice),
                row_of("ours: NLL", plain),
                row_of("cross-entropy, farthest of all rows from the line", each(off, "twice", 3)),
                row_of("NLL, farthest from the line", each(off, "nll", 2)),
                row_of("cross-entropy, farthest of all rows from the paper's column", each(far, "twice", 2)),
                row_of("NLL, farthest from the paper's column", each(far, "nll", 2)),
            ),
        )
    ]  # fmt: skip
