"""Single inputs: what they look like, what the model takes them for, and where their doubt comes from.

Maps are those of `nescio.explain` (UA-Backprop), which with many classes draws some of the logits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nescio._common.formatting import class_name, percent
from nescio.attribution import explain
from nescio.attribution.source import Source as Attributed
from nescio.attribution.uncertainty import Of
from nescio.data.sources import Problem, Rows
from nescio.data.sources.table_rows import TableRows
from nescio.dense.averages import mean
from nescio.findings.foreignness import FOREIGNNESS, foreignness
from nescio.findings.measuring import Measured, Subject
from nescio.inputs import Inputs
from nescio.progress import bar
from nescio.report.findings_types import BadRow, Example, ExampleFacts, InputView, Kind, Reasons, Tile
from nescio.scores import Method
from nescio.scores.decomposition import decompose
from nescio.scoring import score
from nescio.types import NescioError

KINDS: tuple[Of, ...] = ("total", "aleatoric", "epistemic")
SIDE, THUMB = 256, 160
"""Pictures, and those of the strip, are kept with at most so many pixels a side."""
SPECIAL = "marks of begin and end"
"""What the special tokens of a text are called together: nobody wrote them."""


def most_and_least_doubtful(
    scores: NDArray[np.float64], most: int, least: int, among: Iterable[int] | None = None
) -> dict[str, list[int]]:
    """Return the places of the most doubtful inputs, falling, and of the least doubtful, rising; none is in both.

    Args:
        scores: The score of each input.
        most: How many of the most doubtful.
        least: How many of the least doubtful.
        among: Only these places; None means all.
    """
    order = np.argsort(scores, kind="stable")
    if among is not None:
        order = order[np.isin(order, list(among))]
    low = order[: min(least, len(order) // 2)].tolist()
    high = order[::-1][: min(most, len(order) - len(low))].tolist()
    return {"most": high, "least": low}


def described(
    about: Subject,
    rows: Rows,
    measured: Measured,
    places: Sequence[int],
    *,
    leading: str,
    method: Method,
    labels: NDArray[np.int64] | None,
    class_names: Sequence[str] | None,
    maps: bool,
    progress: bool | None,
    what: str,
) -> list[Example]:
    """The inputs at these places of what was measured, and where their doubt comes from; method: the leading score."""
    examples: list[Example] = []
    lead = measured.scores[leading]
    everywhere = method if measured.everywhere else None
    with bar(len(places), show=progress, description=what) as shown:
        for at in places:
            index, p = int(measured.index[at]), measured.p[at]
            likely = p.topk(min(3, len(p)))
            label = None if labels is None or labels[at] < 0 else int(labels[at])
            one: ExampleFacts = {
                "index": index,
                "name": measured.names[at],
                "predicted": int(p.argmax()),
                "class": class_name(int(p.argmax()), class_names),
                "probability": float(p.max()),
                "label": label,
                "label_class": None if label is None else class_name(label, class_names),
                "likeliest": [
                    {"class": class_name(int(c), class_names), "probability": float(v)}
                    for v, c in zip(likely.values, likely.indices, strict=True)
                ],
                "scores": {key: float(values[at]) for key, values in measured.scores.items()},
                "below": int((lead < lead[at]).sum()),
                "among": len(lead),
                "total": float(measured.kinds.total[at]),
            }
            if measured.members > 1:
                one["aleatoric"] = float(measured.kinds.aleatoric[at])
                one["epistemic"] = float(measured.kinds.epistemic[at])
            examples.append({**one, **_input_view(about, rows, index, measured.members, maps, everywhere)})
            shown.update(1)
    return examples


def tile(
    rows: Rows,
    measured: Measured,
    at: int,
    labels: NDArray[np.int64] | None,
    class_names: Sequence[str] | None,
) -> Tile:
    """What the strip shows of an input: a small picture, or its text, and what the model takes it for."""
    index, answer = int(measured.index[at]), int(measured.p[at].argmax())
    wrong = labels is not None and labels[at] >= 0 and int(labels[at]) != answer
    content: Tile = {
        "index": index,
        "name": measured.names[at],
        "class": class_name(answer, class_names),
        "probability": float(measured.p[at, answer]),
        "truth": class_name(int(labels[at]), class_names) if wrong and labels is not None else None,
    }
    row = rows.attempt(index)
    if isinstance(row, Tensor) and row.ndim == 3 and row.is_floating_point():
        content["picture"] = _seen(rows, index, row)
    elif rows.preprocess.kind == "texts":
        content["text"] = str(rows.store.raw(index))
    elif isinstance(row, Tensor) and row.ndim == 1:
        content["text"] = ", ".join(_label(rows, row, place, False) for place in range(len(row)))
    return content


def kind(rows: Rows, first: Inputs) -> Kind:
    """Return what inputs are called: pictures, texts or rows."""
    if rows.preprocess.kind == "texts":
        return "texts"
    return "pictures" if isinstance(first, Tensor) and first.ndim == 4 and first.is_floating_point() else "rows"


def _seen(rows: Rows, index: int, row: Tensor) -> NDArray[np.float64]:
    """The picture as it lies in its file, made small; what the model gets of it where it is no file."""
    raw: Any = rows.store.raw(index) if rows.preprocess.kind == "pictures" else None
    if not hasattr(raw, "thumbnail"):
        return _picture(row, THUMB)
    small = raw.convert("RGB")
    small.thumbnail((THUMB, THUMB))
    return np.asarray(small, dtype=np.float64) / 255


def _input_view(
    about: Subject, rows: Rows, index: int, members: int, maps: bool, everywhere: Method | None = None
) -> InputView:
    """The input itself, and why it is doubtful: maps of a picture, or the shares of features or tokens."""
    batch = rows.assemble([index], [rows.attempt(index)])
    if batch is None:  # it could be read before, and cannot now
        return {"text": None, "why": {"form": None, "note": "It can no longer be read."}}
    text = str(rows.store.raw(index)) if rows.preprocess.kind == "texts" else None
    if not maps:
        why, drawn = _no_reasons("No maps were asked for."), dict[str, NDArray[np.float64]]()
    elif everywhere is not None:
        why, drawn = _by_position(about, rows, batch.inputs, members, everywhere)
    else:
        why, drawn = _reasons(about, rows, batch.inputs, members)
    view: InputView = {"text": text, "why": why}
    if isinstance(batch.inputs, Tensor) and batch.inputs.ndim == 4 and batch.inputs.is_floating_point():
        view["picture"] = _picture(batch.inputs[0])
        if why["form"] in ("picture", "positions"):
            view["maps"] = {kind: _smaller(one) for kind, one in drawn.items()}
    elif why["form"] in ("picture", "positions"):
        view["why"] = {**why, "form": None, "note": "Maps of 2 dimensions are not drawn."}
    return view


def _no_reasons(note: str) -> Reasons:
    return {"form": None, "note": note}


def _reasons(about: Subject, rows: Rows, x: Inputs, members: int) -> tuple[Reasons, dict[str, NDArray[np.float64]]]:
    """Where the doubt of one input comes from, and the maps themselves."""
    kinds: tuple[Of, ...] = KINDS if members > 1 else ("total",)
    try:
        every = explain(about.posterior, x, of=kinds, progress=False)
    except NescioError as error:
        return _no_reasons(f"No map: {error}"), {}
    maps = {kind: one.maps[0].numpy() for kind, one in every.items()}
    last, first = every[kinds[-1]], next(iter(maps.values()))
    why: Reasons = {
        "form": "picture" if first.ndim == 2 else None,
        "note": "",
        "about": last.about,
        "of": {kind: float(one.uncertainty[0]) for kind, one in every.items()},
    }
    if last.error is not None:
        why["note"] = (
            f"The maps are made of {last.drawn} logits that were drawn: about {percent(float(last.error[0]), 2)} of "
            "the doubt lies elsewhere than with all of them."
        )
    if first.ndim > 2:
        why["note"] = f"Maps of {first.ndim} dimensions are not drawn."
    if first.ndim != 1:
        return why, maps
    labels, here = _labels(rows, x)
    parts = {kind: one[here].tolist() for kind, one in maps.items()}
    if SPECIAL in labels:
        words = [at for at, label in enumerate(labels) if label != SPECIAL]
        marks = [at for at, label in enumerate(labels) if label == SPECIAL]
        labels = [*(labels[at] for at in words), SPECIAL]
        parts = {kind: [*(own[at] for at in words), sum(own[at] for at in marks)] for kind, own in parts.items()}
    return {**why, "form": "bars", "labels": labels, "parts": parts}, maps


def _by_position(
    about: Subject, rows: Rows, x: Inputs, members: int, method: Method
) -> tuple[Reasons, dict[str, NDArray[np.float64]]]:
    """The leading score at every position of one input, the kinds of its doubt, and what a guard says of its parts."""
    maps = {method.name: score(about.model, x, method, progress=False)[0]}
    if members > 1:
        kinds = decompose(about.posterior.predict(x, progress=False))
        maps |= {"aleatoric": kinds.aleatoric[0], "epistemic": kinds.epistemic[0]}
    of = {name: float(mean(values[None], x)) for name, values in maps.items()}
    why: Reasons = {
        "form": "positions",
        "note": "",
        "about": f"the uncertainty of {about.words}",
        "of": of,
    }
    dimensions = maps[method.name].ndim
    if dimensions > 2:
        return {**why, "form": None, "note": f"Maps of {dimensions} dimensions are not drawn."}, {}
    if dimensions == 1:
        labels, here = _labels(rows, x)
        parts = {name: one[here].tolist() for name, one in maps.items()}
        return {**why, "form": "bars", "labels": labels, "parts": parts}, {}
    foreign = foreignness(about.guard, x)
    if foreign is not None:
        maps[FOREIGNNESS] = foreign
        why["of"] = {**of, FOREIGNNESS: float(foreign.mean())}
    return why, {name: one.numpy() for name, one in maps.items()}


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
    token = int(x[place])
    if rows.preprocess.kind != "texts":
        return f"{place}: token {token}"
    tokenizer: Any = rows.preprocess.tokenizer  # type: ignore[attr-defined]
    unknown = getattr(tokenizer, "unk_token_id", None)  # that stands for a word
    if token != unknown and token in getattr(tokenizer, "all_special_ids", ()):
        return SPECIAL
    return f"{place}: {tokenizer.convert_ids_to_tokens(token)}"


def _picture(x: Tensor, most: int = SIDE) -> NDArray[np.float64]:
    """What the model gets, [H, W] or [H, W, 3] in [0, 1]; other ranges are stretched, other channels averaged."""
    array = x.double().cpu().numpy()
    low, high = float(array.min()), float(array.max())
    if low < 0 or high > 1:
        array = (array - low) / (high - low) if high > low else np.full_like(array, 0.5)
    return _smaller(np.moveaxis(array, 0, 2) if len(array) == 3 else array.mean(0), most)


def _smaller(array: NDArray[np.float64], most: int = SIDE) -> NDArray[np.float64]:
    """Means over squares, so that no side has more than so many pixels."""
    step = -(-max(array.shape[:2]) // most)
    if step == 1:
        return array
    high, wide = (side // step * step for side in array.shape[:2])
    cut = array[:high, :wide]
    result: NDArray[np.float64] = cut.reshape(high // step, step, wide // step, step, *array.shape[2:]).mean((1, 3))
    return result


def problems(unusable: Iterable[Problem]) -> list[BadRow]:
    """Return rows that could not be used, as plain values."""
    return [{"index": one.index, "name": one.name, "reason": one.reason} for one in unusable]
