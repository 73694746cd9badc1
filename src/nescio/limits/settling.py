"""From which α on an uncertainty stays within ε of its limit along a ray.

Let ρ be the probability that a network gives to classes outside its limit, T = max ρ over the networks. Then every
score is within B(T) of its limit: T for the largest probability, T log(C − 1) + h(T) for an entropy (Fannes), twice
that for mutual information, 8 T for the variance. ρ/(1 − ρ) is a sum of exponentials of affine functions where logits
are straight, so it is convex there, and where B(T) ≤ ε at both ends of a piece the whole piece is settled, which is
a proof. Behind the last breakpoint it falls for ever. Pieces that this cannot settle are looked at point by point,
until the logits move by less than a hundredth between two points.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nescio.limits.walk import Path
from nescio.scores.decomposition import decompose

SCORES = {
    "max_probability": "max_probability",
    "entropy": "total",
    "mutual_information": "epistemic",
    "variance": "variance",
    "aleatoric": "aleatoric",
}
"""Scores whose limits are known, and the fields of a `Decomposition` that hold them."""

_MOVE = 0.01
_MOST_POINTS = 100_000


def settling_alpha(paths: list[Path], limit: Tensor, tied: Tensor, score: str, within: float) -> float:
    """The α behind which the score of these networks, with limits and tie sets ``[S, C]``, stays within so much."""
    goal = _value(limit[:, None], score)
    share = _share(score, within, limit.shape[1])
    knots = torch.cat([torch.zeros(1, dtype=torch.float64), *(path.breakpoints for path in paths)]).unique(sorted=True)
    last = float(knots[-1])
    points = torch.cat([knots, knots.new_tensor([_tail(paths, tied, last, share)])]).unique(sorted=True)
    sharp = bool((tied.sum(1) == 1).all())
    while True:
        logits = torch.stack([path.at(points) for path in paths])
        off = (_value(logits.softmax(-1), score) - goal).abs() > within
        first = int(off.nonzero().max()) if bool(off.any()) else 0
        mass = logits.softmax(-1).masked_fill(tied[:, None], 0.0).sum(-1).amax(0) <= share
        sure = mass[1:] & mass[:-1] & (sharp | (points[:-1] >= last))
        open_ = ~sure & ((logits[:, 1:] - logits[:, :-1]).abs().amax((0, 2)) > _MOVE)
        open_[:first] = False
        if not bool(open_.any()) or len(points) > _MOST_POINTS:
            break
        where = open_.nonzero().flatten()
        inner = torch.lerp(points[where, None], points[where + 1, None], torch.arange(1, 8, dtype=torch.float64) / 8)
        points = torch.cat([points[first:], inner.flatten()]).unique(sorted=True)
    if not bool(off.any()):
        return 0.0
    low, high = float(points[first]), float(points[first + 1])
    for _ in range(7):  # each time 63 times nearer
        distances = torch.linspace(low, high, 64, dtype=torch.float64)
        p = torch.stack([path.at(distances) for path in paths]).softmax(-1)
        at = int(((_value(p, score) - goal).abs() > within).nonzero().max())
        low, high = float(distances[at]), float(distances[min(at + 1, 63)])
    return high


def _value(p: Tensor, score: str) -> Tensor:
    value: Tensor = getattr(decompose(p), SCORES[score])
    return value


def _share(score: str, within: float, classes: int) -> float:
    """The largest T with B(T) ≤ ε."""

    def bound(t: float) -> float:
        if score == "max_probability":
            return t
        if score == "variance":
            return 8 * t
        entropy = t * math.log(max(classes - 1, 1)) - t * math.log(t) - (1 - t) * math.log1p(-t)
        return 2 * entropy if score == "mutual_information" else entropy

    low, high = 1e-30, 0.5
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if bound(middle) <= within else (low, middle)
    return low * (1 - 1e-6)  # so that round-off does not undo it


def _tail(paths: list[Path], tied: Tensor, last: float, share: float) -> float:
    """The α ≥ `last` behind which every network gives less than this share to classes outside its limit."""
    wanted = math.log(share) - math.log1p(-share)
    alpha = last
    for path, ties in zip(paths, tied, strict=True):
        z = path.at(torch.tensor([last], dtype=torch.float64))[0]
        if bool(ties.all()):
            continue
        top = z[ties].logsumexp(0)
        gap = path.slope[ties].mean() - path.slope[~ties]  # > 0
        # log Σ exp(z_c − gap_c t) falls with t at least as fast as its slowest term
        odds = float(z[~ties].logsumexp(0) - top)
        alpha = max(alpha, last + (odds - wanted) / float(gap.min()))
    return alpha
