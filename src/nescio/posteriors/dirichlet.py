"""The Dirichlet distribution Dir(α) over class probabilities, α ≥ 1 here: its doubts in closed form, and samples.

With α₀ = Σ_c α_c, p̄ = α/α₀, ψ the digamma function and f(a) = ψ(a + 1) − log a, which falls in a:

    aleatoric  E H(p)       = Σ_c p̄_c (ψ(α₀ + 1) − ψ(α_c + 1))
    epistemic  MI           = Σ_c p̄_c (f(α_c) − f(α₀))  ≥ 0     total  H(p̄) = their sum
    variance   Σ_c Var p_c  = Σ_c p̄_c (1 − p̄_c)/(α₀ + 1)
    bregman    −log Σ_c exp(E log p_c),   E log p_c = ψ(α_c) − ψ(α₀)
    KL(Dir(α)‖Dir(1)) = log Γ(α₀) − log Γ(C) − Σ_c log Γ(α_c) + Σ_c (α_c − 1)(ψ(α_c) − ψ(α₀))

Samples are gammas divided by their sum, g_c = d v with d = α_c − ⅓, v = (1 + z/√(9d))³ (Marsaglia and Tsang 2000) for
the first of a row of normals z that is accepted: log u < z²/2 + d(1 − v + log v). z and u do not depend on α, so that
all inputs share them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nescio.types import Decomposition

TRIES = 16
"""A try is accepted with a probability of at least 0.95 for α ≥ 1: all of these fail once in 10²⁰."""


def decomposed(alpha: Tensor) -> Decomposition:
    """The kinds of doubt of Dir(α), α float64 [N, C]."""
    alpha = alpha.double()
    whole = alpha.sum(-1, keepdim=True)
    mean = alpha / whole
    aleatoric = (mean * (torch.digamma(whole + 1) - torch.digamma(alpha + 1))).sum(-1)
    epistemic = (mean * (_excess(alpha) - _excess(whole)).clamp(min=0)).sum(-1)
    top = alpha.argmax(-1, keepdim=True)
    others = alpha.scatter(-1, top, 0.0).sum(-1)  # not 1 − p̄, which loses its digits near 1
    expected_log = torch.digamma(alpha) - torch.digamma(whole)
    return Decomposition(
        total=aleatoric + epistemic,
        aleatoric=aleatoric,
        epistemic=epistemic,
        variance=(mean * ((whole - alpha) / whole) / (whole + 1)).sum(-1),
        max_probability=others / whole.squeeze(-1),
        bregman=-expected_log.logsumexp(-1),
    )


def _excess(a: Tensor) -> Tensor:
    """ψ(a + 1) − log a; for large a by its series, where the difference would lose its digits."""
    r = 1 / a.clamp(min=30.0).square()
    series = 0.5 / a - r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r / 132))))
    return torch.where(a < 30.0, torch.digamma(a + 1) - a.log(), series)


def divergence_from_flat(alpha: Tensor) -> Tensor:
    """KL(Dir(α)‖Dir(1)) over the last dimension."""
    whole, classes = alpha.sum(-1), torch.tensor(float(alpha.shape[-1]), dtype=alpha.dtype, device=alpha.device)
    normal = torch.lgamma(whole) - torch.lgamma(classes) - torch.lgamma(alpha).sum(-1)
    return normal + ((alpha - 1) * (torch.digamma(alpha) - torch.digamma(whole).unsqueeze(-1))).sum(-1)


def sampled(alpha: Tensor, samples: int, seed: int) -> Tensor:
    """Log-probabilities of so many samples of Dir(α), float64 [S, N, C]; α float64 [N, C], at least 1."""
    classes = alpha.shape[-1]
    random = torch.Generator().manual_seed(seed)
    shape = (TRIES, samples, 1, classes)
    normals = torch.randn(shape, generator=random, dtype=torch.float64)
    log_uniforms = torch.rand(shape, generator=random, dtype=torch.float64).log()
    d = (alpha.double().cpu() - 1 / 3).unsqueeze(0)
    gamma = d.expand(samples, -1, -1).clone()
    waiting = torch.ones_like(gamma, dtype=torch.bool)
    for z, log_u in zip(normals, log_uniforms, strict=True):
        v = (1 + z / (9 * d).sqrt()) ** 3
        accepted = waiting & (v > 0) & (log_u < z.square() / 2 + d * (1 - v + v.clamp(min=1e-300).log()))
        gamma = torch.where(accepted, d * v, gamma)
        waiting &= ~accepted
        if not bool(waiting.any()):
            break
    log_gamma = gamma.log()
    return log_gamma - log_gamma.logsumexp(-1, keepdim=True)
