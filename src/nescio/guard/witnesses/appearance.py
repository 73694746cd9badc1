"""Appearance: are edges, textures and levels unlike any that the reference has?

At each depth the statistics s of the activations (see `nescio.models.activation_statistics`) are compared with those of
the reference by their Mahalanobis distance, in a covariance that is shrunk to a multiple of the identity (Ledoit and
Wolf):

    Σ = (1 − λ) S + λ μ 1,     μ = tr S / d,     distance² = (s − m)ᵀ Σ⁻¹ (s − m)

S has at most n − 1 directions v with variance; all others share ρ = λ μ. A direction whose variance in Σ is σ² is kept
with the length of √(1 − ρ/σ²), all of them as V, so that two products give the distance:

    distance² = (‖s − m‖² − ‖(s − m)ᵀ V‖²) / ρ

It does not depend on the signs and rotations that an eigenvalue problem leaves open.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.guard.witnesses.base import Anatomy, Kind, Rows, State, Witness, register
from nescio.quantities import Request
from nescio.scores.feature_scores import ledoit_wolf

_FLOOR = 1e-6  # of the mean variance: a channel that is constant in the reference may move a little


@register
@dataclass(frozen=True)
class Appearance(Witness):
    """Say how far out the statistics of the activations lie, over all depths; it only counts against an input.

    Args:
        dead_zone: Up to this z a depth does not count.
        weight: What z beyond it counts in the score of the guard.

    Examples:
        >>> witness = Appearance()
        >>> z = torch.tensor([[0.0, 1.0], [1.5, 3.5]])  # two inputs, two depths
        >>> witness.vote(z)
        tensor([0.0000, 4.2426])
    """

    dead_zone: float = 1.5
    weight: float = 3.0

    name = "appearance"

    def needs(self, anatomy: Anatomy) -> tuple[Request, ...]:
        return (anatomy.activations,) if anatomy.activations.depths else ()

    def rows(self, *answers: tuple[Tensor, ...]) -> Rows:
        return answers[0]

    def fit(self, rows: Rows) -> State:
        means, directions, rests = zip(*(_shrunk(statistics) for statistics in rows), strict=True)
        state = {"rest": torch.stack(rests)}
        for depth, (mean, vectors) in enumerate(zip(means, directions, strict=True)):
            state |= {f"mean{depth}": mean, f"directions{depth}": vectors}
        return state

    def measure(self, state: State, rows: Rows) -> Tensor:
        lengths, inside = [], []
        for depth, statistics in enumerate(rows):
            centred = statistics - state[f"mean{depth}"]
            lengths.append(torch.linalg.vector_norm(centred, dim=1))
            inside.append(torch.linalg.vector_norm(centred @ state[f"directions{depth}"], dim=1))
        square = torch.stack(lengths, dim=1).square() - torch.stack(inside, dim=1).square()
        return (square.clamp(min=0.0) / state["rest"]).sqrt()

    def summary(self, z: Tensor) -> Tensor:
        return _root_mean_square(z.clamp(min=0.0))

    def vote(self, z: Tensor) -> Tensor:
        return self.weight * _root_mean_square((z - self.dead_zone).clamp(min=0.0))

    def words(self, kind: Kind) -> str:
        what = {"pictures": "edges and textures", "tokens": "words and phrases", "vectors": "values"}
        return f"Its {what.get(kind, 'shapes and levels')} are"


def _root_mean_square(z: Tensor) -> Tensor:
    return z.square().mean(1).sqrt()


def _shrunk(statistics: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean [d], directions of length √(1 − ρ/σ²) as columns [d, r], and the variance ρ of all other directions []."""
    count, width = statistics.shape
    mean = statistics.mean(0)
    centred = statistics - mean
    level = centred.square().sum() / count / width
    if float(level) <= 1e-24 * float(mean.square().mean()):  # all inputs are the same: any change is far out
        return mean, centred.new_zeros(width, 0), (1e-12 * mean.square().mean()).clamp(min=1e-24)
    shrinkage = ledoit_wolf(centred)
    rest = (shrinkage * level).clamp(min=_FLOOR * float(level))
    if count < width:  # the smaller of two eigenvalue problems
        values, left = torch.linalg.eigh(centred @ centred.T / count)
        kept = values > 1e-10 * values[-1]
        vectors = centred.T @ left[:, kept] / (count * values[kept]).sqrt()
    else:
        values, vectors = torch.linalg.eigh(centred.T @ centred / count)
        kept = values > 1e-10 * values[-1]
        vectors = vectors[:, kept]
    extra = (1.0 - shrinkage) * values[kept]
    return mean, vectors * (extra / (extra + rest)).sqrt(), rest
