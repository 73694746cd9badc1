"""`open_source`: any model that a word can name, those too that nescio itself has kept in a folder.

a folder of ``nescio train``           trained.json, weights.pt: a network of `nescio_papers.zoo`, by its plan and
                                       seed; opened by that package (entry-point group ``nescio.folders``)
a folder of ``posterior.save(...)``    posterior.json: a distribution over a model; the model is code, so its name is in
                                       ``model.json`` beside it (`remember` writes that), or given as `base`
anything else                          `nescio.models.sources.open_model`

A folder may come from anyone, and a function that its ``model.json`` names would be run: without `trust_pickle` such a
file may name a model of torchvision, timm, transformers or the zoo, or a trained network. A function is then named by
the one who opens it, as `base`.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from nescio import plugins, posteriors, zoo
from nescio.data import replacing
from nescio.models.sources import Source, open_model
from nescio.models.sources.base import Channels, Found, Size
from nescio.models.sources.opening import FORMS, KINDS, settled
from nescio.posteriors.saving import RECORD
from nescio.types import InputError, ModelError

MODEL = "model.json"
FACTS, WEIGHTS = "trained.json", "weights.pt"
NETWORKS = ("small_cnn", *zoo.PAPERS_NETWORKS)
_KEPT = ("model", "weights", "output", "size", "crop", "mean", "std", "class_names")


def open_source(
    spec: str,
    weights: str | os.PathLike[str] | None = None,
    *,
    base: str | None = None,
    trust_pickle: bool = False,
    output: str | None = None,
    size: Size | None = None,
    crop: Size | None = None,
    mean: Channels | None = None,
    std: Channels | None = None,
) -> Source:
    """The model that `spec` names, as `nescio.models.sources.open_model` has it, or a folder that nescio has kept.

    base: the model under a saved posterior, where its folder does not say, or says a function; `weights` are then those
    of that model (default: those that the folder says, if it is of that same base). trust_pickle: read files that may
    execute code, and run a function that a folder names.
    """
    place = _place(spec)
    settings: dict[str, Any] = {"output": output, "size": size, "crop": crop, "mean": mean, "std": std}
    if (place / RECORD).is_file():
        return _posterior(place, base, weights, trust_pickle, settings)
    if base is not None:
        raise InputError(f"expected a folder of a saved posterior beside a base, got {spec!r}; leave the base out")
    if (place / FACTS).is_file():
        changes = (size, crop, mean, std)
        return settled(_trained(place, weights, trust_pickle), output, changes)
    if place.is_dir():
        hint = f"; say hf:{spec} for a model of transformers" if (place / "config.json").is_file() else ""
        raise InputError(
            f"expected {FORMS}, or a folder with {FACTS} (nescio train) or {RECORD} (a saved posterior), got the "
            f"folder {spec}, which has neither{hint}"
        )
    return open_model(spec, weights, trust_pickle=trust_pickle, **settings)


def _place(spec: str) -> Path:
    """The folder that is meant, if it is one: that of a trained network is also known by its files."""
    place = Path(spec)
    return place.parent if place.name in (WEIGHTS, FACTS) and (place.parent / FACTS).is_file() else place


def names_code(spec: str) -> bool:
    """Whether a model of that name comes from a function, which is run to make it, and not from a known collection."""
    kind, colon, name = spec.partition(":")
    known = kind in KINDS or (kind in (zoo.__name__, "nescio_papers.zoo") and name in NETWORKS) or _place(spec).is_dir()
    return bool(colon) and not known


def remember(
    folder: str | os.PathLike[str], spec: str, weights: str | os.PathLike[str] | None = None, **settings: Any
) -> None:
    """Write beside a saved posterior or guard which model it belongs to, so that opening it needs nothing more.

    settings: output, size, crop, mean, std, as given to `open_source`; class_names, a file of them.
    """
    if unknown := settings.keys() - set(_KEPT):
        raise InputError(f"expected settings of {', '.join(_KEPT[2:])}, got {', '.join(sorted(unknown))}")
    kind, _, rest = spec.partition(":")
    if kind == "hf" and Path(rest).exists():
        spec = f"hf:{Path(rest).resolve()}"
    elif Path(spec).exists():
        spec = str(Path(spec).resolve())
    path = None if weights is None else str(Path(weights).resolve() if Path(weights).exists() else weights)
    record = {"format": "nescio.model", "version": 1, "model": spec, "weights": path, **settings}
    with replacing(Path(folder) / MODEL) as part:
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def remembered(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What `remember` wrote there, by the names of its arguments; None where it wrote nothing."""
    file = Path(folder) / MODEL
    if not file.is_file():
        return None
    record = _record(file)
    return {name: _plain(record[name]) for name in _KEPT if record.get(name) is not None}


def _posterior(
    place: Path,
    base: str | None,
    weights: str | os.PathLike[str] | None,
    trust_pickle: bool,
    settings: dict[str, Any],
) -> Source:
    """A saved distribution over its model."""
    given = {name: value for name, value in settings.items() if value is not None}
    record: dict[str, Any] = {}
    if base is None:
        record = _record(place / MODEL)
        base = str(record["model"])
        if names_code(base) and not trust_pickle:
            raise ModelError(
                f"{place / MODEL} names the function {base}, and opening it would run that: expected to be told that "
                f"this is meant. If you know that function, name it yourself: base={base!r} (--base {base}); if you "
                "trust where the folder comes from, say trust_pickle=True (--trust-pickle)"
            )
    else:
        with suppress(InputError):
            record = _record(place / MODEL)
    if base == record.get("model"):
        weights = weights if weights is not None else record.get("weights")
        kept = {name: _plain(record[name]) for name in settings if record.get(name) is not None}
        given = {**kept, **given}
    if (Path(base) / RECORD).is_file():
        raise InputError(f"expected a model under the posterior in {place}, got another posterior, {base}")
    under = open_source(base, weights, trust_pickle=trust_pickle, **given)
    found = posteriors.load(place, under.model)
    about = f"{type(found).__name__} of {place} over {under.about}"
    return Source(found, under.preprocess, about, under.classes)


def _trained(place: Path, weights: str | os.PathLike[str] | None, trust_pickle: bool) -> Found:
    """A network that `nescio train` has kept."""
    entry = plugins.plugins("nescio.folders").get(FACTS)
    if entry is None:
        raise ModelError(
            f"expected the package nescio_papers, which knows the network in {place}, but it is not installed; install "
            f"it: {plugins.PAPERS}"
        )
    return plugins.load(entry)(place, weights, trust_pickle)


def _record(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise InputError(
            f"expected to know which model the posterior in {file.parent} belongs to, but there is no {file.name}; "
            "name the model as base (--base), with its weights"
        )
    record = _json(file)
    if record.get("format") != "nescio.model" or not isinstance(record.get("model"), str):
        raise InputError(f"expected the name of a model in {file}, got another file; name it as base (--base)")
    return record


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"cannot read {file}: {error}; it is damaged") from error
    if not isinstance(found, dict):
        raise InputError(f"expected a record in {file}, got another file")
    return found


def _plain(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(value) if isinstance(value, list) else value
