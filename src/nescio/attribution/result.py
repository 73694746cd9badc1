"""What `nescio.explain` returns."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Attribution:
    """Hold a map over each input that says which part of it causes the uncertainty.

    Attributes:
        maps: float64 ``[N, H, W]`` for pictures, ``[N, T]`` for tokens, ``[N, F]`` for features; on the CPU.
        uncertainty: What was attributed, float64 ``[N]``.
        residual: Σ map − uncertainty of each input, 0 but for round-off where the method is complete.
        of: The kind of uncertainty.
        method: The name of the method.
        about: What was done, in words.
        parts: What each member gave, ``[S, N, ...]``, which adds up to the maps; None unless it was wanted.
        drawn: With many classes, how many maps of logits were drawn for each input; 0 where all were taken.
        error: About what share of the doubt lies elsewhere than in the map of all logits, ½ Σ |map − exact| / U, told
            from the spread of those that were drawn, float64 ``[N]``; None where all were taken.

    Examples:
        >>> attribution = nescio.explain(torch.nn.Linear(4, 3), torch.rand(2, 4), of="total")
        >>> attribution.maps.shape, attribution.residual.abs().max() < 1e-6
        (torch.Size([2, 4]), tensor(True))
    """

    maps: Tensor
    uncertainty: Tensor
    residual: Tensor
    of: str
    method: str
    about: str
    parts: Tensor | None = None
    drawn: int = 0
    error: Tensor | None = None
