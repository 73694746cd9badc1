"""A small recipe for small networks: SGD with momentum on the cross-entropy, by `nescio.training`.

The settings are the REGrad paper's for its small CNN (supplement B.1); the rate is constant.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from nescio import training
from nescio.training import Epoch, accuracy

__all__ = ["train", "accuracy", "Epoch"]


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
