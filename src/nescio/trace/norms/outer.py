"""Gradients that are sums of outer products over positions, ``g = Σ_t d_t ⊗ a_t``: those of matrices and filters.

The L2 norm is taken either from ``g`` itself (cost K·G·T·O·I) or, without ever forming ``g``, from Gram matrices over
positions, ``‖g‖² = Σ_{t,s} ⟨d_t, d_s⟩ ⟨a_t, a_s⟩`` (cost G·T²·(I + K·O)): the cheaper one by count. With one position
that is ``‖d‖ ‖a‖``. Never as ``⟨d (aaᵀ), d⟩``: that loses digits in TF32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nescio.trace.norms.power_sum import power_sum
from nescio.trace.runtime.gpu import kernels

SLICE_BYTES = {"cpu": 1 << 23, "cuda": 1 << 28, "meta": 1 << 28}
"""Largest block of explicit gradients formed at once: what stays in the cache of a CPU, what fills a GPU. On "meta" it
is only asked what a GPU would do (`kernels_ahead`).
"""
TILE = 128
"""Features that fill a tile of a product on a GPU."""
FEW = 64
"""Positions up to which Gram matrices are written down on a GPU: small ones cost little."""


@dataclass(frozen=True)
class Outer:
    """Hold a gradient ``Σ_t d_t ⊗ a_t`` that need not be formed.

    Args:
        a: What came into the operation, [N, G, T, I].
        d: What arrives from the cotangents, [K, N, G, T, O].

    Examples:
        >>> Outer(torch.ones(1, 1, 2, 3), torch.ones(1, 1, 1, 2, 4)).power(2)  # 3 · 4 entries, each 2
        tensor([[48.]])
    """

    a: Tensor
    d: Tensor

    def power(self, p: int) -> Tensor:
        """Compute ``Σ|g|^p`` by the cheaper of the two ways.

        Args:
            p: 1 or 2.

        Returns:
            The sums for each cotangent and input, ``[K, N]``.
        """
        k, _, _, t, o = self.d.shape
        i = self.a.shape[-1]
        if t == 1:
            return (power_sum(self.d, p, 3) * power_sum(self.a, p, 2)).sum(2)
        if p == 2 and t * (i + k * o) < k * o * i:
            return self._gram().clamp(min=0)  # round-off may bring a tiny norm below zero
        return self._explicit(p)

    def merge(self, copies: int) -> Outer:
        """Sum the gradients of ``copies`` adjacent inputs: their positions are more positions of one gradient.

        Args:
            copies: How many inputs belong together.

        Returns:
            The sums.
        """
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
        k, n, g, _, o = self.d.shape
        i = self.a.shape[-1]
        fold = 1 if self.a.device.type == "cpu" else k
        width = max(1, SLICE_BYTES.get(self.a.device.type, 1 << 26) // (fold * g * o * i * self.a.element_size()))
        if fold > 1 and width >= n and i < o and o >= TILE:
            return self._with_a_repeated(p)
        return self._in_slices(p, width, fold)

    def _in_slices(self, p: int, width: int, fold: int) -> Tensor:
        """``width`` inputs and ``fold`` cotangents in each product."""
        k, n, g, t, o = self.d.shape
        i = self.a.shape[-1]
        out = self.d.new_empty((k, n), dtype=torch.promote_types(self.d.dtype, torch.float32))
        for s in range(0, n, width):
            a = self.a[s : s + width].reshape(-1, t, i)
            for c in range(0, k, fold):
                d = self.d[c : c + fold, s : s + width]
                module = kernels(d) if d.stride(4) == 1 else None
                if module is not None:
                    d = module.turned(d).mT
                elif d.stride(4) == 1:  # features are adjacent in memory: whole rows are moved
                    d = d.permute(1, 2, 3, 0, 4).reshape(len(a), t, fold * o).mT
                else:
                    d = d.permute(1, 2, 0, 4, 3).reshape(len(a), fold * o, t)
                grad = _product(d, a).view(-1, g, fold, o * i)
                out[c : c + fold, s : s + width] = power_sum(grad, p, 3).sum(1).T
        return out

    def _with_a_repeated(self, p: int) -> Tensor:
        """A product for each cotangent and input: ``d`` is read where it lies, and ``a``, which is narrower, copied."""
        k, n, _, t, o = self.d.shape
        a = self.a.expand(k, *self.a.shape).reshape(-1, t, self.a.shape[-1])
        d = self.d.reshape(-1, t, o).mT if self.d.stride(4) == 1 else self.d.mT.reshape(-1, o, t)
        return power_sum(_product(d, a).view(k, n, -1), p)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A batch of matrix products, with float32 or better for what comes out."""
    if a.dtype != torch.bfloat16:
        return torch.bmm(a, b)
    try:
        return torch.bmm(a, b, out_dtype=torch.float32)
    except (TypeError, RuntimeError):  # PyTorch before 2.8
        return torch.bmm(a.float(), b.float())
