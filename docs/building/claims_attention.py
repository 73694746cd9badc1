"""Whether attention gains by its maps or is a temperature, by the hypotheses of `ua_backprop/protocol.md`."""

from __future__ import annotations

from functools import partial
from statistics import fmean, stdev
from typing import NamedTuple

from claims import DOES_NOT, HOLDS, OURS, PARTLY, UA, Claim
from claims_labels import joined, named
from results import parts

from nescio import evaluate
from nescio_papers.runner.study import FULL_NAMES as NAMES

NAME = "ua-attention"
RUNS = 5
"""Rows that were not run so often are left out."""
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}
"""How many standard errors the 95 % interval of a mean over so many runs has to each side."""
TOGETHER = ((("mnist",), 0, 1), (("svhn", "cifar10"), 1, 1))
"""Sets whose pairs are judged together: so many intervals may be clear of 0, and up to so many leave it undecided."""
CLEAR = -0.5
"""Rank correlation of factor and loss: below it hypothesis B holds."""
PRINTED, NONE, RANGE = f"{OURS}, as printed", "No attention", f"{OURS}, range"
RANDOM = "Random attention, range"
NEEDED = {PRINTED, NONE, RANGE, f"{RANGE}, flat", RANDOM, f"{RANDOM}, flat"}
SHOWN = {
    "no attention": NONE,
    "UA-Backprop's maps": RANGE,
    "flat, as large": f"{RANGE}, flat",
    "random numbers": RANDOM,
    "flat, as large as these": f"{RANDOM}, flat",
}
"""The rows in the table of the page, all by their range."""
Place = tuple[str, str]
"""A row and a data set."""


def _runs(row: str, column: str, metric: str) -> dict[int, float]:
    """The values of a row by run."""
    cells = (c for c in parts(NAME)[0][0]["cells"] if (c["row"], c["column"]) == (row, column))
    return {one["seed"]: one["metrics"][metric] for one in cells if "metrics" in one}


def _mean(row: str, column: str, metric: str) -> float:
    return fmean(_runs(row, column, metric).values())


def rows() -> dict[str, list[str]]:
    """The rows that count, by data set, where those that the hypotheses speak of are among them."""
    places = {(c["column"], c["row"]): None for c in parts(NAME)[0][0]["cells"]}
    found: dict[str, list[str]] = {}
    for column, row in places:
        if len(_runs(row, column, "nll")) >= RUNS:
            found.setdefault(column, []).append(row)
    return {column: own for column, own in found.items() if set(own) >= NEEDED}


def _differs(metric: str, place: Place, other: str) -> bool:
    """Whether the interval of the difference over runs is clear of 0."""
    row, column = place
    one, two = (_runs(label, column, metric) for label in (row, other))
    gaps = [one[run] - two[run] for run in one if run in two]
    error = stdev(gaps) / float(len(gaps)) ** 0.5
    return abs(fmean(gaps)) > STUDENT[len(gaps)] * error


def _from_flat(metric: str, place: Place) -> bool:
    """Whether a map differs from its control."""
    return _differs(metric, place, f"{place[0]}, flat")


def _worse(place: Place) -> bool:
    """Whether a map has the higher loss after scaling, beside its control."""
    row, column = place
    return _mean(row, column, "tempered") > _mean(f"{row}, flat", column, "tempered")


def _factors(row: str, column: str) -> str:
    """The factors of a map and its control, where these chose other strengths."""
    own, flat = (f"{_mean(one, column, 'factor'):.2f}" for one in (row, f"{row}, flat"))
    return "" if own == flat else f", with factors of {own} and {flat}"


class Judged(NamedTuple):
    """Hypothesis A on sets that are judged together: what is said, and whether it holds (None: undecided)."""

    text: str
    held: bool | None


def _judged(pairs: list[Place], allowed: int, undecided: int) -> Judged:
    clear = [pair for pair in pairs if _from_flat("tempered", pair)]
    held = True if len(clear) <= allowed else None if len(clear) <= undecided else False
    sets = list(dict.fromkeys(column for _, column in pairs))
    words = [
        (row if len(sets) == 1 else f"{row} on {NAMES[column]}") + _factors(row, column)
        for row, column in clear
    ]
    worse = sum(map(_worse, clear))
    all_worse = "there the map is worse" if len(clear) == 1 else "in each the map is worse"
    is_so = all_worse if worse == len(clear) else f"in {worse} the map is worse"
    which = f" ({'; '.join(words)}: {is_so})" if clear else ""
    count, some = len(pairs), 0.95 ** len(pairs)
    two = 1 - some - count * 0.05 * 0.95 ** (count - 1)
    asked = f"at most {allowed} does" if allowed else "none does"
    outcome = {
        True: "so it is",
        None: f"so this is undecided, since by chance alone one or more would in {100 * (1 - some):.0f} % of cases",
        False: f"that fails; by chance alone two or more would in {100 * two:.0f} % of cases",
    }[held]
    differ = "differs" if len(clear) == 1 else "differ"
    return Judged(
        f"{named(sets)}: of {count} pairs {len(clear)} {differ} after scaling{which}. Expected was that {asked}: {outcome}.",
        held,
    )


def _rank(column: str, every: list[str], metric: str) -> float:
    """The rank correlation over rows of the mean factor and a loss; 0 where the loss is the same everywhere."""
    factors, losses = ([_mean(row, column, m) for row in every] for m in ("factor", metric))
    return evaluate.rank_correlation(factors, losses) or 0.0


def _by_set(failed: list[str]) -> str:
    return f"that fails on {named(failed)}" if failed else "so it is"


def _best(pairs: list[Place], column: str) -> str:
    """The flat map of a data set that has the lowest loss after scaling."""
    flats = [f"{row}, flat" for row, where in pairs if where == column]
    return min(flats, key=partial(_mean, column=column, metric="tempered"))


def _lasting(pairs: list[Place], known: list[str]) -> str:
    """What flat maps still gain after scaling."""
    better, worse, counts = (dict.fromkeys(known, 0) for _ in range(3))
    for row, column in pairs:
        flat = f"{row}, flat"
        gain = _mean(flat, column, "tempered") < _mean(NONE, column, "tempered")
        differs = _differs("tempered", (flat, column), NONE)
        better[column] += differs and gain
        worse[column] += differs and not gain
        counts[column] += 1
    if not any(better.values()):
        return ""
    told = " and ".join(f"{better[c]} of {counts[c]} on {NAMES[c]}" for c in known if better[c])
    rest = "; ".join(
        f"On {NAMES[c]} {better[c]} of {counts[c]} are certainly better and {worse[c]} certainly worse"
        for c in known
        if not better[c]
    )
    return (
        f" Not foreseen: flat maps are certainly better than no attention even after scaling, {told}. So the gain is more there than a softening of the answers, a temperature, which was our guess: "
        "to train with features that are several times as large helps by itself. Why was not tested."
        + (f" {rest}: there nothing speaks against the guess." if rest else "")
    )  # fmt: skip


def attention() -> list[Claim]:
    """Whether what attention gains comes from the maps or is a temperature."""
    every = rows()
    known = [one for one in every if any(one in sets for sets, *_ in TOGETHER)]
    if not known:
        return []
    both: list[Place] = [
        (row, column)
        for column in known
        for row in every[column]
        if f"{row}, flat" in every[column]
    ]
    judged = [
        _judged(some, *limits)
        for sets, *limits in TOGETHER
        if (some := [pair for pair in both if pair[1] in sets])
    ]
    held = [one.held for one in judged]
    verdict = HOLDS if all(held) else DOES_NOT if False in held and True not in held else PARTLY
    clear = [pair for pair in both if _from_flat("tempered", pair)]
    before = [pair for pair in both if _from_flat("nll", pair)]
    better = [f"{row} on {NAMES[column]}" for row, column in clear if not _worse((row, column))]
    ranks = {metric: [_rank(c, every[c], metric) for c in known] for metric in ("nll", "tempered")}
    flatter = [c for c, rank in zip(known, ranks["nll"], strict=True) if not rank < CLEAR]
    apart = [c for c in known if _differs("nll", (PRINTED, c), NONE)]

    best = {column: _best(both, column) for column in known}
    differ = "worse than" if clear and not better else "differ from"
    runs = sorted({len(_runs(NONE, column, "nll")) for column in known})
    return [
        Claim(
            UA, "Attention maps do the same as flat ones", "–", f"{len(clear)} of {len(both)} maps {differ} flat", verdict, NAME,
            f"Ours. {named(known)}; {' or '.join(map(str, runs))} runs. Attention makes features larger in training (1 + αA) and not in the test, which softens the answers. So each map has a control, a flat map with the same mean, and the likelihood is measured again after temperature scaling on held-out pictures; α is chosen there too, for each row by itself. "
            f"The table has the negative log-likelihood as it is and after scaling. {' '.join(one.text for one in judged)} Before scaling {len(before)} of {len(both)} do. "
            + (f"Certainly better than its control is {joined(better)}. " if better else "No map is certainly better than its control: what attention gains is no map's doing. ")
            + f"The larger features were in training, the lower the loss as it is: rank correlations below {CLEAR} were expected: {_by_set(flatter)}."
            f"{_lasting(both, known)} "
            f"With a softmax as the paper prints it and α = 8 features grow by {100 * (max(_mean(PRINTED, c, 'factor') for c in known) - 1):.1f} % at most, and no difference from no attention was expected: {_by_set(apart)}.",
            "temperature",
            (
                ("NLL, as it is → scaled", *(NAMES[one] for one in known)),
                *((name, *(f"{_mean(row, c, 'nll'):.2f} → {_mean(row, c, 'tempered'):.2f}" for c in known)) for name, row in SHOWN.items()),
                ("the best flat map", *(f"{_mean(best[c], c, 'nll'):.2f} → {_mean(best[c], c, 'tempered'):.2f}" for c in known)),
                ("right: no attention / the best flat map", *(" / ".join(f"{100 * _mean(row, c, 'acc'):.1f} %" for row in (NONE, best[c])) for c in known)),
                ("rank correlation of factor and NLL", *(f"{one:.2f} → {two:.2f}" for one, two in zip(ranks["nll"], ranks["tempered"], strict=True))),
            ),
        )
    ]  # fmt: skip
