"""Gradient scores at every position, for the last layer: tables of norms from p(q) and the size of ã(q).

    ‖∂ log p_c(q)/∂θ_l‖ = ‖e_c − p(q)‖ · size_l(q)          in either norm, see `nescio.dense.head`

A table is what the gradient scores of `nescio.scores` are made from, so each of them has a map. Those that are a sum
Σ_c w(p_c) ‖g_c‖^k are summed without one, which a picture of millions of numbers feels. The number at a position is of
the last layer alone; for the whole network see `nescio.dense.whole_network`.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import Tensor

from nescio.quantities import GradientNorms
from nescio.scores import ExGrad, GradNorm, Method, NEGrad, REGrad, Squared, UNGrad
from nescio.types import InputError, NormTable

_LOWEST = -80.0  # its exponential, shared among a thousand classes, is still a normal float32
_BITS = 1.0 / math.log(2.0)  # powers of two are several times as fast as those of e
_SURE = 1e-15  # of the rest: below, its square is not much above what float32 can hold
_SINGLE = (ExGrad, GradNorm, NEGrad, REGrad, Squared, UNGrad)
"""Scores to which a probability below float32's range adds nothing: each is weighted by √p_c at least, or by none."""


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
    summed has one sign. A row that is so sure that squares would vanish there is computed in float64, and so is a score
    that looks at classes which are less likely than float32 can say.

    Args:
        method: The score.
        logits: ``[M, C]``; half precision is brought to float32. Classes that lie apart in memory, as those of pictures
            do, are fastest.
        sizes: Of ∂z_c/∂θ_l, float64 ``[M, L]``.
        names: Of the L layers.
        request: Which gradients, and in which norm.
        binary: Whether the layer gives one logit, and the first of the two is always 0.

    Returns:
        float64 ``[M]``, on the device of the logits.
    """
    z = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    if not isinstance(method, _SINGLE):
        z = z.double()
    found, rest = _scores(method, z, sizes, names, request, binary)
    found = found.double()
    if z.dtype == torch.float32:
        sure = (rest[:, 0] < _SURE).nonzero()[:, 0]
        if len(sure):
            found[sure] = _scores(method, z[sure].double(), sizes[sure], names, request, binary)[0]
    return found


def _scores(
    method: Method, logits: Tensor, sizes: Tensor, names: tuple[str, ...], request: GradientNorms, binary: bool
) -> tuple[Tensor, Tensor]:
    """The score in the type of the logits, and what each row leaves to all classes but the likeliest, ``[M, 1]``."""
    rows = _rows(logits)
    if (form := _sum_form(method)) is not None and sizes.shape[1] == 1 and not binary:
        return _weighted_sum(rows, *form, request.norm) * sizes[:, 0] ** form[1], rows.rest
    deltas = _deltas(rows, request, binary)
    return method(NormTable(deltas[:, :, None] * sizes.to(deltas)[:, None, :], rows.p, names)), rows.rest


class _Rows(NamedTuple):
    """What is known of the probabilities of each row."""

    others: Tensor
    """Probabilities without those of the likeliest class, where it is 0, ``[M, C]``."""
    below: Tensor
    """0 for the likeliest class, −1 for the others, ``[M, C]``; several that are alike are all the likeliest."""
    rest: Tensor
    """What is left to all classes but the likeliest, ``[M, 1]``."""
    squares: Tensor
    """The sum of the squares of the probabilities of these, ``[M, 1]``."""
    most: Tensor
    """The largest probability, ``[M, 1]``."""
    ties: Tensor
    """How many classes have it, ``[M, 1]``."""

    @property
    def p(self) -> Tensor:
        """The probabilities, ``[M, C]``."""
        return torch.addcmul(self.others, self.below + 1.0, self.most)


def _rows(logits: Tensor) -> _Rows:
    """Probabilities in few passes over the numbers, of which a picture has millions.

    What is left to the others is summed from them: no digit is lost where a row is sure. Only sums and products: they
    are several times as fast as choices by a mask.
    """
    gaps = logits - logits.amax(1, keepdim=True)
    below = gaps.sign()
    ties = below.sum(1, keepdim=True) + logits.shape[1]
    if gaps.dtype == torch.float32:  # nothing that counts is lost: numbers below float32's normal ones are slow
        gaps.clamp_(min=_LOWEST).mul_(_BITS).exp2_()
    else:
        gaps.exp_()
    odds = gaps.mul_(below)  # with a minus
    left = ties - 1.0 - odds.sum(1, keepdim=True)
    most = 1.0 / (1.0 + left)
    others = odds.mul_(-most)
    squares = (others * others).sum(1, keepdim=True) + (ties - 1.0) * most.square()
    return _Rows(others, below, left * most, squares, most, ties)


def _sum_form(method: Method) -> tuple[bool, int] | None:
    """For a score Σ_c w(p_c) ‖g_c‖^k whether w is the root, and k; None for others."""
    if type(method) is REGrad:
        return True, method.power
    if type(method) in (ExGrad, Squared):
        return False, 1 if type(method) is ExGrad else 2
    return None


def _weighted_sum(rows: _Rows, root: bool, power: int, norm: int) -> Tensor:
    """Σ_c w(p_c) ‖e_c − p‖^k, ``[M]``: over all but the likeliest class, whose part is added."""
    most = rows.most.sqrt() if root else rows.most
    if norm == 1:
        away, top = (1.0 - rows.others).mul_(2.0), 2.0 * rows.rest
        powers = away if power == 1 else away.square_()
        top = top if power == 1 else top.square()
    else:
        away = torch.add(1.0 + rows.squares + rows.most.square(), rows.others, alpha=-2.0)
        powers, top = away, rows.rest.square() + rows.squares
        if power == 1:
            powers, top = away.sqrt_(), top.sqrt()
    total = powers.mul_(rows.others.sqrt() if root else rows.others).sum(1, keepdim=True)
    return (total + rows.ties * most * top)[:, 0]


def _deltas(rows: _Rows, request: GradientNorms, binary: bool) -> Tensor:
    """The norms of δ for each row, ``[M, R]``.

    ‖e_c − p‖² = 1 − 2p_c + ‖p‖², which has lost no digit unless c is the likeliest class: that one is summed from the
    others.
    """
    rest, top = rows.rest, rows.below + 1.0
    if request.rows == "expected":  # Σ_c p_c (e_c − p) = 0
        return torch.zeros_like(rest)
    if request.rows == "uniform":
        away = rows.p[:, 1:] - 0.5 if binary else rows.p - 1.0 / top.shape[1]
        length: Tensor = torch.linalg.vector_norm(away, request.norm, dim=1, keepdim=True)
        return length
    if binary or request.norm == 1:
        return (rows.others - 1.0).mul_(rows.below).addcmul_(top, rest).mul_(1.0 if binary else 2.0)
    every = 1.0 + rows.squares + rows.most.square()
    elsewhere = torch.add(-every, rows.others, alpha=2.0).mul_(rows.below)
    return elsewhere.addcmul_(top, rest.square() + rows.squares).sqrt_()
