"""Single inputs: what the model takes them for, where their doubt comes from, and what to do, in words.

Maps are those of `nescio.explain` (UA-Backprop), which takes the unlikely ones of many classes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nescio import decide
from nescio.attribution import explain
from nescio.attribution.source import Source as Attributed
from nescio.attribution.uncertainty import Of
from nescio.data.sources import Problem, Rows
from nescio.data.sources.tables import TableRows
from nescio.inputs import Inputs
from nescio.progress import bar
from nescio.study.reporting.measuring import Measured, Subject, taken
from nescio.types import Decomposition, NescioError

KINDS: tuple[Of, ...] = ("total", "aleatoric", "epistemic")
SIDE = 256
"""Pictures are kept with at most so many pixels a side."""


def chosen(scores: NDArray[np.float64], most: int, least: int) -> dict[str, list[int]]:
    """The places of the most doubtful, falling, and of the least doubtful, rising; none is in both."""
    order = np.argsort(scores, kind="stable")
    low = order[: min(least, len(order) // 2)].tolist()
    high = order[::-1][: min(most, len(order) - len(low))].tolist()
    return {"most": high, "least": low}


def described(
    about: Subject,
    rows: Rows,
    measured: Measured,
    places: Sequence[int],
    *,
    known: Measured,
    rule: decide.Policy,
    leading: str,
    labels: NDArray[np.int64] | None,
    class_names: Sequence[str] | None,
    maps: bool,
    progress: bool | None,
    what: str,
) -> list[dict[str, Any]]:
    """The inputs at these places of what was measured; known: the data by which doubt is ranked."""
    if not places:
        return []
    words = _words(measured, places, known.kinds, rule, leading, class_names)
    ordered = np.sort(known.scores[leading])
    found = []
    with bar(len(places), show=progress, description=what) as shown:
        for at, said in zip(places, words, strict=True):
            index, p = int(measured.index[at]), measured.p[at]
            label = None if labels is None or labels[at] < 0 else int(labels[at])
            likely = p.topk(min(3, len(p)))
            one: dict[str, Any] = {
                "index": index,
                "name": measured.names[at],
                "predicted": int(p.argmax()),
                "class": named(int(p.argmax()), class_names),
                "probability": float(p.max()),
                "label": label,
                "label_class": None if label is None else named(label, class_names),
                "likeliest": [
                    {"class": named(int(c), class_names), "probability": float(v)}
                    for v, c in zip(likely.values, likely.indices, strict=True)
                ],
                "scores": {key: float(values[at]) for key, values in measured.scores.items()},
                "rank": float(np.searchsorted(ordered, measured.scores[leading][at]) / len(ordered)),
                **{kind: float(getattr(measured.kinds, kind)[at]) for kind in KINDS},
                "advice": said.advice,
                "doubt": said.kind,
                "words": said.text,
            }
            found.append(one | _shown(about, rows, index, measured.members, maps))
            shown.update(1)
    return found


def named(index: int, class_names: Sequence[str] | None) -> str:
    """A class in words."""
    return f"class {index}" if class_names is None or index >= len(class_names) else class_names[index]


def _words(
    measured: Measured,
    places: Sequence[int],
    known: Decomposition,
    rule: decide.Policy,
    leading: str,
    class_names: Sequence[str] | None,
) -> list[decide.Explanation]:
    count = len(known.total)
    return decide.explain(
        taken(measured.kinds, places),
        known,
        rule,
        scores=measured.scores[leading][list(places)],
        alarm=max(0.05, 1 / (count + 1)),  # fewer known inputs can only flag more of them
        probabilities=measured.p[list(places)],
        class_names=class_names,
    )


def _shown(about: Subject, rows: Rows, index: int, members: int, maps: bool) -> dict[str, Any]:
    """The input itself, and why it is doubtful: maps of a picture, or the shares of features or tokens."""
    batch = rows.assemble([index], [rows.attempt(index)])
    if batch is None:  # it could be read before, and cannot now
        return {"text": None, "why": {"form": None, "note": "It can no longer be read."}}
    text = str(rows.store.raw(index)) if rows.preprocess.kind == "texts" else None
    found: dict[str, Any] = {"text": text}
    if isinstance(batch.inputs, Tensor) and batch.inputs.ndim == 4 and batch.inputs.is_floating_point():
        found["picture"] = _picture(batch.inputs[0])
    if not maps:
        return found | {"why": {"form": None, "note": "No maps were asked for."}}
    kinds: tuple[Of, ...] = KINDS if members > 1 else ("total",)
    try:
        every = explain(about.posterior, batch.inputs, of=kinds, progress=False)
    except NescioError as error:
        return found | {"why": {"form": None, "note": f"No map: {error}"}}
    drawn = {kind: one.maps[0].numpy() for kind, one in every.items()}
    one = every[kinds[-1]]
    why: dict[str, Any] = {
        "note": f"For the maps the {one.merged} least likely classes are taken together as one." if one.merged else "",
        "about": one.about,
        "of": {kind: float(one.uncertainty[0]) for kind, one in every.items()},
    }
    first = next(iter(drawn.values()))
    if first.ndim == 2 and "picture" in found:
        return found | {"why": why | {"form": "picture"}, "maps": {kind: _smaller(one) for kind, one in drawn.items()}}
    if first.ndim != 1:
        return found | {"why": why | {"form": None, "note": f"Maps of {first.ndim} dimensions are not drawn."}}
    labels, here = _labels(rows, batch.inputs)
    parts = {kind: one[here].tolist() for kind, one in drawn.items()}
    return found | {"why": why | {"form": "bars", "labels": labels, "parts": parts}}


def _labels(rows: Rows, x: Inputs) -> tuple[list[str], list[int]]:
    """What each bar is about, and which places of the maps they are: those that a mask leaves out are none."""
    source = Attributed.of(x, "auto")
    values, places = source.tensor(x)[0], source.places(x)
    here = [at for at in range(places.shape[0]) if places.absent is None or not bool(places.absent[0, at])]
    return [_label(rows, values, at, source.tokens) for at in here], here


def _label(rows: Rows, x: Tensor, place: int, tokens: bool) -> str:
    if x.ndim != 1:
        return f"place {place}"
    if not tokens:
        columns = rows.store._x if isinstance(rows.store, TableRows) else []
        name = columns[place] if len(columns) == len(x) else f"feature {place}"
        return f"{name} = {float(x[place]):.4g}"
    words: Callable[[int], Any] | None = None
    if rows.preprocess.kind == "texts":
        words = rows.preprocess.tokenizer.convert_ids_to_tokens  # type: ignore[attr-defined]
    token = int(x[place])
    return f"{place}: {words(token) if words is not None else f'token {token}'}"


def _picture(x: Tensor) -> NDArray[np.float64]:
    """What the model gets, [H, W] or [H, W, 3] in [0, 1]; other ranges are stretched, other channels averaged."""
    array = x.double().cpu().numpy()
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:
        array = (array - low) / ((high - low) or 1.0)
    return _smaller(np.moveaxis(array, 0, 2) if len(array) == 3 else array.mean(0))


def _smaller(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means over squares, so that no side has more than `SIDE` pixels."""
    step = -(-max(array.shape[:2]) // SIDE)
    if step == 1:
        return array
    high, wide = (side // step * step for side in array.shape[:2])
    cut = array[:high, :wide]
    return cut.reshape(high // step, step, wide // step, step, *array.shape[2:]).mean((1, 3))


def problems(found: Iterable[Problem]) -> list[dict[str, Any]]:
    """Rows that could not be used, as plain values."""
    return [{"index": one.index, "name": one.name, "reason": one.reason} for one in found]
