"""What signs and the choice of pictures do to the blurring test, by the hypotheses of `ua_backprop/protocol.md`."""

from __future__ import annotations

import json

from claims import DOES_NOT, HOLDS, OURS, PARTLY, UA, Claim
from results import cell, files, parts, ran

from nescio_papers.runner.study import FULL_NAMES as NAMES
from nescio_papers.ua_backprop.signs import FEWER, HOW

NAME = "ua-signs"
SIGNED, PRODUCT, CHANCE = f"{OURS}, signed", "Gradient × (x − blur x)", "Random numbers, signed"
SHOWN = "most doubtful, σ = 1.5"
"""Of these pictures and this width the text has the numbers themselves."""
LARGE = ("cifar10", "cifar100")
"""Networks that are sure of most pictures: hypothesis E."""
HIGHER = ("mnist", "cifar10")
"""Where a better place was expected on the upper half: hypotheses D and F."""


def cases() -> list[str]:
    """The columns that were run, with UA-Backprop in both groups."""
    there = ran(NAME, "murr5")
    return [c for c in there if _value(OURS, c, 0) is not None and _value(SIGNED, c, 1) is not None]


def _value(row: str, column: str, part: int, metric: str = "murr5") -> float | None:
    found = cell(NAME, row, column, metric, part).mean
    return None if found is None else float(found)


def rivals(column: str) -> list[str]:
    """The other maps of magnitudes that have numbers."""
    every = [line.label for line in parts(NAME)[0][1].lines if line.label != OURS]
    return [row for row in every if _value(row, column, 0) is not None]


def signs() -> list[Claim]:
    """What signs do to the blurring test."""
    columns = cases()
    if not columns:
        return []
    known = list(dict.fromkeys(column.partition("→")[0] for column in columns))
    first = [one for one in known if f"{one}→{SHOWN}" in columns]
    members = max(
        len(seeds)
        for path in files(NAME)
        for seeds in json.loads(path.read_text())["settings"]["seeds"].values()
    )

    def found(row: str, part: int) -> dict[str, float]:
        values = {column: _value(row, column, part) for column in columns}
        return {column: value for column, value in values.items() if value is not None}

    def shown(values: dict[str, float]) -> str:
        there = (values.get(f"{one}→{SHOWN}") for one in first)
        return " / ".join("–" if value is None else f"{value:.2f}" for value in there)

    plain, with_signs, alone = found(OURS, 0), found(SIGNED, 1), found(CHANCE, 1)
    best = {c: max((_value(row, c, 0) or 0.0, row) for row in rivals(c)) for c in columns}
    past = [c for c in columns if with_signs[c] > best[c][0]]
    lifted = [c for c in columns if with_signs[c] > plain[c]]
    enough = [c for c in alone if alone[c] > best[c][0]]
    ceiling = [c for c in columns if _first(c, PRODUCT)]
    verdict = HOLDS if len(past) == len(columns) else PARTLY if past else DOES_NOT
    fewer = [one for one in known if one in FEWER]
    sets = ", ".join(NAMES[one] for one in known)
    pictures = (
        f"200 pictures ({FEWER[fewer[0]]} of {' and '.join(NAMES[one] for one in fewer)})"
        if fewer
        else "200 pictures"
    )
    library = (
        "That was expected, and is why `UABackprop(signed=True)` stays in the library"
        if len(past) == len(columns)
        else "It was expected in all, which fails. By the rule that was written down before the runs that would have kept `UABackprop(signed=True)` out of the library; it was there by then, and stays as an option that is off, "
        + (
            "since signs raise the share in every case: that alone is promised of it"
            if len(lifted) == len(columns)
            else "though signs do not raise the share in every case"
        )
    )
    shown_best = (best[f"{one}→{SHOWN}"] for one in first)
    numbers = [
        ("UA-Backprop, magnitudes", *shown(plain).split(" / ")),
        (
            "the best map of magnitudes",
            *(f"{value:.2f} ({_brief(row)})" for value, row in shown_best),
        ),
        ("UA-Backprop with signs", *shown(with_signs).split(" / ")),
        ("random numbers with these signs", *shown(alone).split(" / ")),
        ("gradient × what the blur takes", *shown(found(PRODUCT, 1)).split(" / ")),
    ]
    return [
        Claim(
            UA, "Signs decide the blurring test", "–", _short(shown(plain), shown(with_signs)), verdict, NAME,
            f"Ours. Share of the doubt that goes, before and after each pixel of UA-Backprop's maps gets a sign: does blurring it take doubt away or add some? {sets}, {members} networks each, {pictures}, chosen in two ways and blurred with two widths: {len(columns)} cases. "
            f"The table has the most doubtful pictures and σ = 1.5. Signs raise the share in {len(lifted)} of {len(columns)} cases{_except(columns, lifted)}; "
            f"with them UA-Backprop is past all maps of magnitudes in {len(past)} of {len(columns)} cases{_except(columns, past)}. {library}. "
            f"Expected was, too, that the sign alone would do it: random numbers with these signs are past every magnitude in {len(enough)} of {len(alone)}{_except(list(alone), enough)}: {_outcome(len(enough) == len(alone))}. "
            f"The gradient times what the blur takes from each pixel is a map of one backward pass; it was expected to be the best map of all, or within the interval of the best, and is in {len(ceiling)} of {len(columns)}{_except(columns, ceiling)}: {_outcome(len(ceiling) == len(columns))}."
            + _sure(columns, plain, with_signs, past) + _again(),
            "signs",
            (("share of the doubt that goes", *(NAMES[one] for one in first)), *numbers),
        ),
        *_places(columns, known),
    ]  # fmt: skip


def _brief(row: str) -> str:
    """A map's name in a group of magnitudes."""
    return row.removesuffix(", magnitudes")


def _outcome(held: bool) -> str:
    return "so it is" if held else "that fails"


def _sure(
    columns: list[str], plain: dict[str, float], with_signs: dict[str, float], past: list[str]
) -> str:
    """What was expected of networks that are sure of most pictures, case by case."""
    some = [c for c in columns if c.startswith(tuple(f"{one}→" for one in LARGE))]
    if not some:
        return ""
    held = [c for c in some if with_signs[c] > plain[c] and c in past and plain[c] < 0.5]
    where = " and ".join(NAMES[one] for one in LARGE if any(c.startswith(f"{one}→") for c in some))
    return (
        f" On {where}, whose networks were taken to be sure of most pictures, a share below .5 was expected without signs, and with them more, past every magnitude: "
        f"so it is in {len(held)} of {len(some)} cases{_except(some, held)}."
    )  # fmt: skip


def _places(columns: list[str], known: list[str]) -> list[Claim]:
    """On which pictures UA-Backprop leads the magnitudes, where both ways of choosing were run on some set."""
    widths = {
        one: [s for s in ("1.5", "3") if {f"{one}→most doubtful, σ = {s}", f"{one}→upper half, σ = {s}"} <= set(columns)]
        for one in known
    }  # fmt: skip
    expected = [(one, s) for one in HIGHER if one in known for s in widths[one]]
    if not expected:
        return []
    areas = {
        c: {
            row: area
            for row in (OURS, *rivals(c))
            if (area := _value(row, c, 0, "urr5")) is not None
        }
        for c in columns
    }
    rank = {c: 1 + sum(area < own[OURS] for area in own.values()) for c, own in areas.items()}
    count = max(map(len, areas.values()))
    higher = [
        (one, s)
        for one, s in expected
        if rank[f"{one}→upper half, σ = {s}"] < rank[f"{one}→most doubtful, σ = {s}"]
    ]
    verdict = HOLDS if higher == expected else PARTLY if higher else DOES_NOT
    half, most = (
        [rank[c] for c in columns if chosen in c] for chosen in ("upper half", "most doubtful")
    )
    how = [one for one in HOW if any(c.endswith(f"→{one}") for c in columns)]
    listed = [(NAMES[one], *(str(rank.get(f"{one}→{h}", "–")) for h in how)) for one in known]
    judged = " and ".join(
        f"{sum(name == one for name, _ in higher)} of {len(widths[one])} widths on {NAMES[one]}"
        for one in dict.fromkeys(name for name, _ in expected)
    )
    ahead, behind = (
        {c: [row for row in rivals(c) if clear(row, c)] for c in columns}
        for clear in (
            lambda row, c: (_value(row, c, 0, "lead_low") or 0.0) > 0,
            lambda row, c: (_value(row, c, 0, "lead_high") or 0.0) < 0,
        )
    )
    return [
        Claim(
            UA, "Which pictures decide its place", "“highly uncertain”, first",
            f"of {count}: {_span(most)}, on the upper half {_span(half)}", verdict, NAME,
            f"Ours. UA-Backprop's place among {count} maps of magnitudes, by the area under the curve, one of them random numbers; in the table it stands by pictures and width of the blur. "
            "The paper says “highly uncertain”; the public code of the work that it takes the test from draws from the upper half. Expected was a better place on the upper half of "
            f"{' and '.join(NAMES[one] for one in dict.fromkeys(name for name, _ in expected))}: it came out for {judged}. {_elsewhere(known, widths, rank)}It is behind {_counted(behind)}, and ahead of {_counted(ahead)}, where the 95 % interval of the difference is clear of 0.",
            table=(("its place", *how), *listed),
        )
    ]  # fmt: skip


def _elsewhere(known: list[str], widths: dict[str, list[str]], rank: dict[str, int]) -> str:
    """How the place changes on the sets of which nothing was expected."""
    told = []
    for one in known:
        if one not in HIGHER and widths[one]:
            steps = [
                rank[f"{one}→most doubtful, σ = {s}"] - rank[f"{one}→upper half, σ = {s}"]
                for s in widths[one]
            ]
            better, worse = (sum(sign * step > 0 for step in steps) for sign in (1, -1))
            told.append(
                f"better for {better} of {len(steps)} widths and worse for {worse} on {NAMES[one]}"
            )
    return f"Elsewhere nothing was expected; it is {', '.join(told)}. " if told else ""


def _span(places: list[int]) -> str:
    low, high = min(places), max(places)
    return str(low) if low == high else f"{low} to {high}"


def _short(before: str, after: str) -> str:
    """Both lists of numbers, short enough for the table."""
    text = f"{before} → {after}"
    return text if len(text) <= 48 else text.replace("0.", ".").replace(" / ", "/")


def _except(columns: list[str], some: list[str]) -> str:
    """The cases that are not among some, where they are few."""
    left = [c for c in columns if c not in some]
    if not left or len(left) > 4 or not some:
        return ""
    told = (f"{NAMES[c.partition('→')[0]]}, {c.partition('→')[2]}" for c in left)
    return " (not " + "; ".join(told) + ")"


def _counted(by_column: dict[str, list[str]]) -> str:
    """How often each row is named, as words."""
    every = [row for rows in by_column.values() for row in rows]
    some = sorted(dict.fromkeys(every), key=lambda row: -every.count(row))
    return (
        ", ".join(f"{_brief(row)} in {every.count(row)}" for row in some)
        + f" of {len(by_column)} cases"
        if some
        else "none"
    )


def _again() -> str:
    """What the same study says at the scale of a processor, where it was run there too."""
    small, column = f"{NAME}@small", f"mnist→{SHOWN}"
    if not files(small):
        return ""
    before, after = (
        cell(small, row, column, "murr5", part).mean for part, row in enumerate((OURS, SIGNED))
    )
    return f" Four other networks, trained for three epochs on a processor, with σ = 1.5: {before:.2f} → {after:.2f}."


def _first(column: str, row: str) -> bool:
    """Whether a map with signs is the best one of a column, or its interval holds the best one's distance."""
    leads = [
        line.values[column, "lead"].mean
        for line in parts(NAME)[1][1].lines
        if line.values[column, "lead"].mean is not None
    ]
    low, high = (_value(row, column, 1, f"lead_{end}") for end in ("low", "high"))
    return low is not None and high is not None and low <= min(leads) <= high
