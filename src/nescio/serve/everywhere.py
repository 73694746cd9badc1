"""What the service knows of an input of a model that answers at every position: means, and maps of the doubt.

Probabilities, doubt and scores of an input are means over its positions. Each input is a pass of its own, so that
nothing depends on what it is sent with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from nescio.attribution import Attribution
from nescio.attribution.uncertainty import Of
from nescio.dense import RegionGuard
from nescio.dense.averages import averaged, mean
from nescio.inputs import Inputs
from nescio.scores.decomposition import decompose
from nescio.scoring import score
from nescio.serve.row_batches import stacked

if TYPE_CHECKING:
    from nescio.serve.engine import Assessed, Engine

SIDE = 512
"""Numbers a side of a map, at most; of larger ones these are means over squares."""
METHOD = "positions"
"""What stands for a method of attribution: no position's doubt is anybody else's."""


def assessed(engine: Engine, row: Inputs, methods: Sequence[str]) -> Assessed:
    """Find what is known of one input.

    Args:
        engine: The model.
        row: The input, without a batch dimension.
        methods: The scores that are wanted.
    """
    from nescio.serve.engine import Assessed

    x, guard = stacked([row], 1), engine.guard
    parts = guard.check(x) if isinstance(guard, RegionGuard) else None
    p, kinds, samples = averaged(engine.predicts, x)
    total, aleatoric, epistemic = (float(part) for part in (kinds.total, kinds.aleatoric, kinds.epistemic))
    if not getattr(engine.predicts, "learnt", True):  # its spread says nothing of the model
        aleatoric, epistemic, samples = total, 0.0, 1
    known = {}
    for name in methods:
        map_ = score(engine.whose(name), x, engine.methods[name], progress=False)
        known[name] = float(mean(map_, x))
    verdict = None if parts is None or engine.level is None else parts.overall(engine.level)
    return Assessed(p[0], total, aleatoric, epistemic, samples, known, verdict, parts)


def doubts(engine: Engine, row: Inputs, kinds: Sequence[Of]) -> dict[Of, Attribution]:
    """Return the doubt of these kinds at every position of one input, in nats.

    Args:
        engine: The model.
        row: The input.
        kinds: Which.
    """
    x = stacked([row], 1)
    parted = decompose(engine.predict(x))
    nothing = torch.full((1,), torch.nan, dtype=torch.float64)  # a mean is no sum
    map_by_kind: dict[Of, Attribution] = {}
    for kind in kinds:
        map_ = getattr(parted, kind)
        about = f"the {kind} uncertainty at every position, whose mean is that of the input"
        map_by_kind[kind] = Attribution(smaller(map_), mean(map_, x), nothing, kind, METHOD, about)
    return map_by_kind


def foreignness(parts: Tensor, size: tuple[int, int]) -> Tensor:
    """Return −log₁₀ of the p-values of regions ``[h, w]`` as a map of a size, ``[*size]``."""
    return F.interpolate(-parts.log10()[None, None], size, mode="nearest-exact")[0, 0]


def smaller(maps: Tensor) -> Tensor:
    """Return maps ``[N, H, W]`` with at most `SIDE` numbers a side, as means over squares; others as they are."""
    if maps.ndim != 3 or max(maps.shape[1:]) <= SIDE:
        return maps
    step = -(-max(maps.shape[1:]) // SIDE)
    return F.avg_pool2d(maps[None], step, ceil_mode=True, count_include_pad=False)[0]
