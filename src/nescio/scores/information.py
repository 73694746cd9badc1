"""Entropy, divergence and mutual information from logits, in float64, accurate for confident inputs too.

With z the logits, top = argmax z and rest = Σ_{c≠top} exp(z_c − z_top):

    log p_c   = z_c − z_top − log1p(rest)
    1 − p_top = rest/(1 + rest),   and 1 − p_c by subtraction elsewhere, where p_c ≤ 1/2
    KL(q‖p)   = Σ_c q_c φ(d_c),    φ(d) = d + exp(−d) − 1 ≥ 0,   d = log q − log p
    MI        = (1/S) Σ_s KL(p^s ‖ p̄),   p̄ = (1/S) Σ_s p^s

Every term of the last two sums is at least 0 and vanishes with d², so that an error in a logarithm enters multiplied
by d. The plain Σ q·d has terms of both signs that cancel: it is round-off, or below zero, for a network that is sure.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def _gaps(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gaps z − z_top, their rest (a last dimension of one), and where the top class is."""
    z = logits.to(torch.float64)
    top = z.argmax(-1, keepdim=True)
    gaps = z - z.gather(-1, top)
    is_top = torch.zeros_like(z, dtype=torch.bool).scatter(-1, top, True)
    return gaps, gaps.exp().masked_fill(is_top, 0.0).sum(-1, keepdim=True), is_top


def log_probabilities(logits: Tensor) -> Tensor:
    """Log p, with the class dimension last."""
    gaps, rest, _ = _gaps(logits)
    return gaps - rest.log1p()


def complements(logits: Tensor) -> Tensor:
    """1 − p_c for every class, without the loss of digits of 1 − p where p is near 1."""
    return log_probabilities_and_complements(logits)[1]


def log_probabilities_and_complements(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Log p and 1 − p, as the two functions above give them."""
    gaps, rest, is_top = _gaps(logits)
    return gaps - rest.log1p(), torch.where(is_top, rest / (1.0 + rest), 1.0 - gaps.exp() / (1.0 + rest))


def entropy(logits: Tensor) -> Tensor:
    """−Σ_c p_c log p_c."""
    log_p = log_probabilities(logits)
    return -(log_p.exp() * log_p).sum(-1)


def divergence(log_q: Tensor, log_p: Tensor) -> Tensor:
    """KL(q‖p) = Σ_c q_c log(q_c/p_c) over the last dimension."""
    d = log_q - log_p
    # d + exp(−d) − 1 = d²(1/2! − d/3! + d²/4! − …): eleven terms are exact to the last digit for |d| < 0.1.
    near = torch.full_like(d, 1.0 / math.factorial(12))
    for k in range(11, 1, -1):
        near = 1.0 / math.factorial(k) - d * near
    q = log_q.exp()
    # Farther away exp(−d) may overflow where q·exp(−d) = p does not.
    return torch.where(d.abs() < 0.1, q * d.square() * near, q * d + log_p.exp() - q).sum(-1)


def mutual_information(logits: Tensor) -> Tensor:
    """Mutual information of the class and the draw, from logits [S, N, C]; 0 when all draws agree."""
    log_p = log_probabilities(logits)
    log_mean = log_p.logsumexp(0) - math.log(len(log_p))
    return divergence(log_p, log_mean).mean(0)
