"""What makes logits larger behind the last layer: a resize that is linear, and the same for rows and columns apart.

    z = A o Bᵀ for each class,   A [H, h] and B [W, w] the weights that torch.nn.functional.interpolate uses

A and B are read off by resizing unit vectors, so they are those of torch to the last digit, whatever the mode. Lengths
of resized features come without resizing them:

    ‖Σ_s w_qs a_s‖² = Σ_{s,s'} w_qs w_qs' ⟨a_s, a_s'⟩

and since a weight reaches over a few neighbours alone (two for bilinear, four for bicubic), only the products of
neighbours are needed: for each step (dy, dx) between them one map G of products at the low resolution, and

    Σ_steps (A_0 ⊙ A_dy) G (B_0 ⊙ B_dx)ᵀ        A_dy: the columns of A, moved by dy
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_NUMBERS = 2**22  # of features that are multiplied at a time
MODES = (
    ("bilinear", False),
    ("bilinear", True),
    ("nearest", None),
    ("bicubic", False),
    ("bicubic", True),
    ("nearest-exact", None),
)
"""What a resize may be."""


@dataclass(frozen=True)
class Resize:
    """How a map ``[h, w]`` becomes one of `size`: a mode of `interpolate`, and whether corners are aligned."""

    size: tuple[int, int]
    mode: str
    align: bool | None

    def __call__(self, value: Tensor) -> Tensor:
        """Resize a map ``[N, C, h, w]``."""
        return F.interpolate(value, self.size, mode=self.mode, align_corners=self.align)

    def weights(self, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return A ``[H, h]`` and B ``[W, w]``, float64."""
        down = torch.eye(height, dtype=torch.float64, device=device)[None, :, :, None]
        over = torch.eye(width, dtype=torch.float64, device=device)[None, :, None, :]
        tall = F.interpolate(down, (self.size[0], 1), mode=self.mode, align_corners=self.align)
        wide = F.interpolate(over, (1, self.size[1]), mode=self.mode, align_corners=self.align)
        return tall[0, :, :, 0].T.contiguous(), wide[0, :, 0].T.contiguous()

    def squares(self, a: Tensor) -> Tensor:
        """Return the squared lengths of resized features ``[N, D, h, w]``, float64 ``[N, H, W]``."""
        tall, wide = self.weights(a.shape[2], a.shape[3], a.device)
        lefts, rows = [], []
        down, over = list(_moved(tall)), list(_moved(wide))
        # each pair of neighbours once, and twice in the sum
        steps = [(dy, step) for dy, _ in down for dx, _ in over for step in ({dx, -dx} if dy else {dx})]
        products = _products(a, steps)
        for dy, left in down:
            row = a.new_zeros((len(a), left.shape[1], self.size[1]), dtype=torch.float64)
            for dx, right in over:
                for step in {dx, -dx} if dy else {dx}:
                    row += (1.0 if dy == dx == 0 else 2.0) * (products[dy, step] @ right.mT)
            lefts.append(left)
            rows.append(row)
        return (torch.cat(lefts, 1) @ torch.cat(rows, 1)).clamp_(min=0.0)  # one product of the full size

    def sizes(self, a: Tensor) -> Tensor:
        """Return the sums of the absolute values of resized features ``[N, D, h, w]``, float64 ``[N, H, W]``."""
        tall, wide = self.weights(a.shape[2], a.shape[3], a.device)
        result = a.new_zeros((len(a), *self.size), dtype=torch.float64)
        for part in a.split(max(1, _NUMBERS // max(1, len(a) * self.size[0] * self.size[1])), 1):
            result += (tall @ part.double() @ wide.mT).abs_().sum(1)
        return result

    def ones(self, a: Tensor) -> Tensor:
        """Return what a map of ones becomes, float64 ``[H, W]``: the weights that each position adds up."""
        tall, wide = self.weights(a.shape[2], a.shape[3], a.device)
        return tall.sum(1)[:, None] * wide.sum(1)


def _moved(weights: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each step d ≥ 0 between two neighbours that one weight reaches, with the products of their weights [H, h − d]."""
    for step in range(weights.shape[1]):
        products = weights[:, : weights.shape[1] - step] * weights[:, step:]
        if step and not products.count_nonzero():
            return
        yield step, products


def _products(a: Tensor, steps: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Tensor]:
    """⟨a_s, a_{s + (dy, dx)}⟩ over the channels for each step, float64 [N, h − dy, w − |dx|]; a few channels at a time.

    Columns are counted from the left one of the two.
    """
    height, width = a.shape[2:]
    sums = {(dy, dx): a.new_zeros((len(a), height - dy, width - abs(dx)), dtype=torch.float64) for dy, dx in steps}
    for part in a.split(max(1, _NUMBERS // max(1, len(a) * height * width)), 1):
        part = part.double()
        for (dy, dx), own in sums.items():
            left, right = max(0, -dx), max(0, dx)
            first = part[:, :, : height - dy, left : width - right]
            own += (first * part[:, :, dy:, right : width - left]).sum(1)
    return sums
