"""A guard in a folder (`nescio.data.bundles`): `guard.json` has what it looks at, the tensors what it has learnt.

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
from nescio.guard.fitted_witnesses import FittedWitnesses
from nescio.guard.fitting import Fitted, FoldFit
from nescio.guard.guard import Guard
from nescio.guard.rank_scale import Scale
from nescio.guard.witnesses import WITNESSES, Anatomy, Doubt, Witness
from nescio.guard.wrong import Mistakes
from nescio.models import ModelLike
from nescio.posteriors.saving import same, versions
from nescio.quantities import Activations, Features
from nescio.types import Depth, InputError, NescioError

BUNDLE = Bundle("guard.json", "nescio.guard", 2, "guard")
_MISTAKES = ("bounds", "wrong", "count")


def save(guard: Guard, folder: str | os.PathLike[str]) -> None:
    """Write the fitted guard to the folder, which is made where it is missing; an older guard in it is replaced."""
    fitted = guard.fitted
    record = {
        "output": guard.classifier.output,
        "weights": fitted.weights,
        "witnesses": [_settings(witness) for witness in fitted.witnesses],
        "features": None if fitted.anatomy.features is None else {"layer": fitted.anatomy.features.layer},
        "depths": [asdict(depth) for depth in fitted.anatomy.activations.depths],
        "kind": fitted.anatomy.kind,
        "form": None if fitted.form is None else list(fitted.form),
        "count": fitted.count,
        "copies": fitted.copies,
        "classes": fitted.classes,
        "folds": len(fitted.folds),
        "labelled": fitted.mistakes is not None,
    }
    BUNDLE.write(folder, record, _tensors(fitted))


def load(folder: str | os.PathLike[str], model: ModelLike) -> Guard:
    """Return the guard that was saved in the folder, for the model that it was fitted with."""
    record, tensors = BUNDLE.read(folder)
    try:
        classifier = same(model, record)
        witnesses = tuple(_witness(settings) for settings in record["witnesses"])
        guard = Guard(classifier, witnesses=witnesses)
        guard._fitted = _fitted(record, tensors, witnesses)
        guard._versions = versions(classifier)
    except NescioError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(
            f"expected a saved guard in {folder}, but its record does not fit its tensors ({error!r}); save it again"
        ) from error
    return guard


def _settings(witness: Witness) -> dict[str, Any]:
    """The witness by its name, with what it was made with."""
    if witness.name not in WITNESSES or type(witness) is not WITNESSES[witness.name]:
        raise InputError(
            f"expected witnesses that `load` can find again ({', '.join(WITNESSES)}), got '{witness.name}' of "
            f"{type(witness).__name__}; decorate it with nescio.guard.witnesses.register"
        )
    if isinstance(witness, Doubt):
        settings = {f.name: getattr(witness.score, f.name) for f in fields(witness.score)}  # type: ignore[arg-type]
        return {"name": witness.name, "score": witness.score.name, "settings": settings}
    return {"name": witness.name, "settings": asdict(witness)}  # type: ignore[call-overload]


def _witness(record: Mapping[str, Any]) -> Witness:
    """The opposite of `_settings`."""
    name, settings = record["name"], dict(record["settings"])
    if name not in WITNESSES:
        raise InputError(
            f"expected one of the witnesses {', '.join(WITNESSES)}, got {name!r}; is nescio too old for it?"
        )
    if name == "doubt":
        settings = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        return Doubt(scores.get(record["score"], **settings))
    return WITNESSES[name](**settings)


def _tensors(fitted: Fitted) -> dict[str, Tensor]:
    """All tensors of a fit, by names that say where they belong."""
    tensors: dict[str, Tensor] = {}
    for number, fold in enumerate(fitted.folds):
        tensors |= {f"{number}/ranks": fold.ranks, f"{number}/copies": fold.copies}
        tensors |= {f"{number}/z/{name}": z for name, z in fold.z.items()}
        for name, state in fold.witnesses.states.items():
            tensors |= {f"{number}/states/{name}/{key}": value for key, value in state.items()}
        for name, scale in fold.witnesses.scales.items():
            tensors |= {f"{number}/scales/{name}/values": scale.values, f"{number}/scales/{name}/z": scale.z}
    if (mistakes := fitted.mistakes) is not None:
        tensors |= {f"mistakes/{name}": getattr(mistakes, name) for name in _MISTAKES}
    return tensors


def _fitted(record: Mapping[str, Any], tensors: Mapping[str, Tensor], witnesses: tuple[Witness, ...]) -> Fitted:
    """The opposite of `_tensors`."""
    if not all(bool(value.isfinite().all()) for value in tensors.values()):
        raise InputError("expected finite numbers in a saved guard, got NaN or infinite ones; save it again")
    folds = []
    for number in range(record["folds"]):
        states, scales, z = {}, {}, {}
        for name in (witness.name for witness in witnesses):
            z[name] = tensors[f"{number}/z/{name}"]
            start = f"{number}/states/{name}/"
            states[name] = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
            start = f"{number}/scales/{name}/"
            scales[name] = Scale(tensors[f"{start}values"], tensors[f"{start}z"])
        fitted = FittedWitnesses(states, scales)
        folds.append(FoldFit(fitted, tensors[f"{number}/ranks"], tensors[f"{number}/copies"], z))
    labelled = record["labelled"]
    features, form = record["features"], record["form"]
    return Fitted(
        anatomy=Anatomy(
            None if features is None else Features(features["layer"]),
            Activations(tuple(Depth(**depth) for depth in record["depths"])),
            record["kind"],
        ),
        witnesses=witnesses,
        folds=tuple(folds),
        mistakes=Mistakes(*(tensors[f"mistakes/{name}"] for name in _MISTAKES)) if labelled else None,
        form=None if form is None else tuple(form),
        count=record["count"],
        copies=record["copies"],
        weights=record["weights"],
        classes=record["classes"],
    )
