"""Models of many kinds, small and with random weights, that the engine is tested on: name → (model, inputs), in
float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2

from nescio_papers import zoo

Subject = tuple[nn.Module, Any]


class GRUText(nn.Module):
    """A recurrent text classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.cell = nn.GRU(6, 5, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(self.embedding(x))[0][:, -1])


class LSTMText(nn.Module):
    """A recurrent classifier whose cell is one fused operation on a CPU: no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(6, 5, batch_first=True)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cell(x)[0][:, -1])


class EncoderText(nn.Module):
    """A transformer encoder for text, sequence first, with embeddings and learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.position = nn.Parameter(torch.randn(7, 1, 8))
        layer = nn.TransformerEncoderLayer(8, 2, 16)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(x.T) + self.position).mean(0))


class Tied(nn.Module):
    """Two layers share a weight, a third module is called twice, one layer is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Twice(nn.Module):
    """A convolution and a norm that are called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.body = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(3):
            x = x + torch.relu(self.norm(self.body(x)))
        return self.head(x.mean((2, 3)))


class Raw(nn.Module):
    """Raw parameters: a product, a gain, a mask that is learned, and an einsum that has no rule."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 5) / 2)
        self.gain = nn.Parameter(torch.randn(5))
        self.shift = nn.Parameter(torch.randn(1, 5))
        self.core = nn.Parameter(torch.randn(5, 4, 3))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(x @ self.weight) * self.gain - self.shift
        return torch.einsum("ni,ihc->nc", h, torch.sin(self.core))


class TiedEmbedding(nn.Module):
    """The embedding's table is the output layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.mix = nn.Linear(6, 6)
        self.out = nn.Linear(6, 9, bias=False)
        self.out.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.mix(self.table(x).mean(1))))


class Routed(nn.Module):
    """A mixture of experts: rows move to the expert that the data choose."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 2)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x).softmax(1)
        choice = gate.argmax(1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = (choice == i).nonzero().flatten()
            out = out.index_add(0, rows, expert(x[rows]) * gate[rows, i : i + 1])
        return self.head(torch.relu(out))


class Coupled(nn.Module):
    """Inputs stand in an unusual order inside: last dimension, and mixed with features."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x)).T.reshape(2, 4, -1)  # [2, 4, N]
        return self.head(h.permute(0, 2, 1)).sum(0)


class Cube(torch.autograd.Function):
    """A custom operation with a parameter: no rule can know it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g * w**3, (g * x * 3 * w**2).sum(0)


class Custom(nn.Module):
    """A custom module with a custom operation."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6) + 0.5)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(Cube.apply(x, self.scale)))


def images(n: int, channels: int, size: int) -> Tensor:
    """Pictures in [0, 1]."""
    return torch.rand(n, channels, size, size)


def tokens(n: int, length: int, vocabulary: int = 20) -> Tensor:
    """Token indices with many repeats."""
    return torch.randint(0, vocabulary, (n, length))


def mlp() -> Subject:
    """Linear layers with and without bias, in-place activation."""
    return nn.Sequential(
        nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 5)
    ), torch.randn(4, 6)


def convnext() -> Subject:
    """Depthwise 7×7, layer norm over channels, layer scale as a raw parameter."""
    return ConvNeXt([CNBlockConfig(8, 16, 1), CNBlockConfig(16, None, 1)], num_classes=4, layer_scale=0.5), images(
        3, 3, 32
    )


class NarrowResNet(ResNet):
    """A ResNet with an eighth of the channels."""

    def __init__(self, block: type[BasicBlock] | type[Bottleneck], layers: list[int]) -> None:
        super().__init__(block, layers)
        self.fc = nn.Linear(self.inplanes, 3)

    def _make_layer(self, block: Any, planes: int, *more: Any, **named: Any) -> nn.Sequential:
        return super()._make_layer(block, planes // 8, *more, **named)


def mobilenet_v3() -> Subject:
    """The first blocks of the small MobileNetV3, narrow: depthwise, squeeze and excitation, hard swish."""
    blocks = [
        InvertedResidualConfig(*block, width_mult=0.25)
        for block in [
            (16, 3, 16, 16, True, "RE", 2, 1),
            (16, 3, 72, 24, False, "RE", 2, 1),
            (24, 5, 96, 40, True, "HS", 2, 1),
            (40, 5, 240, 40, True, "HS", 1, 1),
        ]
    ]
    return MobileNetV3(blocks, 32, num_classes=3), images(2, 3, 32)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "mlp": mlp,
    "cnn": lambda: (zoo.small_cnn(1, 12, 5), images(3, 1, 12)),
    "resnet18": lambda: (NarrowResNet(BasicBlock, [2, 2, 2, 2]), images(2, 3, 32)),
    "bottleneck": lambda: (NarrowResNet(Bottleneck, [1, 1, 1, 1]), images(2, 3, 32)),
    "vit": lambda: (zoo.small_vit(size=8, patch=4, width=12, depth=2, heads=2, classes=4), images(3, 3, 8)),
    "convnext": convnext,
    "mobilenet_v3": mobilenet_v3,
    "maxvit": lambda: (
        torchvision.models.MaxVit(
            (16, 16), 4, 2, [4, 4], [1, 1], 2, 0.0, expansion_ratio=2, mlp_ratio=2, num_classes=3
        ),
        images(2, 3, 16),
    ),
    "swin_v2": lambda: (
        torchvision.models.SwinTransformer(
            [2, 2],
            8,
            [2, 1],
            [2, 2],
            [4, 4],
            num_classes=3,
            block=SwinTransformerBlockV2,
            downsample_layer=PatchMergingV2,
        ),
        images(2, 3, 16),
    ),
    "swin": lambda: (
        torchvision.models.SwinTransformer([2, 2], 8, [1, 1], [2, 2], [4, 4], num_classes=4),
        images(3, 3, 32),
    ),
    "gru": lambda: (GRUText(), tokens(4, 6)),
    "lstm": lambda: (LSTMText(), torch.randn(4, 5, 6)),
    "encoder": lambda: (EncoderText(), tokens(4, 7)),
    "tied": lambda: (Tied(), torch.randn(4, 6)),
    "tied_embedding": lambda: (TiedEmbedding(), tokens(4, 5, 9)),
    "twice": lambda: (Twice(), images(4, 1, 6)),
    "raw": lambda: (Raw(), torch.randn(4, 6)),
    "routed": lambda: (Routed(), torch.randn(7, 6)),
    "coupled": lambda: (Coupled(), torch.randn(4, 6)),
    "custom": lambda: (Custom(), torch.randn(4, 6)),
}


def make(name: str, gap: float | None = None) -> Subject:
    """The model in float64 and eval mode, with batch norms that have seen data; ``gap`` sets the largest distance of
    two logits.
    """
    torch.manual_seed(1)
    model, x = SUBJECTS[name]()
    model = model.double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    x = x.double() if x.is_floating_point() else x
    last = [m for m in model.modules() if isinstance(m, nn.Linear)]
    with torch.no_grad():
        if last and not last[-1].weight.any():
            last[-1].weight.normal_()
        if last and gap:
            z = model(x)
            last[-1].weight *= gap / (z.amax(1) - z.amin(1)).max()
            if last[-1].bias is not None:
                last[-1].bias *= gap / (z.amax(1) - z.amin(1)).max()
    return model, x
