"""From the uncertainty to the classes, and on to the logits of each member.

With g^s = softmax(z^s), ḡ = (1/S) Σ_s g^s:

    total_j      −ḡ_j log ḡ_j
    aleatoric_j  −(1/S) Σ_s g^s_j log g^s_j
    epistemic_j  total_j − aleatoric_j = (1/S) Σ_s [g^s_j log(g^s_j/ḡ_j) − g^s_j + ḡ_j]  ≥ 0

add up to U over the classes j. Each goes on to the logits of every member with shares that add up to one,

    c_{j→i} = softmax_i((1[i = j] − g_i)/τ₁),        U_{z_i^s} = Σ_j c^s_{j→i} U_j,

so that Σ_i U_{z_i^s} = U for every member s. With a_i = exp(−g_i/τ₁), t = exp(−1/τ₁) and D_j = t Σ_k a_k + (1 − t) a_j
that is U_{z_i} = a_i (t Σ_j U_j/D_j + (1 − t) U_i/D_i), without the C × C shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

import torch
from torch import Tensor

from nescio.scores.decomposition import decompose
from nescio.scores.information import divergence, log_probabilities
from nescio.types import InputError

Of = Literal["epistemic", "aleatoric", "total"]
KINDS: tuple[str, ...] = get_args(Of)


def kinds(of: object) -> tuple[str, ...]:
    """The kinds of uncertainty that are asked for, each once: a name, or several."""
    if isinstance(of, str):
        return (of,)
    if not isinstance(of, Iterable):
        raise InputError(f"expected of= to be one of {', '.join(map(repr, KINDS))}, or several of them, got {of!r}")
    named = list(of)
    if not named:
        raise InputError("expected of= to name at least one kind of uncertainty, got none")
    for one in named:
        _check_name(one)
    return tuple(dict.fromkeys(named))


def check_kind(of: object, members: int) -> None:
    """Raise an InputError unless this is a kind of uncertainty that so many members can have."""
    _check_name(of)
    if of == "epistemic" and members < 2:
        raise InputError(
            "expected at least 2 members for the epistemic uncertainty, which is 0 with one, got 1; give an ensemble "
            "or another distribution, or attribute of='total'"
        )


def _check_name(of: object) -> None:
    if not isinstance(of, str) or of not in KINDS:
        raise InputError(f"expected of= to be one of {', '.join(map(repr, KINDS))}, got {of!r}")


def value(logits: Tensor, of: str) -> Tensor:
    """U of each input, float64 [N], from logits [S, N, C] of the members."""
    result: Tensor = getattr(decompose(log_probabilities(logits).exp()), of)
    return result


def by_class(logits: Tensor, of: str) -> Tensor:
    """U_j [N, C], at least 0, which add up to `value` over the classes."""
    log_p = log_probabilities(logits)
    log_mean = log_p.logsumexp(0) - math.log(len(log_p))
    if of == "total":
        parts = -log_mean.exp() * log_mean
    elif of == "aleatoric":
        parts = -(log_p.exp() * log_p).mean(0)
    else:
        parts = divergence(log_p.unsqueeze(-1), log_mean.unsqueeze(-1)).mean(0)
    parts = parts.nan_to_num(0.0).clamp(min=0.0)  # 0 · log 0 of a class that is ruled out
    whole, wanted = parts.sum(-1, keepdim=True), value(logits, of).unsqueeze(-1)
    # the sum has the last digits of `value`, which takes no difference of near numbers
    return torch.where(whole > 0, parts * (wanted / whole.clamp(min=1e-300)), wanted / parts.shape[-1])


def by_logit(logits: Tensor, parts: Tensor, tau1: float) -> Tensor:
    """U_{z_i^s} [S, N, C] from U_j [N, C]."""
    g = log_probabilities(logits).exp()
    a, t = (-g / tau1).exp(), math.exp(-1.0 / tau1)
    received = parts / (t * a.sum(-1, keepdim=True) + (1.0 - t) * a)
    return a * (t * received.sum(-1, keepdim=True) + (1.0 - t) * received)


def slopes(logits: Tensor, of: str) -> Tensor:
    """∂U/∂z^s, float64 [S, N, C]: what to pull back through each member for the gradient of U."""
    z = logits.to(torch.float64)
    log_p = log_probabilities(z)
    p = log_p.exp()
    log_mean = log_p.logsumexp(0) - math.log(len(z))
    # ∂U/∂p^s, up to a constant of each row, which the softmax does not pass on
    inner = {"total": -log_mean.expand_as(p), "aleatoric": -log_p, "epistemic": log_p - log_mean}[of]
    inner = torch.where(p > 0, inner, 0.0)
    return p * (inner - (p * inner).sum(-1, keepdim=True)) / len(z)
