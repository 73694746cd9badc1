"""What a page says first: which inputs not to trust, why, and what to do; without a reference, that nobody can say.

A rule that is made from the very inputs it judges says nothing about them: some are always the most doubtful. So inputs
are judged by a guard alone, which was fitted to other ones, and without a guard they are ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from nescio.dense import RegionGuard
from nescio.guard import Guard, Verdict
from nescio.guard.fitting import STEADY
from nescio.report.findings_types import FirstScreen, Kind, State, Tile

ONE: dict[Kind, str] = {"pictures": "picture", "texts": "text", "rows": "row"}
STATES: tuple[State, ...] = ("foreign", "unsure", "fine")
SHARES: dict[State, int] = {"foreign": 24, "unsure": 12, "fine": 24}
"""Tiles of the strip for each state, where there are more of all; what one leaves free goes to the others."""
CARDS = 24
"""Inputs of a state that get a card each; the others are listed."""


def with_guard(
    verdict: Verdict,
    guard: Guard | RegionGuard,
    counts: Mapping[int, int],
    show: Callable[[int], Tile],
    *,
    kind: Kind,
    level: float,
    again: str | None = None,
    like: str | None = None,
) -> FirstScreen:
    """Return what is said with a guard.

    Args:
        verdict: What the guard says of all inputs.
        guard: The guard.
        counts: The places of different inputs, and how often each is there.
        show: From a place to what is shown of the input there.
        kind: What inputs are called.
        level: The share of inputs like the reference that is called foreign by mistake.
        again: A command that judges more of them.
        like: What the reference is called, where it has a better name.
    """
    like = like or f"the {guard.fitted.count:,} {kind} of the reference"
    said, states = verdict.words(level), verdict.states(level)
    p, score = verdict.p_value.tolist(), verdict.score.tolist()
    order = sorted(counts, key=lambda at: (STATES.index(states[at]), p[at], -score[at], at))
    by_state = {state: [at for at in order if states[at] == state] for state in STATES}
    drawn = {at: show(at) for at in _strip(by_state)}

    def entry(at: int) -> Tile:
        tile = drawn.get(at) or show(at)
        return {**tile, "copies": counts[at], "state": states[at], "p_value": p[at], "words": said[at]}

    told = {state: len(places) for state, places in by_state.items()}
    return {
        "judged": True,
        "kind": kind,
        "level": level,
        "reference": guard.fitted.count,
        "ranks": verdict.ranks,
        "counts": told,
        "headline": _headline(told, like, kind),
        "said": _counted(told),
        "lines": _promise(counts, guard.fitted.count, kind, level),
        "strip": [entry(at) for at in drawn],
        "left": {state: len(by_state[state]) - sum(at in drawn for at in by_state[state]) for state in STATES},
        "cards": {
            "foreign": [entry(at) | {"rarity": rarity(p[at], kind)} for at in by_state["foreign"][:CARDS]],
            "unsure": [entry(at) for at in by_state["unsure"][:CARDS]],
        },
        "listed": {
            state: [_listed(show(at)) | {"p_value": p[at], "words": said[at]} for at in by_state[state][CARDS:]]
            for state in ("foreign", "unsure")
        },
        "do": [*_to_do(told, kind), *_fine(verdict, by_state["fine"])],
        "command": {"about": f"To judge more {kind} by the same reference:", "text": again} if again else None,
    }


def ranked(
    score: NDArray[np.float64],
    leading: str,
    counts: Mapping[int, int],
    show: Callable[[int], Tile],
    *,
    kind: Kind,
    again: str | None = None,
) -> FirstScreen:
    """Return what is said without a guard: an order, and how to get an answer.

    Args:
        score: The score of each input.
        leading: What it is called.
        counts: The places of different inputs, and how often each is there.
        show: From a place to what is shown of the input there.
        kind: What inputs are called.
        again: A command that gives an answer.
    """
    order = sorted(counts, key=lambda at: (-score[at], at))
    few = order[: sum(SHARES.values())]
    return {
        "judged": False,
        "kind": kind,
        "leading": leading,
        "headline": f"From these {number(counts, kind)} alone nobody can say which ones the model does not know.",
        "said": [],
        "lines": [
            f"A rule that is made from the {kind} that it judges says nothing about them: some are always the most "
            f"doubtful. So they are ranked by {leading}, the most doubtful first, and no more is said of them.",
            *_copies(counts, kind),
        ],
        "strip": [show(at) | {"copies": counts[at], "state": None, "rank": rank + 1} for rank, at in enumerate(few)],
        "left": {"ranked": len(order) - len(few)},
        "do": [
            f"Give some hundred {kind} of the kind that the model is meant for, which it was not trained on. They need "
            "no labels. Then this page says which of the others are unlike them, and why."
        ],
        "command": {"about": "The same page with an answer:", "text": again} if again else None,
    }


def rarity(p: float, kind: Kind) -> str:
    """The p-value of a foreign input in plain words."""
    return f"Of {kind} like the reference at most 1 in {int(1 / p + 1e-9):,} is this unusual (p = {p:.1g})."


def number(counts: Mapping[int, int] | int, kind: Kind) -> str:
    """'25 pictures', '1 row'."""
    count = counts if isinstance(counts, int) else len(counts)
    return f"{count:,} {kind if count != 1 else ONE[kind]}"


def _strip(by_state: Mapping[State, Sequence[int]]) -> list[int]:
    """Which inputs the strip shows, by state."""
    free = sum(max(0, SHARES[state] - len(places)) for state, places in by_state.items())
    shown: list[int] = []
    for state, places in by_state.items():
        more = max(0, min(free, len(places) - SHARES[state]))
        free -= more
        shown += places[: SHARES[state] + more]
    return shown


def _headline(told: Mapping[State, int], like: str, kind: Kind) -> str:
    every, foreign, unsure = sum(told.values()), told["foreign"], told["unsure"]
    if foreign:
        who = f"{foreign:,} of {number(every, kind)}" if every > 1 else f"this {ONE[kind]}"
        they = "they are" if foreign > 1 else "it is"
        return f"Do not trust the answers for {who}: {they} unlike {like}."
    whole = f"None of {number(every, kind)} is" if every > 1 else f"This {ONE[kind]} is not"
    doubt = f" Of {unsure:,} the model is unsure." if unsure else ""
    return f"{whole} unlike {like}.{doubt}"


def _counted(told: Mapping[State, int]) -> list[str]:
    """What the colours of the strip say, for those who do not see them."""
    unsure, fine, lines = told["unsure"], told["fine"], []
    if told["foreign"] and unsure:
        look = "looks" if unsure == 1 else "look"
        lines.append(f"{unsure:,} more {look} like the reference, but the model is unsure of its answer.")
    if fine:
        other = "the other " if fine < sum(told.values()) else "these "
        lines.append(f"Nothing speaks against the answers for {other}{fine:,}.")
    return lines


def _promise(counts: Mapping[int, int], reference: int, kind: Kind, level: float) -> list[str]:
    every = len(counts)
    expected = level * every
    so_many = "less than one" if expected < 1 else f"about {round(expected):,}"
    lines = [
        f"Of {kind} like the reference 1 in {round(1 / level):,} at most is called foreign by mistake: if all of these "
        f"{every:,} were like it, {so_many} would be.",
        *_copies(counts, kind),
    ]
    if reference < STEADY:
        lines.append(f"The reference is small: with {STEADY} or more {kind} the guard would see better.")
    return lines


def _copies(counts: Mapping[int, int], kind: Kind) -> list[str]:
    whole = sum(counts.values())
    more = whole - len(counts)
    are = "is a copy of another" if more == 1 else "are copies of others"
    return [f"{more:,} of the {number(whole, kind)} {are}; each is counted and shown once."] if more else []


def _to_do(told: Mapping[State, int], kind: Kind) -> list[str]:
    foreign, unsure, lines = told["foreign"], told["unsure"], []
    if foreign:
        lines = [
            f"Foreign: give {'it' if foreign == 1 else f'the {foreign:,}'} to a person, or leave "
            f"{'it' if foreign == 1 else 'them'} out. The model's answer means little there, however sure it looks.",
            f"Foreign, but of a kind that the model should know: try it on labelled {kind} of that kind first. If it "
            "answers them well, put some into the reference; if not, train it on them.",
        ]
    if unsure:
        lines.append("Unsure: have a person look where a wrong answer would cost something.")
    return lines or ["Nothing needs to be done. Check again when the inputs change: cameras, places, seasons, sources."]


def _fine(verdict: Verdict, fine: Sequence[int]) -> list[str]:
    """What "fine" does not mean: how many of these answers are wrong, which only labels of the reference can tell."""
    if not fine:
        return []
    if verdict.wrong is None:
        return [
            "Fine does not mean right: the inputs look like the reference, the model gives its answers a probability "
            "of one half or more, and they are no more doubtful than usual. How many of such answers are wrong, this "
            "page tells where the reference has labels."
        ]
    expected = float(verdict.wrong.probability[fine].sum())
    so_many = "less than one" if expected < 1 else f"about {round(expected):,}"
    they = f"{len(fine):,} such answer{'s' if len(fine) > 1 else ''} {'is' if round(expected) <= 1 else 'are'}"
    return [f"Fine does not mean right: going by the labels of the reference, {so_many} of {they} wrong."]


def _listed(tile: Tile) -> Tile:
    bare = tile.copy()
    bare.pop("picture", None)
    return bare
