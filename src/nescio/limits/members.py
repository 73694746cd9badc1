"""The piecewise-linear networks of which a model, a list of models or a posterior is made.

The logits of member s are w ⊙ z_s(x) + b, with w = 1/T for a temperature T, and w = 1, b = 0 without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from nescio.limits.network import Network
from nescio.limits.walk import Path, walk
from nescio.models import ModelLike, ModelOrPosterior
from nescio.posteriors.base import PosteriorBase
from nescio.types import InputError, ModelError, Posterior

Models: TypeAlias = ModelOrPosterior | Sequence[ModelLike]
"""A model, a list of models, or a distribution over models."""
_MOST_WORK = 2e10  # a minute or two on one core


@dataclass(frozen=True)
class Member:
    """A network and what is done to its logits."""

    network: Network
    scale: Tensor | float = 1.0
    shift: Tensor | float = 0.0

    def paths(self, x: Tensor, d: Tensor, most: int, done: Callable[[int], object] = int) -> list[Path]:
        """The logits along each ray; `done` hears of faces as they are crossed."""
        paths = walk(self.network, x, d, most, done)
        return [Path(p.breakpoints, p.logits * self.scale + self.shift, p.slope * self.scale) for p in paths]

    def work(self, x: Tensor, d: Tensor) -> float:
        """About how many numbers a ray from this input asks for: a pass for each of its pieces."""
        pieces: list[int] = []
        with self.network.working():
            self.network.settle(
                self.network.checked_batch(x),
                self.network.checked_batch(d, "direction"),
                lambda site, h: pieces.append(site.measure(h, True).shape[2]),
            )
        return float(sum(pieces)) * self.network.numbers


def check_work(networks: list[Member], x: Tensor, d: Tensor) -> None:
    """Raise a ModelError where the rays ``[N, ...]`` would take more than a few minutes."""
    work = sum(member.work(x[:1], d[:1]) for member in networks)
    if work * len(x) > _MOST_WORK:
        fewer = f"walk at most {int(_MOST_WORK / work):,} rays" if work < _MOST_WORK else "walk a smaller network"
        raise ModelError(
            f"expected rays that take a few minutes, got {len(x):,} through a network with too many pieces for that; "
            f"{fewer}, or give exact=True and wait"
        )


def members(model: Models, output: str | None = None) -> list[Member]:
    """The members; an error for a distribution that is not made of a few piecewise-linear networks."""
    if isinstance(model, Sequence):
        if not model:
            raise InputError("expected at least one model, got an empty list")
        return [Member(Network(one, output)) for one in model]
    networks = model.networks() if isinstance(model, PosteriorBase) else None
    if networks is not None:
        return [Member(Network(one.classifier), one.scale, one.shift) for one in networks]
    if isinstance(model, PosteriorBase) or (isinstance(model, Posterior) and not callable(model)):
        raise ModelError(
            f"expected a model, a list of models, an ensemble or a temperature on one, got a {type(model).__name__}, "
            "whose samples are not walked along; measure it numerically: nescio.limits.audit(posterior, x, radius=...)"
        )
    return [Member(Network(model, output))]
