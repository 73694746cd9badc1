"""Small networks that answer at every position."""

import torch
from torch import Tensor, nn


class UNet(nn.Module):
    """Down once, up once, with a bridge, and a head of 1×1 or larger."""

    def __init__(self, classes: int = 4, width: int = 6, head: int = 1, bias: bool = True) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Dropout(0.3))
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.head = nn.Conv2d(2 * width, classes, head, padding=head // 2, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.down(x)
        return self.head(torch.cat([wide, self.up(self.deep(wide))], 1))


class Upsampled(nn.Module):
    """A head at a quarter of the resolution, whose logits are made larger."""

    def __init__(self, classes: int = 4, width: int = 5, align: bool = False, mode: str = "bilinear") -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, width, 3, stride=4, padding=1), nn.Tanh())
        self.head = nn.Conv2d(width, classes, 1)
        self.mode, self.align = mode, align

    def forward(self, x: Tensor) -> Tensor:
        align = None if self.mode == "nearest" else self.align
        z = self.head(self.body(x))
        return nn.functional.interpolate(z, x.shape[-2:], mode=self.mode, align_corners=align)


class Tagger(nn.Module):
    """Token by token: embedding, a recurrent layer, a linear head; logits [N, T, C]."""

    def __init__(self, classes: int = 5, width: int = 6) -> None:
        super().__init__()
        self.table = nn.Embedding(20, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.recurrent(self.table(x))[0])
