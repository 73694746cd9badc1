"""A small trainer: SGD with momentum on the cross-entropy, keeping the weights of the best validation epoch.

For a given seed, device and thread count two runs give the same weights; torch's global generators are left as
they were found. The settings are the REGrad paper's for its small CNN (supplement B.1).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nescio.types import InputError
from nescio.zoo.seeding import seeded


@dataclass(frozen=True)
class Epoch:
    """What an epoch came to: its number from 1, the mean training loss, and the validation loss and accuracy."""

    number: int
    loss: float
    validation_loss: float
    validation_accuracy: float


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
    """Fit `model` in place and leave it in eval mode with its best weights; returns what each epoch came to.

    The best epoch has the highest validation accuracy, and of those the lowest validation loss. `on_epoch` is
    called after each epoch, for a progress bar. The data are moved to the model's device.
    """
    if epochs < 1:
        raise InputError(f"epochs: expected at least 1, but got {epochs}")
    for name, (pictures, labels) in {"training": (x, y), "validation": validation}.items():
        if len(pictures) != len(labels) or not len(pictures):
            raise InputError(
                f"expected as many {name} labels as inputs, and at least one, "
                f"but got {len(pictures)} inputs and {len(labels)} labels"
            )
    device = next(model.parameters()).device
    x, y, val_x, val_y = (part.to(device) for part in (x, y, *validation))
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    sgd = _SGD(weights, lr, momentum, weight_decay)
    history: list[Epoch] = []
    best: tuple[tuple[float, float], dict[str, Tensor]] | None = None
    with seeded(seed, device):
        for number in range(1, epochs + 1):
            loss = _epoch(model, x, y, batch_size, sgd)
            val_loss, val_accuracy = _measure(model, val_x, val_y, batch_size)
            history.append(Epoch(number, loss, val_loss, val_accuracy))
            merit = (val_accuracy, -val_loss)
            if best is None or merit > best[0]:
                best = (merit, deepcopy(model.state_dict()))
            if on_epoch is not None:
                on_epoch(history[-1])
    assert best is not None  # the first epoch sets it, NaN or not
    model.load_state_dict(best[1])
    model.eval()
    return history


def accuracy(model: nn.Module, x: Tensor, y: Tensor, batch_size: int = 512) -> float:
    """The share of inputs whose most probable class is the label; the model's modes are left as they were."""
    modes = {module: module.training for module in model.modules()}
    device = next(model.parameters()).device
    try:
        return _measure(model, x.to(device), y.to(device), batch_size)[1]
    finally:
        for module, training in modes.items():
            module.training = training


class _SGD:
    """v ← μ v + ∇ + ω θ,  θ ← θ − η v: what torch.optim.SGD does, without the seconds that importing it takes."""

    def __init__(self, weights: list[nn.Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        self.weights, self.lr, self.momentum, self.weight_decay = weights, lr, momentum, weight_decay
        self.velocities = [torch.zeros_like(weight) for weight in weights]

    @torch.no_grad()
    def step(self, loss: Tensor) -> None:
        """One step down the gradient of the loss; nothing is left in `.grad`."""
        gradients = torch.autograd.grad(loss, self.weights)
        for weight, velocity, gradient in zip(self.weights, self.velocities, gradients, strict=True):
            velocity.mul_(self.momentum).add_(gradient).add_(weight, alpha=self.weight_decay)
            weight.sub_(velocity, alpha=self.lr)


def _epoch(model: nn.Module, x: Tensor, y: Tensor, batch_size: int, sgd: _SGD) -> float:
    model.train()
    total = 0.0
    for chosen in torch.randperm(len(x)).split(batch_size):
        chosen = chosen.to(x.device)
        loss = nn.functional.cross_entropy(model(x[chosen]), y[chosen])
        sgd.step(loss)
        total += loss.item() * len(chosen)
    return total / len(x)


@torch.no_grad()
def _measure(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> tuple[float, float]:
    """Mean cross-entropy and accuracy in eval mode."""
    model.eval()
    loss = correct = 0.0
    for inputs, labels in zip(x.split(batch_size), y.split(batch_size), strict=True):
        logits = model(inputs)
        loss += nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        correct += (logits.argmax(dim=1) == labels).sum().item()
    return loss / len(x), correct / len(x)
