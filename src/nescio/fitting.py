"""Fitting of methods to training data: every one that needs it, in one pass, on shared quantities."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor

from nescio import inputs, quantities
from nescio.models import Classifier
from nescio.modes import preserved
from nescio.posteriors.base import total
from nescio.posteriors.laplace import Laplace
from nescio.progress import bar
from nescio.scores import FittedScore
from nescio.types import InputError, LastLayer, Method, Predictions, Request

_AT_ONCE = 512  # training inputs between two steps of the bar


def fitted(
    classifier: Classifier, chosen: dict[str, Method], data: Any, progress: bool | None, chunk: int | None
) -> dict[str, Method]:
    """The methods, those fitted that have to be, in one pass over the training data."""
    waiting = {key: one for key, one in chosen.items() if waits(one)}
    requests = dict.fromkeys(request for one in waiting.values() for request in one.training)
    values: dict[Request, Any] = {
        request: Laplace(classifier, **dict(request.settings)) if isinstance(request, Predictions) else []
        for request in requests
    }
    tables = [request for request in requests if not isinstance(request, Predictions)]
    labels: list[Tensor] = []
    size = total(data[0]) if isinstance(data, tuple) and len(data) == 2 else total(data)
    with preserved(classifier), bar(size, show=progress, description="fitting") as shown:
        for batch, y in inputs.labelled(data):
            for start in range(0, len(y), chunk or _AT_ONCE):
                part = slice(start, start + (chunk or _AT_ONCE))
                x = inputs.take(batch, part)
                found = quantities.compute(classifier, x, tables, chunk)
                for request, value in values.items():
                    if isinstance(request, Predictions):
                        value.absorb(x, y[part])
                    elif isinstance(request, LastLayer):
                        value[:] = [found[request]]  # the same for every input
                    else:
                        value.append(found[request])
                labels.append(y[part])
                shown.update(len(y[part]))
        if not labels:
            raise InputError("expected training data of at least one input, got none; give all of it as fit=(x, y)")
        whole = {r: v.finish() if isinstance(r, Predictions) else torch.cat(v) for r, v in values.items()}
    every = torch.cat(labels)
    return {
        key: one.fitted([whole[request] for request in one.training], every) if waits(one) else one
        for key, one in chosen.items()
    }


def check_fit(chosen: dict[str, Method], data: Any) -> None:
    """Raise an InputError where training data are missing, or where nothing is to be fitted to them."""
    waiting = [key for key, one in chosen.items() if waits(one)]
    if waiting and data is None:
        raise InputError(
            f"expected training data for {', '.join(map(repr, waiting))}, got none; give labelled data as "
            "nescio.score(..., fit=(x, y)), with a data loader in the place of the pair where there is one"
        )
    if data is not None and not waiting:
        raise InputError(
            f"expected a method that has to be fitted beside training data, got {', '.join(map(repr, chosen))}; "
            "leave the training data out"
        )


def waits(method: Method) -> TypeGuard[FittedScore]:
    """Whether the method has to be fitted before it can be called."""
    return isinstance(method, FittedScore) and not method.is_fitted
