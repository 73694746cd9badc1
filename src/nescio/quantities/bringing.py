"""What lies on a GPU, brought to the CPU in one copy: each copy by itself waits for all that was begun before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from nescio.types import NormTable


def on_one_device(values: list[Any]) -> list[Any]:
    """Return the values of one score on one device: what lies elsewhere comes to the CPU where the others are."""
    tensors = [value.norms if isinstance(value, NormTable) else value for value in values]
    if len({tensor.device for tensor in tensors if isinstance(tensor, Tensor)}) < 2:
        return values
    return [value.cpu() if isinstance(value, NormTable | Tensor) else value for value in values]


def on_the_host(scores: Mapping[str, Tensor], flags: Sequence[Tensor] = ()) -> tuple[dict[str, Tensor], bool]:
    """Return float64 scores on the CPU, and whether all flags, tensors of one boolean, are true.

    Scores ``[N]`` that lie on one GPU come in one copy with the flags; anything else comes by itself.
    """
    away = {key: own for key, own in scores.items() if own.device.type != "cpu" and own.ndim == 1}
    count = len(next(iter(away.values()))) if away else 0
    if not count or len({t.device for t in (*away.values(), *flags)}) > 1:
        return {key: own.cpu() for key, own in scores.items()}, all(map(bool, flags))
    table = torch.stack([*away.values(), *(flag.to(torch.float64).expand(count) for flag in flags)]).cpu()
    brought = dict(zip(away, table, strict=False))
    hold = bool(table[len(away) :].all())
    return {key: brought[key] if key in brought else own.cpu() for key, own in scores.items()}, hold
