"""The three normal forms of a per-input gradient, and their norms.

Every rule ends in one of these. ``K`` is the number of cotangents (classes), ``N`` of inputs, ``T`` of positions that
share the parameter (pixels, tokens, time steps, noisy copies), ``G`` of groups.

* `Outer`: the gradient is a sum of outer products over positions, ``g[k,n,g] = Σ_t d[k,n,g,t] ⊗ a[n,g,t]`` with
  ``a`` [N, G, T, I] and ``d`` [K, N, G, T, O]. Its L2 norm is taken either from ``g`` itself (cost K·G·T·O·I) or,
  without ever forming ``g``, from Gram matrices over positions, ``‖g‖² = Σ_{t,s} ⟨d_t, d_s⟩ ⟨a_t, a_s⟩`` (cost
  G·T²·(I + K·O)): the cheaper one by count. With one position that is ``‖d‖ ‖a‖``. Never as ``⟨d (aaᵀ), d⟩``: that
  loses digits in TF32.
* `Local`: the gradient is small enough to be written down, ``g`` [K, N, F] (biases, affine parameters of norms, …).
* `Rows`: the gradient of a table, zero but in the rows that an input looked up, ``g[k,n,r] = Σ_{t: at[n,t] = r}
  d[k,n,t]``; only those rows are formed.

``power(p)`` is ``Σ|g|^p`` [K, N] (p = 1 or 2), in float64; ``merge`` and `join` add gradients up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.trace.backward.pull import kernels

SLICE_BYTES = {"cpu": 1 << 23, "cuda": 1 << 28}
"""Largest block of explicit gradients formed at once: what stays in the cache of a CPU, what fills a GPU."""
FEW = 64
"""Positions up to which Gram matrices are written down on a GPU: small ones cost little."""


@dataclass(frozen=True)
class Local:
    """A gradient that is written down: ``g`` [K, N, F]."""

    g: Tensor

    def power(self, p: int) -> Tensor:
        """``Σ|g|^p`` for each cotangent and input, [K, N]."""
        return _reduce(self.g, p).double()

    def merge(self, copies: int) -> Local:
        """Sum the gradients of ``copies`` adjacent inputs."""
        return self if copies == 1 else Local(self.g.unflatten(1, (-1, copies)).sum(2))


@dataclass(frozen=True)
class Outer:
    """A gradient ``Σ_t d_t ⊗ a_t`` that need not be formed: ``a`` [N, G, T, I], ``d`` [K, N, G, T, O]."""

    a: Tensor
    d: Tensor

    def power(self, p: int) -> Tensor:
        """``Σ|g|^p`` for each cotangent and input, [K, N], by the cheaper of the two ways."""
        k, _, _, t, o = self.d.shape
        i = self.a.shape[-1]
        if t == 1:
            return (_reduce(self.d, p, 3) * _reduce(self.a, p, 2)).sum(2).double()
        if p == 2 and t * (i + k * o) < k * o * i:
            return self._gram().clamp(min=0).double()  # round-off may bring a tiny norm below zero
        return self._explicit(p)

    def merge(self, copies: int) -> Outer:
        """Sum the gradients of ``copies`` adjacent inputs: their positions are more positions of one gradient."""
        if copies == 1:
            return self
        a = self.a.unflatten(0, (-1, copies)).movedim(1, 2).flatten(2, 3)
        return Outer(a, self.d.unflatten(1, (-1, copies)).movedim(2, 3).flatten(3, 4))

    def _gram(self) -> Tensor:
        """``⟨d dᵀ, a aᵀ⟩``; ``d`` is read where it lies, by a kernel, or a cotangent at a time unless all of it is in
        one piece.
        """
        k, n, g, t, o = self.d.shape
        a = self.a.reshape(n * g, t, self.a.shape[-1])
        gram = _product(a, a.mT)
        whole = self.d.is_contiguous() or self.d.mT.is_contiguous()
        module = kernels(self.d, gram) if self.d.stride(4) == 1 else None
        if module is not None and (t > FEW or not whole):
            return module.contracted(self.d, gram)
        if whole:
            d = self.d.flatten(0, 2)
            grams = _product(d, d.mT).view(k, n, g * t * t)
            return torch.bmm(grams.movedim(0, 1), gram.view(n, g * t * t, 1)).squeeze(2).T  # reads grams once
        rows = (row.reshape(n * g, t, o) for row in self.d)
        return torch.stack([(_product(d, d.mT) * gram).view(n, g * t * t).sum(1) for d in rows])

    def _explicit(self, p: int) -> Tensor:
        """A slice of inputs at a time, so that ``g`` stays small; on a GPU all cotangents in one product, on a CPU
        one after another.
        """
        k, n, g, t, o = self.d.shape
        i = self.a.shape[-1]
        fold = k if self.a.is_cuda else 1
        width = max(1, SLICE_BYTES.get(self.a.device.type, 1 << 26) // (fold * g * o * i * self.a.element_size()))
        out = self.d.new_empty((k, n), dtype=torch.promote_types(self.d.dtype, torch.float32))
        for s in range(0, n, width):
            a = self.a[s : s + width].reshape(-1, t, i)
            for c in range(0, k, fold):
                d = self.d[c : c + fold, s : s + width]
                if d.stride(4) == 1:  # features are adjacent in memory: whole rows are moved
                    d = d.permute(1, 2, 3, 0, 4).reshape(len(a), t, fold * o).mT
                else:
                    d = d.permute(1, 2, 0, 4, 3).reshape(len(a), fold * o, t)
                grad = _product(d, a).view(-1, g, fold, o * i)
                out[c : c + fold, s : s + width] = _reduce(grad, p, 3).sum(1).T
        return out.double()


@dataclass(frozen=True)
class Rows:
    """A gradient that has ``d`` [K, N, T, O] in the rows ``at`` [N, T] of a table; equal rows add up."""

    at: Tensor
    d: Tensor

    def power(self, p: int) -> Tensor:
        """``Σ|g|^p`` for each cotangent and input, [K, N]."""
        order = self.at.argsort(1)
        ranked = self.at.gather(1, order)
        number = torch.zeros_like(ranked)  # of the row among the input's different rows
        number[:, 1:] = (ranked[:, 1:] != ranked[:, :-1]).cumsum(1)
        place = torch.zeros_like(number).scatter(1, order, number)
        g = torch.zeros_like(self.d).scatter_add(2, place.unsqueeze(-1).expand_as(self.d), self.d)
        return _reduce(g, p).double()

    def merge(self, copies: int) -> Rows:
        """Sum the gradients of ``copies`` adjacent inputs."""
        if copies == 1:
            return self
        return Rows(self.at.unflatten(0, (-1, copies)).flatten(1, 2), self.d.unflatten(1, (-1, copies)).flatten(2, 3))


Form = Local | Outer | Rows


def join(forms: Sequence[Form]) -> Form:
    """The sum of several gradients of one parameter (a module called twice, the steps of a recurrent cell)."""
    outer = [f for f in forms if isinstance(f, Outer)]
    rows = [f for f in forms if isinstance(f, Rows)]
    local = [f for f in forms if isinstance(f, Local)]
    if len(forms) == 1:
        return forms[0]
    if len(outer) == len(forms):
        return Outer(torch.cat([f.a for f in outer], 2), torch.cat([f.d for f in outer], 3))
    if len(rows) == len(forms):
        return Rows(torch.cat([f.at for f in rows], 1), torch.cat([f.d for f in rows], 2))
    assert len(local) == len(forms), "one operand has one rule, and a rule one form"
    return Local(torch.stack([f.g for f in local]).sum(0))


def _reduce(x: Tensor, p: int, start: int = 2) -> Tensor:
    """``Σ|x|^p`` over all but the first ``start`` dimensions; on a CPU (x·x).sum() keeps more digits than a norm."""
    y, kind = x.flatten(start), torch.promote_types(x.dtype, torch.float32)
    if y.is_cuda and p == 2:
        return torch.linalg.vector_norm(y, dim=-1, dtype=kind).square()
    return (y * y).sum(-1, dtype=kind) if p == 2 else y.abs().sum(-1, dtype=kind)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A batch of matrix products, with float32 or better for what comes out."""
    if a.dtype != torch.bfloat16:
        return torch.bmm(a, b)
    try:
        return torch.bmm(a, b, out_dtype=torch.float32)
    except (TypeError, RuntimeError):  # PyTorch before 2.8
        return torch.bmm(a.float(), b.float())
