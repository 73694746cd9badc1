"""The verdicts of a guard as columns of a table, and what people are told of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nescio.guard import Guard, Verdict, joined
from nescio.guard.promise import benjamini_hochberg

Column = NDArray[Any]
WORST = 5
"""Inputs that are named, at most."""
CHANCE = "It is unusual, but among so many inputs that may be chance."


def columns(verdicts: Sequence[Verdict], guard: Guard, level: float) -> dict[str, Column]:
    """The columns of some verdicts, in order, of none too: the guard says which there are.

    predicted, confidence, p_value, foreign (at this level), what each witness says, as z, and where the reference had
    labels, wrong with wrong_low and wrong_high; then words.
    """
    found = guard.fitted
    names = [witness.name for witness in found.witnesses]
    wrong = [] if found.mistakes is None else ["wrong", "wrong_low", "wrong_high"]
    if not verdicts:
        numbers = dict.fromkeys(("confidence", "p_value", *names, *wrong), np.empty(0))
        own: dict[str, Column] = {"predicted": np.empty(0, np.int64), **numbers}
        own |= {"foreign": np.empty(0, np.bool_), "words": np.empty(0, np.str_)}
    else:
        whole = joined(verdicts)
        own = {name: getattr(whole, name).numpy() for name in ("predicted", "confidence", "p_value")}
        own |= {"foreign": whole.foreign(level).numpy(), "words": np.array(whole.words(level), dtype=np.str_)}
        own |= {name: z.numpy() for name, z in whole.witnesses.items()}
        if whole.wrong is not None:
            parts = (whole.wrong.probability, whole.wrong.low, whole.wrong.high)
            own |= {name: part.numpy() for name, part in zip(wrong, parts, strict=True)}
    return {name: own[name] for name in ("predicted", "confidence", "p_value", "foreign", *names, *wrong, "words")}


def note(table: dict[str, Column]) -> dict[str, Any]:
    """How many of these rows are foreign, and the worst of them: p-value, how far the witnesses go, name, words."""
    foreign = np.flatnonzero(table["foreign"])
    said = _said(table)
    order = sorted(foreign.tolist(), key=lambda i: (table["p_value"][i], -said[i]))[:WORST]
    names = table.get("name", table["index"])
    worst = [[float(table["p_value"][i]), float(said[i]), str(names[i]), str(table["words"][i])] for i in order]
    return {"foreign": len(foreign), "worst": worst}


def _said(table: dict[str, Column]) -> Column:
    """The sum of what the witnesses say, which stands after `foreign`."""
    names = list(table)
    start = names.index("foreign") + 1
    stop = names.index("wrong") if "wrong" in names else names.index("words")
    return np.sum([table[name] for name in names[start:stop]], axis=0)


def together(notes: Iterable[dict[str, Any]]) -> tuple[int, list[list[Any]]]:
    """The notes of all parts as one: how many are foreign, and the worst."""
    every = list(notes)
    worst = sorted((one for own in every for one in own["worst"]), key=lambda one: (one[0], -one[1]))
    return sum(own["foreign"] for own in every), worst[:WORST]


def at_rate(p: Column, fdr: float) -> Callable[[dict[str, Column]], dict[str, Column]]:
    """What makes of a part's columns those in which `foreign` holds a share of mistakes among all that are flagged.

    Args:
        p: the p-values of all rows.
        fdr: that share; the part was made with it as its level, so all that may be flagged has its reason.
    """
    values = torch.from_numpy(np.ascontiguousarray(p, dtype=np.float64))
    flagged = values[benjamini_hochberg(values, fdr)]
    most = float(flagged.max()) if len(flagged) else -1.0

    def changed(table: dict[str, Column]) -> dict[str, Column]:
        foreign = table["p_value"] <= most
        words = np.where(table["foreign"].astype(bool) & ~foreign, CHANCE, table["words"].astype(np.str_))
        return {**table, "foreign": foreign, "words": words}

    return changed
