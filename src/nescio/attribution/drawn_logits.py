"""Few maps in place of many: the logits of all members are a mixture, of which some are drawn by their weights.

The map of an input is Σ_r w_r A_r over the C logits of each member. The weights w_r ≥ 0 are known and add up to U. Each
map A_r adds up to one, and costs one backward pass. *Priority sampling* (Duffield, Lund and Thorup, 2007) takes the n
rows with the largest q_r/ξ_r, ξ_r uniform in (0, 1] and fixed by a seed. With τ the (n + 1)-th of these

    ŵ_r = w_r max(1, τ/q_r),        E Σ_drawn ŵ_r A_r = Σ_r w_r A_r,        var(max(q_r, τ)) ≈ τ max(0, τ − q_r),

without correlation between rows: rows with a large weight are always drawn and keep their weight; the others stand for
those that were left out. q is the mean of a row's shares of the epistemic and of the aleatoric part. It is the same for
every kind of uncertainty, so one draw serves all. Weights are scaled to add up to U again.

The error is told from the draw itself: half of Σ_places |map − exact map| / U, as is to be expected of a normal
deviation with the variance above. It is the share of the doubt that lies elsewhere than in the exact map.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from nescio._common.argument_checks import integer
from nescio.attribution.defaults import DRAWN, FEW
from nescio.types import InputError

Classes = int | Literal["auto", "exact"]
_TINY = 1e-300


def check(classes: object) -> None:
    """Raise an InputError unless this says how many maps of logits are taken."""
    if isinstance(classes, str):
        if classes not in ("auto", "exact"):
            raise InputError(f"expected classes= to be 'auto', 'exact' or a whole number, got {classes!r}")
    else:
        integer("classes", classes, at_least=2)


def count(classes: Classes, of: int, draws: int, samples: int) -> int | None:
    """How many of the logits of `draws` of all samples, each with `of` classes, are drawn; None: all are taken."""
    if classes == "exact" or (classes == "auto" and of <= FEW):
        return None
    wanted = DRAWN if isinstance(classes, str) else classes
    wanted = max(2, -(-wanted * draws // samples))
    return wanted if wanted < of * draws else None


class Draw(NamedTuple):
    """Rows that were drawn for each input, `at` [N, n], their weights and the variances of these, each [U, N, n]."""

    at: Tensor
    weights: Tensor
    variances: Tensor


def drawn(shares: Tensor, q: Tensor, n: int, seed: int) -> Draw:
    """Draw n of the rows of each input, with weights ``shares`` [U, N, R] of which q [N, R] has a bit of each."""
    generator = torch.Generator("cpu").manual_seed(seed)
    keys = 1.0 - torch.rand(q.shape[1], generator=generator, dtype=torch.float64)
    first = (q / keys).topk(n + 1, dim=1)
    at, tau = first.indices[:, :n], first.values[:, n:]
    own = q.gather(1, at).clamp(min=_TINY)
    weights = shares.gather(2, at.expand(len(shares), -1, -1))
    scaled = weights * (tau / own).clamp(min=1.0)
    scale = shares.sum(2, keepdim=True) / scaled.sum(2, keepdim=True).clamp(min=_TINY)
    variances = (weights * scale / own).square() * tau * (tau - own).clamp(min=0.0)
    return Draw(at, scaled * scale, variances)


def proposal(parts: list[Tensor]) -> Tensor:
    """The mean of what each row has of several sums [N, R] that are divided over rows, [N, R]."""
    relative = [part / part.sum(1, keepdim=True).clamp(min=_TINY) for part in parts]
    return torch.stack(relative).mean(0)


def error(variance: Tensor, whole: Tensor) -> Tensor:
    """The share [U, N] of the doubt that lies elsewhere, from the variance at each place [U, N, P] and U [U, N]."""
    expected = math.sqrt(2.0 / math.pi) * variance.clamp(min=0.0).sqrt().sum(2)
    return 0.5 * expected / whole.clamp(min=_TINY)
