"""`decompose`: from predictions p^s of S samples to total, aleatoric and epistemic uncertainty.

With p̄ = (1/S) Σ_s p^s, H the entropy and d^s_c = log p^s_c − log p̄_c:

    aleatoric        (1/S) Σ_s H(p^s)
    epistemic        (1/S) Σ_s KL(p^s ‖ p̄)                   mutual information; = H(p̄) − aleatoric
    total            aleatoric + epistemic = H(p̄)
    variance         Σ_c (1/S) Σ_s (p^s_c − p̄_c)²
    max_probability  1 − max_c p̄_c
    bregman          −log Σ_c exp((1/S) Σ_s log p^s_c)
                   = −log(1 + Σ_c p̄_c (exp(e_c) − 1)),       e_c = −(1/S) Σ_s (exp(d) − 1 − d) ≤ 0, where that is small

The differences of nearly equal numbers that these formulas hide are never taken: sums have terms of one sign, and the
likeliest class is worked out from what is left to the others, log p_top = −log(1 + Σ_{c≠top} p_c/p_top). So all fields
are right to about twelve digits, also for a network that is sure to 1e-30 or to a probability of exactly 0.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nescio._common.arrays import Values
from nescio.scores.information import divergence
from nescio.types import Decomposition, InputError

_AT_ONCE = 2**22  # probabilities that are worked on at a time
_ZERO = -800.0  # stands for log 0: exp of it is 0, and products with 0 stay 0


def decompose(probabilities: Values) -> Decomposition:
    """Compute the kinds of uncertainty of each input: total, aleatoric and epistemic.

    Args:
        probabilities: A tensor or an array ``[S, N, C]`` of S samples, N inputs and C classes, as `predict` of a
            posterior returns it; ``[N, C]`` is one sample, whose epistemic part is 0. Rows that sum to one within the
            precision of their type are scaled to do so exactly. Of a model that answers at every position
            ``[S, N, *positions, C]``.

    Returns:
        The kinds, float64 ``[N]`` each, or maps ``[N, *positions]``. `bregman` is infinite where every class has
        probability 0 in some sample.

    Raises:
        InputError: They are no probabilities, or have another shape.

    Examples:
        >>> kinds = nescio.decompose(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]))
        >>> kinds.total, kinds.epistemic
        (tensor([0.6931], dtype=torch.float64), tensor([0.6931], dtype=torch.float64))
    """
    p = _checked_probabilities(probabilities)
    shape, p = p.shape[1:-1], p.flatten(1, -2)
    samples, count, classes = p.shape
    step = max(1, _AT_ONCE // (samples * classes))
    parts = [_fields(p[:, start : start + step]) for start in range(0, count, step)]
    return Decomposition(*(torch.cat(field).reshape(shape) for field in zip(*parts, strict=True)))


def _fields(p: Tensor) -> tuple[Tensor, ...]:
    """The fields of a Decomposition in order, from probabilities whose rows sum to about one."""
    p, log_p, _, _ = _logs(p.to("cpu", torch.float64))
    mean, log_mean, rest, is_top = _logs(p.mean(0))
    if len(p) == 1:  # not a digit of difference
        mean, log_mean = p[0], log_p[0]
    aleatoric = (p * -log_p).sum(-1).mean(0)
    epistemic = divergence(log_p, log_mean).mean(0)
    away = (p - mean).masked_fill(is_top, 0.0)
    away = torch.where(is_top, -away.sum(-1, keepdim=True), away)
    variance = away.square().sum(-1).mean(0)
    d = log_p - log_mean
    curved = divergence(torch.zeros_like(d)[..., None], d[..., None])  # exp(d) − 1 − d, accurate near 0
    impossible = (p == 0).any(0)
    gap = (mean * (-curved.mean(0)).masked_fill(impossible, -torch.inf).expm1()).sum(-1)
    far = -log_p.mean(0).masked_fill(impossible, -torch.inf).logsumexp(-1)
    bregman = torch.where(gap > -0.5, -gap.log1p(), far)
    return aleatoric + epistemic, aleatoric, epistemic, variance, rest, bregman


def _logs(p: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows that sum to one, their logarithms, what each leaves to all classes but the likeliest, and where that is."""
    top = p.argmax(-1, keepdim=True)
    is_top = torch.zeros_like(p, dtype=torch.bool).scatter(-1, top, True)
    largest, others = p.gather(-1, top), p.masked_fill(is_top, 0.0).sum(-1, keepdim=True)
    total = largest + others
    log_p = torch.where(is_top, -(others / largest).log1p(), p.log() - total.log())
    return p / total, log_p.masked_fill(p == 0, _ZERO), (others / total).squeeze(-1), is_top


def _checked_probabilities(given: Values) -> Tensor:
    """Probabilities [S, N, C] as they came, checked."""
    wanted = "expected probabilities [S, N, C] of S samples, N inputs and C >= 2 classes"
    p = _tensor(given, wanted)
    if p.ndim < 2 or p.shape[-1] < 2 or p.numel() == 0 or p.is_complex():
        raise InputError(f"{wanted}, got a tensor of {p.dtype} and shape {list(p.shape)}")
    p = p.detach()[None] if p.ndim == 2 else p.detach()
    half = p.dtype in (torch.float16, torch.bfloat16)
    wide = p.to(torch.float64)
    if not bool(wide.isfinite().all()):
        raise InputError(f"{wanted}, got NaN or infinite ones; leave those inputs out")
    if bool((wide < 0).any()):
        raise InputError(f"{wanted}, got some below 0; give probabilities, not logits: logits.softmax(-1)")
    sums = wide.sum(-1)
    off = (sums - 1.0).abs()
    if float(off.max()) > (2e-2 if half else 1e-4):
        worst = int(off.argmax())
        sample, row = divmod(worst // off[0, 0].numel(), off.shape[1])
        raise InputError(
            f"{wanted} that sum to one over the classes, got a sum of {sums.flatten()[worst].item():.6g} for input "
            f"{row} of sample {sample}; give probabilities, not logits, with the classes in the last dimension"
        )
    return wide


def _tensor(given: object, wanted: str) -> Tensor:
    if isinstance(given, Tensor):
        return given
    if hasattr(given, "to_numpy"):  # a table
        given = given.to_numpy()
    if not isinstance(given, np.ndarray | list | tuple):
        remedy = "; give what its predict(x) returns" if hasattr(given, "predict") else ""
        if not remedy and callable(given):
            remedy = "; a model has to answer first: nescio.decompose(nescio.posteriors.MCDropout(model).predict(x))"
        raise InputError(f"{wanted}, got an object of type {type(given).__name__}{remedy}")
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InputError(f"{wanted}, got {given!r:.80} ({error})") from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"{wanted}, got an array of {array.dtype} and shape {list(array.shape)}")
    # torch cannot share memory with arrays that are read-only, reversed, of foreign byte order or wider: copy those
    kind = np.float64 if array.dtype.itemsize > 8 else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array.astype(kind, copy=False), requirements=["C", "W"]))
