"""What `nescio.explain` returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Attribution:
    """A map over each input that says which part of it causes the uncertainty.

    maps: float64 ``[N, H, W]`` for pictures, ``[N, T]`` for tokens, ``[N, F]`` for features; on the CPU. uncertainty:
    float64 ``[N]``, what was attributed. residual: Σ map − uncertainty of each input, 0 but for round-off where the
    method is complete. parts: ``[S, N, ...]``, what each member gave, which add up to the maps; None unless asked for.

    merged: with many classes, how many of them went through the network together, as one. share, float64 ``[N]``: what
    of the uncertainty is between that one and the others, or between these; the rest is doubt among the merged classes,
    and lies where their joint logit comes from. None where nothing was merged.
    """

    maps: Tensor
    uncertainty: Tensor
    residual: Tensor
    of: str
    method: str
    about: str
    parts: Tensor | None = None
    merged: int = 0
    share: Tensor | None = None
