"""A small network and a short way to train it: what the demo, the bundled digits and the documentation's examples use.

`small_cnn` is the network of the REGrad paper (supplement B.1), for square pictures of any size that its kernels fit:

Conv(32) – ReLU – Conv(32) – ReLU – MaxPool(2) – Dense(128) – ReLU – Dense(C)

and, with `hidden=2`, one more Dense(128) – ReLU before the last layer: the paper's network for SVHN. (The paper prints
that one as Dense-ReLU-Dense-Dense-ReLU-Softmax; a ReLU on the logits is taken for a slip.)

The papers' other networks and the plans by which they are trained are in `nescio_papers.zoo`. Where that package is
installed, this module has its names too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from nescio import training
from nescio.plugins import lent_names
from nescio.training import Epoch, accuracy
from nescio.training.seeding import seeded
from nescio.types import InputError

__all__ = ["small_cnn", "Normalised", "train", "accuracy", "Epoch"]

PAPERS_NETWORKS = ("resnet18", "resnet18_cifar", "resnet152_cifar", "small_vit")
PAPERS = (*PAPERS_NETWORKS, "ResNet", "ResNet18", "SmallViT", "RECIPES", "TrainingPlan", "Trained", "trained")
"""Names that `nescio_papers` adds to this module."""

__getattr__ = lent_names(__name__, PAPERS)


def small_cnn(
    channels: int = 1,
    size: int = 28,
    classes: int = 10,
    kernel: int = 4,
    filters: int = 32,
    units: int = 128,
    seed: int | None = None,
    hidden: int = 1,
) -> nn.Sequential:
    """Build the small CNN with random weights; it takes pictures [N, channels, size, size] and returns logits.

    Convolutions have stride 1 and no padding. The paper's MNIST network is `small_cnn(1, 28, 10)`; for 8×8 pictures
    3×3 kernels leave 2×2 positions to the dense layers.

    Args:
        channels: Channels of a picture.
        size: Pixels of a side.
        classes: Number of classes.
        kernel: Side of both convolutions' kernels.
        filters: Channels of both convolutions' outputs.
        units: Width of a dense layer.
        seed: Seed of the weights; None draws them from torch's global generator.
        hidden: Number of dense layers before the last one.

    Returns:
        The network, in training mode.

    Raises:
        InputError: if the pictures are too small for the kernels.

    >>> small_cnn(1, 8, 10, kernel=3, seed=0)(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    side = (size - 2 * (kernel - 1)) // 2
    if side < 1:
        raise InputError(
            f"expected pictures of at least {2 * kernel} × {2 * kernel} pixels for two {kernel} × {kernel} "
            f"convolutions and a pooling, but got size={size}; use a smaller kernel"
        )
    with seeded(seed):
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(channels, filters, kernel),
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(filters, filters, kernel),
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
        )
        width = filters * side * side
        for place in range(1, hidden + 1):
            layers[f"dense{place}"] = nn.Linear(width, units)
            layers[f"relu{place + 2}"] = nn.ReLU()
            width = units
        layers[f"dense{hidden + 1}"] = nn.Linear(width, classes)
        return nn.Sequential(layers)


class Normalised(nn.Module):
    """A network with its normalisation in front, so that it takes pictures with values in [0, 1].

    Args:
        network: What takes normalised pictures.
        mean: Of each channel; it is subtracted.
        std: Of each channel; the rest is divided by it.

    >>> network = Normalised(nn.Flatten(), mean=(0.5,), std=(0.25,))
    >>> network(torch.ones(1, 1, 1, 2))
    tensor([[2., 2.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of pictures [N, channels, H, W] with values in [0, 1]."""
        result: Tensor = self.network((x - self.mean) / self.std)
        return result


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    validation: tuple[Tensor, Tensor],
    *,
    epochs: int = 30,
    batch_size: int = 128,
    lr: float = 1e-2,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    seed: int = 0,
    on_epoch: Callable[[Epoch], object] | None = None,
) -> list[Epoch]:
    """Fit a small network in place by SGD with momentum, and leave it in eval mode with the weights of its best epoch.

    The settings are the REGrad paper's for its small CNN (supplement B.1); the learning rate is constant. The best
    epoch has the highest validation accuracy and, of several, the lowest validation loss.

    Args:
        model: The network; the data are moved to its device.
        x: Training inputs [N, ...].
        y: Labels [N].
        validation: Inputs and labels that choose between epochs.
        epochs: Number of epochs.
        batch_size: Inputs of a step.
        lr: Learning rate.
        momentum: Momentum of SGD.
        weight_decay: L2 penalty of SGD.
        seed: Seed of the order of inputs.
        on_epoch: Called after each epoch, for a progress bar.

    Returns:
        Losses and accuracies of each epoch.

    >>> x, y = torch.eye(2).repeat(8, 1), torch.tensor([0, 1]).repeat(8)
    >>> epochs = train(nn.Linear(2, 2), x, y, (x, y), epochs=2, batch_size=4)
    >>> len(epochs)
    2
    """
    recipe = training.Recipe(
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        optimizer="sgd",
        momentum=momentum,
        weight_decay=weight_decay,
        schedule="constant",
    )
    return training.train(model, (x, y), validation, recipe=recipe, seed=seed, progress=False, on_epoch=on_epoch)
