"""Cotangents at the logits: what is pulled back to give the gradient of a log-probability.

``∂ log p_c/∂θ = Jᵀ(e_c − p)``. For a confident input e_c − p is tiny for the likely class and would drown in the
round-off of the backward pass, so what is pulled back has unit scale, ``u_c = (e_c − p)/(1 − p_c)``, that is 1 at c
and ``−softmax`` of the *other* logits elsewhere, and the norm is multiplied by ``1 − p_c = exp(lse_{k≠c} z_k − lse
z)`` afterwards. All of it is worked out in float64 at the logits.

With noisy copies s = 0 … S of an input (s = 0 is the input itself) the gradient is averaged before the norm: ``Σ_s
w_s ∂ log p_c(x_s)`` with ``w_s = 1/(S+1)`` (``smoothing="log"``, Eq. 13: the gradient of the mean log-probability) or
``w_s = p_c(x_s)/Σ_s' p_c(x_s')`` (``"mean"``: the gradient of the log of the mean probability).

Rows: ``classes`` one row a class; ``uniform`` the one row ``Jᵀ(1/C − p)``; ``expected`` the one row ``Σ_c p_c ∂ log
p_c`` with p taken at the input itself. Without copies that last row is zero in exact arithmetic; it is worked out by
autograd in the model's own precision as the papers did, so that what comes out is their round-off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Smoothing = Literal["log", "mean"]
ROWS = ("classes", "uniform", "expected")


@dataclass(frozen=True)
class Cotangents:
    """``vectors`` [K, B, C] to pull back (B = inputs × copies) and the ``scale`` [K, N] that multiplies the norm of
    what comes out.
    """

    vectors: Tensor
    scale: Tensor

    def split(self, at_once: int | None) -> Iterator[Cotangents]:
        """The same in blocks of at most ``at_once`` rows; None: all in one."""
        step = at_once or len(self.vectors)
        for start in range(0, len(self.vectors), step):
            yield Cotangents(self.vectors[start : start + step], self.scale[start : start + step])


def row_count(row: str, classes: int) -> int:
    """How many cotangents a kind of row has."""
    return classes if row == "classes" else 1


def build(
    row: str,
    logits: Tensor,
    copies: int,
    smoothing: Smoothing,
    classes: slice | Tensor = slice(None),
    p: Tensor | None = None,
) -> Cotangents:
    """The cotangents of one kind of row for logits [N·copies, C].

    ``classes`` picks some of the rows of ``classes``: a slice, or for each input its own, [K, N]. ``p`` [N, C] are the
    probabilities of the inputs themselves; None: the first of its copies is the input.
    """
    z = logits.detach()
    if row == "classes":
        if isinstance(classes, slice):
            classes = torch.arange(z.shape[1], device=z.device)[classes].unsqueeze(1).expand(-1, len(z) // copies)
        return _classes(z.double(), copies, smoothing, classes.repeat_interleave(copies, 1))
    if row == "uniform":
        return _one(z.double(), copies, smoothing, torch.full_like(z[::copies], 1 / z.shape[1], dtype=torch.float64))
    if row == "expected":
        return _one(z, copies, smoothing, z[::copies].softmax(1) if p is None else p.to(z.dtype))
    raise ValueError(f"expected rows from {', '.join(ROWS)}; got {row!r}")


def blocks(
    row: str, logits: Tensor, copies: int, smoothing: Smoothing, p: Tensor | None = None, at_once: int | None = None
) -> Iterator[Cotangents]:
    """All cotangents of one kind of row, at most ``at_once`` of them at a time; the rest is as in `build`."""
    total = row_count(row, logits.shape[1])
    step = at_once or total
    for start in range(0, total, step):
        yield build(row, logits, copies, smoothing, slice(start, start + step), p)


def shares(logits: Tensor, copies: int, smoothing: Smoothing) -> Tensor:
    """The share of each copy in the mean: [N, copies, 1], or [N, copies, C] where classes differ in it."""
    z = logits.detach().double()
    if smoothing == "mean":
        return z.log_softmax(1).unflatten(0, (-1, copies)).softmax(1)
    return z.new_full((len(z) // copies, copies, 1), 1 / copies)


def _classes(z: Tensor, copies: int, smoothing: Smoothing, classes: Tensor) -> Cotangents:
    """Unit-scale rows ``u_c`` of every copy, weighted relative to the heaviest copy, whose weight becomes the scale."""
    others = z.expand(len(classes), *z.shape).clone()
    at = classes.unsqueeze(2)
    others.scatter_(2, at, -torch.inf)
    rest = others.logsumexp(2)
    vectors = others.sub_(rest.unsqueeze(2)).exp_().neg_().scatter_(2, at, 1.0)
    total = z.logsumexp(1)
    weight = (rest - total).unflatten(1, (-1, copies))
    if smoothing == "mean":
        weight = weight + (z.gather(1, classes.T).T - total).unflatten(1, (-1, copies)).log_softmax(2)
    else:
        weight = weight - math.log(copies)
    heaviest = weight.amax(2, keepdim=True)
    relative = torch.where(heaviest.isinf(), 0.0, (weight - heaviest).exp())
    return Cotangents(vectors * relative.flatten(1).unsqueeze(2), heaviest.squeeze(2).exp())


def _one(z: Tensor, copies: int, smoothing: Smoothing, weights: Tensor) -> Cotangents:
    """``Σ_c weights_c ℓ_c`` by autograd, ℓ_c the mean log-probability (or the log of the mean probability)."""
    z = z.clone().requires_grad_()
    with torch.enable_grad():
        log_p = z.log_softmax(1).unflatten(0, (-1, copies))
        smooth = log_p.mean(1) if smoothing == "log" else log_p.logsumexp(1) - math.log(copies)
        (v,) = torch.autograd.grad((weights * smooth).sum(), z)
    v = v.double().unflatten(0, (-1, copies))
    size = v.abs().amax((1, 2), keepdim=True)
    unit = torch.where(size > 0, v / size, 0.0)
    return Cotangents(unit.flatten(0, 1).unsqueeze(0), size.view(1, -1))
