"""What a method works on: the members, what of an input is attributed, and which uncertainty.

    U(x) from all z^s,      ∂U/∂x = Σ_s J_sᵀ ∂U/∂z^s

The members' logits come first, without gradients; then one traced pass of each member pulls its cotangent back. So no
more than one member's graph is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from nescio.attribution import uncertainty
from nescio.attribution.member_passes import Call, Keep, Run, forward, pulled
from nescio.attribution.places import Places
from nescio.attribution.sampled_members import Member
from nescio.attribution.source import Source
from nescio.inputs import Inputs
from nescio.types import ModelError

Change = Callable[[Tensor], Tensor]


def unchanged(value: Tensor) -> Tensor:
    """The attributed tensor as it is."""
    return value


def in_float64(value: Tensor) -> Tensor:
    """The tensor in float64, where it is if that device has such numbers."""
    return value.to(torch.float64) if value.is_cuda else value.to("cpu", torch.float64)


@dataclass(frozen=True)
class Problem:
    """Members, source, kind of uncertainty, and a batch of inputs as the user gave it."""

    members: list[Member]
    source: Source
    of: str
    x: Inputs

    @cached_property
    def places(self) -> Places:
        """The places of the batch."""
        return self.source.places(self.members[0].before(self.x))

    @cached_property
    def logits(self) -> Tensor:
        """Logits of all members, float64 [S, N, C] on the CPU."""
        return self._logits(unchanged)

    def _logits(self, change: Change) -> Tensor:
        logits = [m.logits(self.x, lambda c, b: self.source.settled(c, b, change)) for m in self.members]
        if len({z.shape[1:] for z in logits}) > 1:
            counts = ", ".join(str(z.shape[-1]) for z in logits)
            raise ModelError(f"expected members with the same classes, got {counts} classes; leave out the odd ones")
        return torch.cat(logits)

    def gradients(self, change: Change = unchanged, keep: Keep | None = None) -> Iterator[Slope]:
        """For each member the gradient of U at what is attributed, by its logits alone: the members' add up to ∂U/∂x.

        Calls of which `keep` keeps something are read as they come: the reader is `Slope.each`.
        """
        logits = self.logits if change is unchanged else self._logits(change)
        vectors = uncertainty.slopes(logits, self.of)
        for member, v in zip(self.members, vectors, strict=True):
            with forward(member, self.x, self.source, change, keep) as run:
                yield Slope(run, v.unsqueeze(0).to(run.logits))

    def gradient(self, change: Change = unchanged) -> list[Tensor]:
        """∂U/∂x, float64 [N, ...]: one for all members, or one for each where they embed tokens apart."""
        gradients = [slope.gradient() for slope in self.gradients(change)]
        return gradients if self.source.tokens else [torch.stack([g.to(gradients[0].device) for g in gradients]).sum(0)]


@dataclass(frozen=True)
class Slope:
    """A pass of one member and the cotangent ∂U/∂z^s, [1, N, C]."""

    run: Run
    vectors: Tensor

    def gradient(self) -> Tensor:
        """The gradient at what is attributed, in float64."""
        gradients: list[Tensor] = []
        self.each(lambda call, g: gradients.append(g) if call is None else None)
        return in_float64(gradients[0][0])

    def each(self, read: Callable[[Call | None, Tensor], None]) -> None:
        """Hand each gradient [1, ...] to a reader."""
        pulled(self.run, self.vectors, lambda: read)
