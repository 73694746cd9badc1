"""A guard in a folder (`nescio.data.bundles`): `guard.json` has what it looks at, the tensors what it found there.

The model is not in it: `load` is given the model, and refuses another one's weights.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from torch import Tensor

from nescio import scores
from nescio.data.bundles import Bundle
from nescio.guard.fitted_witnesses import Bench
from nescio.guard.fitting import Fitted, Jury
from nescio.guard.guard import Guard, versions
from nescio.guard.scale import Scale
from nescio.guard.witnesses import WITNESSES, Anatomy, Doubt, Witness
from nescio.guard.wrong import Mistakes
from nescio.posteriors.saving import same
from nescio.quantities import Activations, Features
from nescio.types import Depth, InputError, NescioError

BUNDLE = Bundle("guard.json", "nescio.guard", 2, "guard")


def save(guard: Guard, folder: str | os.PathLike[str]) -> None:
    """Write the fitted guard to the folder, which is made where it is missing; what it held is replaced."""
    found = guard.fitted
    record = {
        "output": guard.classifier.output,
        "weights": found.weights,
        "witnesses": [_described(witness) for witness in found.witnesses],
        "features": None if found.anatomy.features is None else {"layer": found.anatomy.features.layer},
        "depths": [asdict(depth) for depth in found.anatomy.activations.depths],
        "kind": found.anatomy.kind,
        "form": None if found.form is None else list(found.form),
        "count": found.count,
        "copies": found.copies,
        "classes": found.classes,
        "juries": len(found.juries),
        "labelled": found.mistakes is not None,
    }
    BUNDLE.write(folder, record, _tensors(found))


def load(folder: str | os.PathLike[str], model: Any) -> Guard:
    """The guard that was saved in the folder, for the model that it was fitted with."""
    record, tensors = BUNDLE.read(folder)
    try:
        classifier = same(model, record)
        witnesses = tuple(_made(described) for described in record["witnesses"])
        guard = Guard(classifier, witnesses=witnesses)
        guard._found = _fitted(record, tensors, witnesses)
        guard._seen = versions(classifier)
    except NescioError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"expected a saved guard in {folder}, but its record does not fit its tensors ({error!r}); save it again"
        ) from error
    return guard


def _described(witness: Witness) -> dict[str, Any]:
    if witness.name not in WITNESSES or type(witness) is not WITNESSES[witness.name]:
        raise InputError(
            f"expected witnesses that `load` can find again ({', '.join(WITNESSES)}), got '{witness.name}' of "
            f"{type(witness).__name__}; decorate it with nescio.guard.witnesses.register"
        )
    if isinstance(witness, Doubt):
        settings = {f.name: getattr(witness.score, f.name) for f in fields(witness.score)}  # type: ignore[arg-type]
        return {"name": witness.name, "score": witness.score.name, "settings": settings}
    return {"name": witness.name, "settings": asdict(witness)}  # type: ignore[call-overload]


def _made(described: Mapping[str, Any]) -> Witness:
    name, settings = described["name"], dict(described["settings"])
    if name not in WITNESSES:
        raise InputError(
            f"expected one of the witnesses {', '.join(WITNESSES)}, got {name!r}; is nescio too old for it?"
        )
    if name == "doubt":
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        return Doubt(scores.get(described["score"], **settings))
    return WITNESSES[name](**settings)


def _tensors(found: Fitted) -> dict[str, Tensor]:
    """All tensors of a fit by names that say where they belong."""
    tensors: dict[str, Tensor] = {}
    for j, jury in enumerate(found.juries):
        tensors |= {f"{j}/ranks": jury.ranks, f"{j}/copies": jury.copies}
        for name, z in jury.z.items():
            tensors[f"{j}/z/{name}"] = z
        for name, state in jury.bench.found.items():
            tensors |= {f"{j}/found/{name}/{key}": value for key, value in state.items()}
        for name, scale in jury.bench.scales.items():
            tensors |= {f"{j}/scales/{name}/values": scale.values, f"{j}/scales/{name}/z": scale.z}
    if found.mistakes is not None:
        parts = found.mistakes
        tensors |= {"mistakes/bounds": parts.bounds, "mistakes/wrong": parts.wrong, "mistakes/count": parts.count}
    return tensors


def _fitted(record: Mapping[str, Any], tensors: Mapping[str, Tensor], witnesses: tuple[Witness, ...]) -> Fitted:
    """The opposite of `_tensors`."""
    if not all(bool(value.isfinite().all()) for value in tensors.values()):
        raise InputError("expected finite numbers in a saved guard, got NaN or infinite ones; save it again")
    juries = []
    for j in range(record["juries"]):
        found, scales, z = {}, {}, {}
        for witness in witnesses:
            z[witness.name] = tensors[f"{j}/z/{witness.name}"]
            start = f"{j}/found/{witness.name}/"
            found[witness.name] = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
            start = f"{j}/scales/{witness.name}/"
            scales[witness.name] = Scale(tensors[f"{start}values"], tensors[f"{start}z"])
        juries.append(Jury(Bench(found, scales), tensors[f"{j}/ranks"], tensors[f"{j}/copies"], z))
    mistakes = None
    if record["labelled"]:
        mistakes = Mistakes(*(tensors[f"mistakes/{name}"] for name in ("bounds", "wrong", "count")))
    features, form = record["features"], record["form"]
    return Fitted(
        anatomy=Anatomy(
            None if features is None else Features(features["layer"]),
            Activations(tuple(Depth(**depth) for depth in record["depths"])),
            record["kind"],
        ),
        witnesses=witnesses,
        juries=tuple(juries),
        mistakes=mistakes,
        form=None if form is None else tuple(form),
        count=record["count"],
        copies=record["copies"],
        weights=record["weights"],
        classes=record["classes"],
    )
