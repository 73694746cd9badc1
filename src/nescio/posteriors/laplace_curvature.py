"""The curvature of the loss in the last layer, summed over data and decomposed, from which a Gaussian posterior comes.

With features h ∈ R^d, h̃ = (h, 1) where the layer has a bias, probabilities p and Λ = diag(p) − p pᵀ, the generalised
Gauss–Newton matrix of −Σ_n log p_n in the layer's parameters, and what stands for it, is

    full  H = Σ_n Λ_n ⊗ h̃_n h̃_nᵀ
    kron  H = B ⊗ A for the weights and B for the bias,  B = Σ_n Λ_n,  A = (1/N) Σ_n h_n h_nᵀ
    diag  the diagonal of the full one, Σ_n p_n(1 − p_n) h̃_n²

Each is T diag(v) Tᵀ with an orthogonal T, so that for every prior precision δ the posterior N(θ, (H + δ)⁻¹) has

    covariance  T diag(1/(v + δ)) Tᵀ,    draws  θ + T diag(v + δ)^(−1/2) Tᵀ ε,    log det(H + δ) = Σ log(v + δ)

All three are functions of H alone. Round-off decides the signs of T's columns and how those of equal values are
rotated, and the symmetric root, unlike T diag(v + δ)^(−1/2), is the same for each of them.

Parameters are laid out as [O, D]: a row for each output, the bias as the last column. For kron T = Q_B ⊗ (Q_A, 1),
which acts on outputs and on features apart, and for diag T = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["full", "kron", "diag"]

_FULL = 2500  # parameters up to which the full matrix is kept: 50 MB, and seconds to decompose
_FACTOR = 4096  # rows of a Kronecker factor up to which it is decomposed
_ELEMENTS = 2**22  # of an intermediate result at once


def most_exact_kind(outputs: int, width: int) -> Kind:
    """The most exact kind that a layer of this size allows; width counts the bias."""
    if outputs * width <= _FULL:
        return "full"
    return "kron" if max(outputs, width) <= _FACTOR else "diag"


class Sums:
    """The sums over the data, batch by batch in float64."""

    def __init__(self, kind: Kind, outputs: int, width: int, bias: bool) -> None:
        self.kind, self.outputs, self.bias, self.count = kind, outputs, bias, 0
        shapes: dict[Kind, list[tuple[int, ...]]] = {
            "full": [(outputs, width, outputs, width)],
            "kron": [(outputs, outputs), (width, width)],
            "diag": [(outputs, width)],
        }
        self.parts = [torch.zeros(shape, dtype=torch.float64) for shape in shapes[kind]]

    def add(self, h: Tensor, p: Tensor, rest: Tensor) -> None:
        """A batch: features with their 1, ``[N, D]``; p and 1 − p of the outputs, ``[N, O]``."""
        self.count += len(h)
        first = self.parts[0]
        if self.kind == "diag":
            first += (p * rest).T @ h.square()
        elif self.kind == "kron":
            first -= (p.T @ p).fill_diagonal_(0.0)
            first.diagonal().add_((p * rest).sum(0))
            self.parts[1] += h.T @ h
        else:
            outputs, width = first.shape[:2]
            most = max(1, _ELEMENTS // (outputs * width))
            for start in range(0, len(h), most):
                part, q = h[start : start + most], p[start : start + most]
                for row in range(outputs):  # the blocks on and after the diagonal, for Λ is symmetric
                    curvature = -q[:, row, None] * q[:, row:]
                    curvature[:, 0] = q[:, row] * rest[start : start + most, row]
                    weighted = (curvature[:, :, None] * part[:, None]).flatten(1)
                    first[row, :, row:] += (part.T @ weighted).view(width, outputs - row, width)

    def decomposed(self) -> Curvature:
        """T and v of the sum."""
        first = self.parts[0]
        if self.kind == "diag":
            return Curvature(first)
        if self.kind == "kron":
            outer_values, outer = _eigen(first)
            inputs = self.parts[1] / max(1, self.count)
            width = len(inputs)
            inner_values, inner = torch.ones(width, dtype=torch.float64), torch.eye(width, dtype=torch.float64)
            d = width - self.bias
            inner_values[:d], inner[:d, :d] = _eigen(inputs[:d, :d])
            return Curvature(torch.outer(outer_values, inner_values), inner=inner, outer=outer)
        outputs, width = first.shape[:2]
        matrix = first.clone()
        for row in range(outputs):
            for column in range(row):
                matrix[row, :, column] = first[column, :, row].T
        values, joint = _eigen(matrix.view(outputs * width, -1))
        return Curvature(values.view(outputs, width), joint=joint)


@dataclass(frozen=True)
class Curvature:
    """H = T diag(v) Tᵀ: values v ``[O, D]``, and T as `joint` ``[O·D, O·D]``, or as `outer` ⊗ `inner`; None is 1."""

    values: Tensor
    inner: Tensor | None = None
    outer: Tensor | None = None
    joint: Tensor | None = None

    def log_det_ratio(self, precision: float) -> float:
        """Log det(H + δ) − log det δ."""
        return float((self.values / precision).log1p().sum())

    def evidence_precision(self, square_norm: float) -> float:
        """The δ that maximises −½ log det(H/δ + 1) − ½ δ‖θ‖², which is the root of Σ v/(v + δ) = δ‖θ‖².

        The left side falls with δ and the right side rises, so there is one root, and halving an interval finds it.
        """
        low, high = -30.0, 30.0  # of log δ
        for _ in range(60):
            middle = (low + high) / 2
            delta = torch.tensor(middle, dtype=torch.float64).exp()
            if float((self.values / (self.values + delta)).sum()) > float(delta) * square_norm:
                low = middle
            else:
                high = middle
        return float(torch.tensor((low + high) / 2, dtype=torch.float64).exp())

    def weights(self, noise: Tensor, precision: float) -> Tensor:
        """Draws about the mean from standard normal noise ``[S, O, D]``, for `shift`; for kron as coordinates in T."""
        root = (self.values + precision).rsqrt()
        if self.joint is not None:
            return ((noise.flatten(1) @ self.joint * root.flatten()) @ self.joint.T).view_as(noise)
        turned = noise if self.inner is None else noise @ self.inner
        return (turned if self.outer is None else self.outer.T @ turned) * root

    def shift(self, h: Tensor, weights: Tensor) -> Tensor:
        """By how much such draws move the outputs at features ``[N, D]``: ``[S, N, O]``."""
        draws, outputs, width = weights.shape
        h = h if self.inner is None else h @ self.inner
        moved = (h @ weights.view(draws * outputs, width).T).view(len(h), draws, outputs).transpose(0, 1)
        return moved if self.outer is None else moved @ self.outer.T

    def variance(self, h: Tensor, precisions: Tensor) -> Tensor:
        """The variance of each output at features ``[N, D]`` for each of K precisions: ``[K, N, O]``."""
        if self.joint is None:
            square = (h if self.inner is None else h @ self.inner).square()
            variance = torch.stack([square @ (self.values + delta).reciprocal().T for delta in precisions])
            return variance if self.outer is None else variance @ self.outer.T.square()
        outputs, width = self.values.shape
        inverse = (self.values.reshape(-1, 1) + precisions).reciprocal()
        basis = self.joint.view(outputs, width, -1)
        most = max(1, _ELEMENTS // self.joint.shape[0] // outputs)
        parts = [torch.einsum("nd,odp->nop", part, basis).square() @ inverse for part in h.split(most)]
        return torch.cat(parts).permute(2, 0, 1)

    def covariance(self, precision: float, bias: bool) -> Tensor:
        """(H + δ)⁻¹ in the order of PyTorch's parameters: the weights row by row, then the bias."""
        outputs, width = self.values.shape
        basis = self.joint
        if basis is None:
            outer = torch.eye(outputs, dtype=torch.float64) if self.outer is None else self.outer
            inner = torch.eye(width, dtype=torch.float64) if self.inner is None else self.inner
            basis = torch.kron(outer, inner)
        covariance = (basis / (self.values.flatten() + precision)) @ basis.T
        place = torch.arange(outputs * width).view(outputs, width)
        order = torch.cat([place[:, :-1].flatten(), place[:, -1]]) if bias else place.flatten()
        return covariance[order][:, order]


def lowest(grid: Tensor, loss: Tensor) -> float:
    """Where the loss is lowest on an even grid of log δ: the vertex of the parabola through the lowest three points.

    Unlike the grid's own lowest point it does not jump where round-off decides between two neighbours.
    """
    best = int(loss.argmin())
    place = float(grid[best].log())
    if 0 < best < len(grid) - 1:
        before, least, after = loss[best - 1 : best + 2].tolist()
        bend = (before - least) + (after - least)
        place += 0.5 * (before - after) / bend * float(grid[best + 1].log() - grid[best].log()) if bend > 0 else 0.0
    return math.exp(place)


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors of a matrix that has none below zero but by round-off."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return values.clamp(min=0.0), vectors.contiguous()
