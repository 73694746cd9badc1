"""What a training run is set to, and the learning rate of each of its steps.

With t the number of steps done, T the steps of all epochs, w those of the warm-up and u = (t − w)/(T − w):

    warm-up     η (t + 1)/w for t < w
    constant    η
    cosine      η (1 + cos πu)/2
    steps       η · factor^k,  k the number of milestones (in epochs) that have passed
    one-cycle   from η/25 up to η, then down to η/250 000, both along half a cosine; the way up takes `warmup` epochs,
                or 30 % of the run when that is 0
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nescio._common.argument_checks import choice, integer, number
from nescio.inputs import describe
from nescio.types import InputError

Optimizers = Literal["sgd", "adam", "adamw"]
Schedules = Literal["constant", "cosine", "one-cycle", "steps"]
Choice = Literal["accuracy", "loss"]


@dataclass(frozen=True)
class Recipe:
    """Hold the settings of a training run.

    Args:
        epochs: How many passes over the training data.
        batch_size: For data given as tensors; a loader has its own.
        lr: The largest learning rate.
        optimizer: "sgd", "adam" or "adamw".
        momentum: The momentum of "sgd".
        nesterov: Whether "sgd" takes Nesterov's form of the momentum.
        weight_decay: The weight decay.
        schedule: "constant", "cosine", "one-cycle" or "steps"; the formulas stand at the top of this file.
        warmup: How many epochs the learning rate rises at first.
        milestones: The epochs after which the learning rate falls; for "steps" alone.
        factor: What the learning rate is multiplied by at each milestone.
        label_smoothing: How much the cross-entropy smooths the labels in training.
        patience: The run ends after this many epochs in a row without a new best one; None: never.
        clip: The largest norm of the gradient; None for any.
        precision: "bfloat16" computes in that type where autocast takes it for safe.
        channels_last: Whether the channels of pictures come last in memory; "auto": for convolutions on a GPU.
        transform: From a batch of inputs, on the device, to what the model takes, such as uint8 pictures to floats.
        augment: A change of transformed batches, in training alone.
        choose: What makes an epoch the best: "accuracy" or "loss", on the validation data.

    Raises:
        InputError: If a setting is out of its range, or does not go with another.

    Examples:
        >>> recipe = nescio.training.Recipe(epochs=10, lr=0.1, schedule="steps", milestones=(5,))
        >>> recipe.rate(0, steps=1), round(recipe.rate(5, steps=1), 3)
        (0.1, 0.01)
    """

    epochs: int = 30
    batch_size: int = 128
    lr: float = 1e-3
    optimizer: Optimizers = "adamw"
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 1e-2
    schedule: Schedules = "cosine"
    warmup: float = 0.0
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    label_smoothing: float = 0.0
    patience: int | None = None
    clip: float | None = None
    precision: Literal["bfloat16"] | None = None
    channels_last: bool | Literal["auto"] = "auto"
    transform: Callable[[Any], Any] | None = None
    augment: Callable[[Any], Any] | None = None
    choose: Choice = "accuracy"

    def __post_init__(self) -> None:
        integer("epochs", self.epochs, at_least=1)
        integer("batch_size", self.batch_size, at_least=1)
        if self.patience is not None:
            integer("patience", self.patience, at_least=1)
        if self.clip is not None:
            number("clip", self.clip, above=0)
        number("lr", self.lr, above=0)
        number("factor", self.factor, above=0)
        number("weight_decay", self.weight_decay, at_least=0)
        number("warmup", self.warmup, at_least=0, below=self.epochs)
        number("momentum", self.momentum, at_least=0, below=1)
        number("label_smoothing", self.label_smoothing, at_least=0, below=1)
        choice("optimizer", self.optimizer, get_args(Optimizers))
        choice("schedule", self.schedule, get_args(Schedules))
        choice("precision", self.precision, (None, "bfloat16"))
        choice("channels_last", self.channels_last, (True, False, "auto"))
        choice("choose", self.choose, get_args(Choice))
        for name in ("transform", "augment"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise InputError(f"{name}: expected a function of a batch, but got {describe(getattr(self, name))}")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov: expected a momentum above 0 with it, but got momentum=0")
        object.__setattr__(self, "milestones", tuple(self.milestones))
        if (self.schedule == "steps") != bool(self.milestones) or any(m < 1 for m in self.milestones):
            raise InputError(
                "milestones: expected the epochs after which the rate falls, with schedule='steps' and only there, "
                f"but got milestones={self.milestones} with schedule={self.schedule!r}"
            )

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step.

        Args:
            step: Which step, counted from 0.
            steps: How many steps an epoch has.

        Returns:
            The rate.
        """
        last = self.epochs * steps
        if self.schedule == "one-cycle":
            return self.lr * _one_cycle(step, last, self.warmup / self.epochs or 0.3)
        rising = round(self.warmup * steps)
        if step < rising:
            return self.lr * (step + 1) / rising
        if self.schedule == "cosine":
            return self.lr * (1 + math.cos(math.pi * (step - rising) / (last - rising))) / 2
        return self.lr * self.factor ** sum(step // steps >= milestone for milestone in self.milestones)


def _one_cycle(step: int, last: int, share: float) -> float:
    """The factor of Smith's one-cycle policy, as `torch.optim.lr_scheduler.OneCycleLR` has it."""
    top = share * last - 1
    if step <= top:
        return _between(1 / 25, 1.0, step / top if top else 1.0)
    return _between(1.0, 1 / 25e4, min(1.0, (step - top) / max(last - 1 - top, 1e-12)))


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
