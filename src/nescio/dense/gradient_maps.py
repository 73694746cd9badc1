"""Gradient scores at every position, for the last layer: tables of norms from p(q) and the size of ã(q).

    ‖∂ log p_c(q)/∂θ_l‖ = ‖e_c − p(q)‖ · size_l(q)          in either norm, see `nescio.dense.head`

A table is what the gradient scores of `nescio.scores` are made from, so each of them has a map. The number at a
position is of the last layer alone; for the whole network see `nescio.dense.whole_network`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor

from nescio.quantities import GradientNorms
from nescio.scores import Method
from nescio.types import InputError, NormTable

_LOWEST = -87.0  # its exponential is about the smallest normal float32
_SURE = 1e-15  # of the rest: below, its square is not much above what float32 can hold


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


def scores(
    method: Method, logits: Tensor, sizes: Tensor, names: tuple[str, ...], request: GradientNorms, binary: bool
) -> Tensor:
    """Compute a gradient score at some positions.

    Logits in float32 are worked on in that type, which loses nothing but what their own rounding does: all that is
    summed has one sign. A row that is so sure that squares would vanish there is computed in float64.

    Args:
        method: The score.
        logits: ``[M, C]``; half precision is brought to float32.
        sizes: Of ∂z_c/∂θ_l, float64 ``[M, L]``.
        names: Of the L layers.
        request: Which gradients, and in which norm.
        binary: Whether the layer gives one logit, and the first of the two is always 0.

    Returns:
        float64 ``[M]``, on the device of the logits.
    """
    z = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    made, rest = table(z, sizes, names, request, binary)
    found = method(made).double()
    if z.dtype == torch.float32:
        sure = (rest[:, 0] < _SURE).nonzero()[:, 0]
        if len(sure):
            found[sure] = method(table(z[sure].double(), sizes[sure], names, request, binary)[0])
    return found


def table(
    logits: Tensor, sizes: Tensor, names: tuple[str, ...], request: GradientNorms, binary: bool
) -> tuple[NormTable, Tensor]:
    """Compute the norms of the gradients at some positions, in the type of the logits.

    Args:
        logits: float32 or float64 ``[M, C]``; classes that lie apart in memory, as those of pictures do, are fastest.
        sizes: As in `scores`; so are the others.
        names: Of the L layers.
        request: Which gradients, and in which norm.
        binary: As in `scores`.

    Returns:
        The table, on the device of the logits, and what each row leaves to all classes but the likeliest, ``[M, 1]``.
    """
    rows = _rows(logits)
    deltas = _deltas(rows, request, binary)
    return NormTable(deltas[:, :, None] * sizes.to(deltas)[:, None, :], rows.p, names), rows.rest


class _Rows(NamedTuple):
    """What is known of the probabilities of each row."""

    p: Tensor
    """``[M, C]``."""
    others: Tensor
    """The same without those of the likeliest class, where it is 0."""
    top: Tensor
    """1 for the likeliest class, 0 for the others, ``[M, C]``; several that are alike are all the likeliest."""
    rest: Tensor
    """What is left to all classes but the likeliest, ``[M, 1]``."""
    squares: Tensor
    """The sum of the squares of the probabilities of these, ``[M, 1]``."""
    most: Tensor
    """The largest probability, ``[M, 1]``."""


def _rows(logits: Tensor) -> _Rows:
    """Probabilities in few passes over the numbers, of which a picture has millions.

    What is left to the others is summed from them: no digit is lost where a row is sure. Only sums and products: they
    are several times as fast as choices by a mask.
    """
    gaps = logits - logits.amax(1, keepdim=True)
    if gaps.dtype == torch.float32:  # nothing that counts is lost: numbers below float32's normal ones are slow
        gaps.clamp_(min=_LOWEST)
    top = gaps.sign().add_(1.0)
    more = top.sum(1, keepdim=True) - 1.0  # classes as likely as the likeliest
    odds = gaps.exp_().sub_(top)  # e⁰ − 1 = 0 at the likeliest, without an error
    left = odds.sum(1, keepdim=True) + more
    most = 1.0 / (1.0 + left)
    others = odds.mul_(most)
    squares = (others * others).sum(1, keepdim=True) + more * most.square()
    return _Rows(torch.addcmul(others, top, most), others, top, left * most, squares, most)


def _deltas(rows: _Rows, request: GradientNorms, binary: bool) -> Tensor:
    """The norms of δ for each row, ``[M, R]``.

    ‖e_c − p‖² = 1 − 2p_c + ‖p‖², which has lost no digit unless c is the likeliest class: that one is summed from the
    others.
    """
    p, rest, top = rows.p, rows.rest, rows.top
    if request.rows == "expected":  # Σ_c p_c (e_c − p) = 0
        return torch.zeros_like(rest)
    if request.rows == "uniform":
        away = p[:, 1:] - 0.5 if binary else p - 1.0 / p.shape[1]
        length: Tensor = torch.linalg.vector_norm(away, request.norm, dim=1, keepdim=True)
        return length
    if binary or request.norm == 1:
        return torch.addcmul((1.0 - rows.others).mul_(1.0 - top), top, rest).mul_(1.0 if binary else 2.0)
    every = 1.0 + rows.squares + rows.most.square()
    elsewhere = torch.add(every, rows.others, alpha=-2.0).mul_(1.0 - top)
    return elsewhere.addcmul_(top, rest.square() + rows.squares).sqrt_()
