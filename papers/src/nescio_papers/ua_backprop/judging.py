"""The two tests of maps as the studies run them.

Blurring: the pictures that the ensemble doubts most, σ = 1.5, up to 2 % and 5 % of the pixels. Anomaly: pictures that
it gets right, each with a square of a quarter of its side, at a random place, filled with noise; of four times as many
as are wanted, those whose uncertainty rose most: where it did not rise there is nothing to find.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from nescio import evaluate
from nescio.types import InputError
from nescio_papers.runner.parts import Pictures
from nescio_papers.runner.study import Row
from nescio_papers.ua_backprop.case import Case
from nescio_papers.ua_backprop.ensemble import BATCH

SHARES = (0.02, 0.05)
SIGMA = 1.5
"""Width of the blur, in pixels. The paper prints none; the public code of the work that it takes the test from has
1.5 for MNIST and 3 for larger pictures (`ua-signs` runs both).
"""
TRIED = 4


def blurred(case: Case, row: Row, x: Tensor, **more: Any) -> dict[str, Any]:
    """Return MURR and AUC-URR of a method's maps, their curve, and the seconds for 1,000 maps."""

    def made() -> dict[str, Any]:
        maps = case.maps(row, x, **more)
        there = x.to(case.ensemble.device)
        result = evaluate.blurring(
            case.ensemble.epistemic, there, maps.values, share=SHARES[1], sigma=SIGMA, batch=BATCH
        )
        less = result.at(SHARES[0])
        values = {"murr2": less.murr, "urr2": less.auc, "murr5": result.murr, "urr5": result.auc}
        seconds = {"seconds": 1000 * maps.seconds / len(x)} if maps.seconds else {}
        return {
            "metrics": values | seconds,
            "pictures": len(x),
            "curve": {"pixels": result.counts.tolist(), "urr": result.curve.tolist()},
        }

    return case.numbers("blurring", row, x, made, {"shares": SHARES, "sigma": SIGMA}, **more)


def found_patches(case: Case, row: Row, x: Tensor, masks: Tensor) -> dict[str, Any]:
    """Return how well a method's maps find the patches."""

    def made() -> dict[str, Any]:
        result = evaluate.anomaly(case.maps(row, x).values, masks.numpy())
        return {"metrics": {"auroc": result.auroc, "iou": result.iou}, "pictures": len(x)}

    return case.numbers("anomaly", row, x, made, {})


def patched(case: Case, pictures: Pictures, count: int) -> tuple[Tensor, Tensor]:
    """Return pictures with a corrupted patch, [N, C, H, W] in [0, 1], and where it is, booleans [N, H, W]."""
    candidates = min(len(pictures.x), TRIED * count)
    clean = pictures.floats(0, candidates)
    right = case.ensemble.right(clean, pictures.y[:candidates])
    if not bool(right.any()):
        raise InputError("the ensemble gets no picture right, so that none can be corrupted")
    clean = clean[right]
    corrupted, masks = noise_patches(clean, seed=0)
    rise = case.ensemble.epistemic(corrupted) - case.ensemble.epistemic(clean)
    chosen = rise.cpu().argsort(descending=True, stable=True)[:count]
    return corrupted[chosen], masks[chosen]


def noise_patches(x: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return pictures with noise from [0, 1] in a square of a quarter of the shorter side, and booleans where it is."""
    random = np.random.default_rng(seed)
    high, wide = x.shape[2:]
    side = max(2, min(high, wide) // 4)
    top, left = (torch.from_numpy(random.integers(0, size - side + 1, len(x))) for size in (high, wide))
    rows = torch.arange(high)[None] - top[:, None]
    columns = torch.arange(wide)[None] - left[:, None]
    masks = ((rows >= 0) & (rows < side))[:, :, None] & ((columns >= 0) & (columns < side))[:, None, :]
    noise = torch.from_numpy(random.random(x.shape, dtype=np.float32)).to(x)
    return torch.where(masks[:, None], noise, x), masks
