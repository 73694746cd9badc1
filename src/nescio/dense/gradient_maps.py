"""Gradient scores at every position, for the last layer: tables of norms from p(q) and the size of ã(q).

    ‖∂ log p_c(q)/∂θ_l‖ = ‖e_c − p(q)‖ · size_l(q)          in either norm, see `nescio.dense.head`

A table is what the gradient scores of `nescio.scores` are made from, so each of them has a map. The number at a
position is of the last layer alone; for the whole network see `nescio.dense.whole_network`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

import torch
from torch import Tensor

from nescio.quantities import GradientNorms
from nescio.types import InputError, NormTable


def refuse(key: str, request: GradientNorms) -> None:
    """Raise an InputError for settings that a map of the last layer does not have."""
    if request.sigma and request.samples:
        raise InputError(
            f"expected '{key}' without noise at every position (sigma=0), got sigma={request.sigma:g}; for smoothed "
            "gradients of the whole network see nescio.dense.whole_network"
        )
    if request.precision is not None:
        raise InputError(f"expected '{key}' with precision=None at every position, got {request.precision!r}")


def kept(names: tuple[str, ...], request: GradientNorms) -> list[int]:
    """Return which of the last layers take part, after `select` and `exclude`."""
    chosen = [
        at
        for at, name in enumerate(names)
        if request.select is None or any(fnmatchcase(name, pattern) for pattern in request.select)
        if not any(fnmatchcase(name, pattern) for pattern in request.exclude or ())
    ]
    if not chosen:
        raise InputError(
            f"expected one of the last layers ({', '.join(names)}) at least, which alone take part at every position, "
            f"got none with select={request.select} and exclude={request.exclude}; leave both out"
        )
    return chosen


def table(logits: Tensor, sizes: Tensor, names: tuple[str, ...], request: GradientNorms, binary: bool) -> NormTable:
    """Compute the norms of the gradients at some positions.

    Args:
        logits: float64 ``[M, C]``.
        sizes: Of ∂z_c/∂θ_l, float64 ``[M, L]``.
        names: Of the L layers.
        request: Which gradients, and in which norm.
        binary: Whether the layer gives one logit, and the first of the two is always 0.

    Returns:
        The table, on the device of the logits.
    """
    p, rest, top = _probabilities(logits)
    return NormTable(_deltas(p, rest, top, request, binary)[:, :, None] * sizes[:, None, :], p, names)


def _probabilities(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, what each row leaves to all classes but the likeliest, ``[M, 1]``, and which that is, ``[M, 1]``.

    In few passes over the numbers, of which a picture has millions. The rest is summed from the others: no digit is
    lost where a row is sure.
    """
    most, top = logits.max(1, keepdim=True)
    odds = (logits - most).exp_().scatter_(1, top, 0.0)
    others = odds.sum(1, keepdim=True)
    share = 1.0 / (1.0 + others)
    return odds.mul_(share).scatter_(1, top, share), others * share, top


def _deltas(p: Tensor, rest: Tensor, top: Tensor, request: GradientNorms, binary: bool) -> Tensor:
    """The norms of δ for each row, float64 ``[M, R]``.

    ‖e_c − p‖² = 1 − 2p_c + ‖p‖², which has lost no digit unless c is the likeliest class: that one is summed from the
    others.
    """
    if request.rows == "expected":  # Σ_c p_c (e_c − p) = 0
        return torch.zeros_like(rest)
    if request.rows == "uniform":
        away = p[:, 1:] - 0.5 if binary else p - 1.0 / p.shape[1]
        length: Tensor = torch.linalg.vector_norm(away, request.norm, dim=1, keepdim=True)
        return length
    if binary or request.norm == 1:
        return (1.0 - p).scatter_(1, top, rest).mul_(1.0 if binary else 2.0)
    squares = p.square().scatter_(1, top, 0.0).sum(1, keepdim=True)
    all_squares = squares + p.gather(1, top).square()
    return (-2.0 * p).add_(1.0 + all_squares).scatter_(1, top, rest.square() + squares).sqrt_()
