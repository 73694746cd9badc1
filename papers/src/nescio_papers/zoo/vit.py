"""A small vision transformer (Dosovitskiy et al. 2021), pre-norm:

x ↦ x + Attention(LN(x)),  x ↦ x + MLP(LN(x)),  logits = W LN(x)[class token]

Patches are embedded by a strided convolution. The class token and the position embedding are plain parameters,
used by arithmetic alone: no module's hook ever sees them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nescio.training.seeding import seeded
from nescio.types import InputError


class Layer(nn.Module):
    """One pre-norm transformer layer on tokens [N, T, width]."""

    def __init__(self, width: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, ratio * width), nn.GELU(), nn.Linear(ratio * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens after attention and MLP."""
        inner = self.norm1(x)
        x = x + self.attention(inner, inner, inner, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class SmallViT(nn.Module):
    """A vision transformer that returns logits; `size` must be a multiple of `patch`, `width` of `heads`."""

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        size: int = 32,
        patch: int = 4,
        width: int = 192,
        depth: int = 6,
        heads: int = 3,
        ratio: int = 4,
    ) -> None:
        super().__init__()
        if size % patch:
            raise InputError(f"expected a picture size that is a multiple of the patch, but got {size} and {patch}")
        if width % heads:
            raise InputError(f"expected a width that is a multiple of the heads, but got {width} and {heads}")
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, (size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(Layer(width, heads, ratio) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.position, std=0.02)
        nn.init.trunc_normal_(self.token, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [N, classes] of pictures [N, channels, size, size]."""
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], dim=1) + self.position
        return self.head(self.norm(self.layers(tokens))[:, 0])


def small_vit(
    classes: int = 10,
    channels: int = 3,
    size: int = 32,
    patch: int = 4,
    width: int = 192,
    depth: int = 6,
    heads: int = 3,
    seed: int | None = None,
) -> SmallViT:
    """Build the transformer with random weights.

    Args:
        classes: Number of classes.
        channels: Channels of a picture.
        size: Pixels of a side, a multiple of `patch`.
        patch: Pixels of a patch's side.
        width: Numbers of a token, a multiple of `heads`.
        depth: Number of layers.
        heads: Heads of the attention.
        seed: Seed of the weights; None draws them from torch's global generator.

    >>> small_vit(10, width=12, depth=1, seed=0)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    with seeded(seed):
        return SmallViT(classes, channels, size, patch, width, depth, heads)
