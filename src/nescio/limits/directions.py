"""Directions away from data, each as long as the data's spread along it, so that α counts multiples of the spread.

    features   ± e_i times the standard deviation of feature i
    random     uniform on the sphere
    data       from an input to another one
    mean       from the mean of the data to the input

All but the first are as long as the root mean square distance of the data from their mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.inputs import describe
from nescio.types import InputError

KINDS = ("features", "random", "data", "mean")


def directions(
    data: Tensor, starts: Tensor, which: Sequence[str] | Mapping[str, Any], names: Sequence[str] | None,
    features: int, count: int, seed: int,
) -> dict[str, Tensor]:  # fmt: skip
    """Directions ``[K, ...]`` by name, one for each start; data and starts are float64 ``[N, ...]``."""
    if isinstance(which, Mapping):
        return {str(name): _given(name, value, starts) for name, value in which.items()}
    for kind in which:
        if kind not in KINDS:
            raise InputError(
                f"expected directions among {', '.join(KINDS)}, or a mapping of names to them, got {kind!r}"
            )
    flat, mean = data.flatten(1), data.flatten(1).mean(0)
    spread = float((flat - mean).square().sum(1).mean().sqrt())
    if spread == 0:
        raise InputError("expected data that differ, got inputs that are all the same; give more of them")
    random = torch.Generator().manual_seed(seed)
    found: dict[str, Tensor] = {}
    if "features" in which:
        found |= _features(flat, starts, names, features)
    if "random" in which:
        for at in range(count):
            d = torch.randn(flat.shape[1], dtype=torch.float64, generator=random)
            found[f"random {at + 1}"] = (d * (spread / d.norm())).view(starts.shape[1:]).expand_as(starts)
    if "data" in which:
        others = torch.randperm(len(flat), generator=random)[:count].tolist()
        found |= {f"towards input {at}": _scaled(data[at] - starts, spread) for at in others}
    if "mean" in which:
        found["away from the mean"] = _scaled(starts - mean.view(starts.shape[1:]), spread)
    return found


def _features(flat: Tensor, starts: Tensor, names: Sequence[str] | None, most: int) -> dict[str, Tensor]:
    """The features that vary most, both ways; one that does not vary gets the mean of the others' deviations."""
    if names is not None and len(names) != flat.shape[1]:
        raise InputError(f"expected {flat.shape[1]} names of features, got {len(names)}")
    deviation = flat.std(0, correction=0)
    deviation = torch.where(deviation > 0, deviation, deviation.mean())
    chosen = deviation.argsort(descending=True, stable=True)[:most].sort().values.tolist()
    found = {}
    for at in chosen:
        d = torch.zeros(flat.shape[1], dtype=torch.float64)
        d[at] = deviation[at]
        name = f"feature {at}" if names is None else names[at]
        for sign, word in ((1.0, "+"), (-1.0, "-")):
            found[f"{name} {word}"] = (sign * d).view(starts.shape[1:]).expand_as(starts)
    return found


def _scaled(d: Tensor, length: float) -> Tensor:
    """Directions of this length; where one is 0, along the first entry."""
    flat = d.flatten(1).clone()
    still = (flat == 0).all(1)
    flat[still, 0] = 1.0
    return (flat * (length / flat.norm(dim=1, keepdim=True))).view_as(d)


def _given(name: object, value: Any, starts: Tensor) -> Tensor:
    d = torch.as_tensor(value).to("cpu", torch.float64)
    if d.shape == starts.shape[1:]:
        d = d.expand_as(starts)
    if d.shape != starts.shape or not bool(d.isfinite().all()) or bool((d.flatten(1) == 0).all(1).any()):
        raise InputError(
            f"expected the direction {name!r} to be finite, not 0, and of the inputs' shape {list(starts.shape[1:])}, "
            f"got {describe(value)}"
        )
    return d
