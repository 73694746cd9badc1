"""Directions away from data, each as long as the data's spread, so that α counts multiples of the spread.

    features   ± σ_i e_i, σ_i the standard deviation of feature i
    random     σ ⊙ u, u uniform on a sphere
    towards    from an input to another one
    away       from the mean of the data to the input

All but the first have the length ‖d/σ‖ = √D, which is the root mean square distance of the data from their mean when
every feature is measured in its own standard deviation: so units of features do not matter. A feature that does not
vary gets the mean of all deviations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.inputs import describe
from nescio.types import InputError

KINDS = ("features", "random", "towards", "away")


def directions(
    data: Tensor, starts: Tensor, which: str | Sequence[str] | Mapping[str, Any], names: Sequence[str] | None,
    features: int, count: int, seed: int,
) -> dict[str, Tensor]:  # fmt: skip
    """Directions ``[K, ...]`` by name, one for each start; data and starts are float64 ``[N, ...]``."""
    which = (which,) if isinstance(which, str) else which
    if not which:
        raise InputError(f"expected directions among {', '.join(KINDS)}, or a mapping of names to them, got none")
    if isinstance(which, Mapping):
        return {str(name): _given_direction(name, value, starts) for name, value in which.items()}
    for kind in which:
        if kind not in KINDS:
            raise InputError(
                f"expected directions among {', '.join(KINDS)}, or a mapping of names to them, got {kind!r}"
            )
    flat, mean = data.flatten(1), data.flatten(1).mean(0)
    deviation = deviations(flat)
    if not bool((deviation > 0).any()):
        raise InputError("expected data that differ, got inputs that are all the same; give more of them")
    random = torch.Generator().manual_seed(seed)
    named: dict[str, Tensor] = {}
    if "features" in which:
        named |= _features(deviation, starts, feature_names(data, names), features)
    if "random" in which:
        for at in range(count):
            u = torch.randn(flat.shape[1], dtype=torch.float64, generator=random)
            named[f"random {at + 1}"] = _scaled((deviation * u).view(starts.shape[1:]).expand_as(starts), deviation)
    if "towards" in which:
        others = torch.randperm(len(flat), generator=random)[:count].tolist()
        named |= {f"towards input {at}": _scaled(data[at] - starts, deviation) for at in others}
    if "away" in which:
        named["away from the mean"] = _scaled(starts - mean.view(starts.shape[1:]), deviation)
    return named


def deviations(flat: Tensor) -> Tensor:
    """The standard deviation of each feature of data ``[N, D]``; where one does not vary, the mean of all."""
    deviation = flat.std(0, correction=0)
    return torch.where(deviation > 0, deviation, deviation.mean())


def feature_names(data: Tensor, names: Sequence[str] | None) -> list[str]:
    """What each number of an input is called: as it was said, or by its place."""
    count = data[0].numel()
    if names is None:
        shape = data.shape[1:]
        if len(shape) != 3:
            return [f"feature {at}" for at in range(count)]
        channels = [f" of channel {at}" if shape[0] > 1 else "" for at in range(shape[0])]
        return [
            f"pixel ({row}, {column}){of}" for of in channels for row in range(shape[1]) for column in range(shape[2])
        ]
    if len(names) != count:
        raise InputError(f"expected {count} names of features, got {len(names)}")
    if len(set(names)) < len(names):
        raise InputError("expected names of features that differ, got one twice")
    return list(names)


def _features(deviation: Tensor, starts: Tensor, names: Sequence[str], most: int) -> dict[str, Tensor]:
    """The features that vary most, both ways."""
    chosen = deviation.argsort(descending=True, stable=True)[:most].sort().values.tolist()
    directions = {}
    for at in chosen:
        d = torch.zeros_like(deviation)
        d[at] = deviation[at]
        for sign, word in ((1.0, "+"), (-1.0, "-")):
            directions[f"{names[at]} {word}"] = (sign * d).view(starts.shape[1:]).expand_as(starts)
    return directions


def _scaled(d: Tensor, deviation: Tensor) -> Tensor:
    """Directions as long as the spread; where one is 0, along the first feature."""
    flat = d.flatten(1).clone()
    flat[(flat == 0).all(1), 0] = 1.0
    lengths = (flat / deviation).norm(dim=1, keepdim=True)
    result: Tensor = (flat * (len(deviation) ** 0.5 / lengths)).view_as(d)
    return result


def _given_direction(name: object, value: object, starts: Tensor) -> Tensor:
    d = torch.as_tensor(value).to("cpu", torch.float64)
    if d.shape == starts.shape[1:]:
        d = d.expand_as(starts)
    if d.shape != starts.shape or not bool(d.isfinite().all()) or bool((d.flatten(1) == 0).all(1).any()):
        raise InputError(
            f"expected the direction {name!r} to be finite, not 0, and of the inputs' shape {list(starts.shape[1:])}, "
            f"got {describe(value)}"
        )
    return d
