"""One epoch after another: steps down the loss, a look at the validation data, and the best weights so far.

    θ ← step(θ, ∇ (1/B) Σ_b loss(f(x_b; θ), y_b)),   by default the cross-entropy

Sums stay on the device: it is waited for once in an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import astuple, dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from nescio.inputs import Inputs, describe
from nescio.models.outputs import pick
from nescio.training import seeding
from nescio.training.feed import Feed
from nescio.training.optimizer import Optimizer
from nescio.training.recipe import Recipe
from nescio.types import ModelError


@dataclass(frozen=True)
class Epoch:
    """Hold what was measured in an epoch.

    Attributes:
        number: The number of the epoch, from 1.
        loss: The mean loss on the training data.
        validation_loss: The mean loss on the validation data; None without such data.
        validation_accuracy: The accuracy on the validation data; None without such data.
        accuracy: The accuracy on the training batches as the model saw them: augmented, and before each step.

    Examples:
        >>> data, recipe = (torch.ones(4, 1), torch.ones(4).long()), nescio.training.Recipe(epochs=2)
        >>> history = nescio.training.train(torch.nn.Linear(1, 2), data, recipe=recipe)
        >>> history[0].number, history[0].validation_loss
        (1, None)
    """

    number: int
    loss: float
    validation_loss: float | None = None
    validation_accuracy: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class Step:
    """Hold where a run stands, for a loss that needs to know.

    Attributes:
        epoch: The number of the epoch, from 1.
        progress: The share of all steps that is done, in [0, 1].
        model: The model that is trained.
        count: The number of training inputs N.
        training: False on validation data, where a loss leaves out what does not depend on the data.

    Examples:
        >>> def loss(output, y, step):  # labels are smoothed less and less
        ...     return torch.nn.functional.cross_entropy(output, y, label_smoothing=0.1 * (1 - step.progress))
        >>> step = nescio.training.Step(epoch=1, progress=0.0, model=torch.nn.Linear(1, 2), count=4, training=True)
        >>> loss(torch.zeros(4, 2), torch.zeros(4).long(), step)
        tensor(0.6931)
    """

    epoch: int
    progress: float
    model: nn.Module
    count: int
    training: bool


Loss: TypeAlias = Callable[[Tensor, Tensor, Step], Tensor]


class Run:
    """A run between two epochs."""

    def __init__(
        self,
        model: nn.Module,
        source: Feed,
        held_out: Feed | None,
        recipe: Recipe,
        loss: Loss | None,
        device: torch.device,
        own: list[torch.Generator],
    ) -> None:
        self.model, self.source, self.held_out, self.recipe, self.device = model, source, held_out, recipe, device
        self.own, self.given = own, loss
        self.channels_last = _wants_channels_last(model, recipe, device)
        self.began = deepcopy(model.state_dict())
        if self.channels_last:
            model.to(memory_format=torch.channels_last)
        self.optimizer = Optimizer([weight for weight in model.parameters() if weight.requires_grad], recipe)
        self.history: list[Epoch] = []
        self.best: tuple[int, tuple[float, float], dict[str, Any]] | None = None

    def epoch(self, number: int, moved: Callable[[int], object]) -> Epoch:
        """Go once over the training data and once over the validation data."""
        recipe, source = self.recipe, self.source
        self.model.train()
        total, right = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        done = (number - 1) * source.steps
        for x, y in source.batches(True):
            at = Step(number, done / (recipe.epochs * source.steps), self.model, source.count, True)
            with self._autocast():
                z = outputs(self.model, x, recipe.transform, recipe.augment)
            value = self._loss(z, y, at)
            self.optimizer.step(value, recipe.rate(done, source.steps))
            with torch.no_grad():
                total += value.detach() * len(y)
                right += (z.argmax(dim=1) == y).sum()
            done += 1
            moved(1)
        sums = [total, right] if self.held_out is None else [total, right, *self._validated(number, self.held_out)]
        values = torch.stack(sums).tolist()
        epoch = Epoch(number, values[0] / source.count, accuracy=values[1] / source.count)
        if self.held_out is not None:
            measured = [value / self.held_out.count for value in values[2:]]
            epoch = Epoch(number, epoch.loss, measured[0], measured[1], epoch.accuracy)
        self._check_finite(epoch)
        self.history.append(epoch)
        self._compare(epoch)
        return epoch

    @torch.no_grad()
    def _validated(self, number: int, held_out: Feed) -> tuple[Tensor, Tensor]:
        """The summed loss and the number of right answers in eval mode."""
        self.model.eval()
        total, right = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        at = Step(number, number / self.recipe.epochs, self.model, self.source.count, False)
        for x, y in held_out.batches(False):
            with self._autocast():
                z = outputs(self.model, x, self.recipe.transform)
            total += self._loss(z, y, at) * len(y)
            right += (z.argmax(dim=1) == y).sum()
        return total, right

    def _loss(self, z: Tensor, y: Tensor, at: Step) -> Tensor:
        z = z.float() if z.dtype in (torch.bfloat16, torch.float16) else z
        if self.given is not None:
            value = self.given(z, y, at)
            if not isinstance(value, Tensor) or value.ndim:
                raise ModelError(f"expected the loss to be the mean over the batch, one number, got {describe(value)}")
            return value
        return nn.functional.cross_entropy(z, y, label_smoothing=self.recipe.label_smoothing if at.training else 0.0)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.precision is not None)

    def _check_finite(self, epoch: Epoch) -> None:
        if math.isfinite(epoch.loss) and (epoch.validation_loss is None or not math.isnan(epoch.validation_loss)):
            return
        self.model.load_state_dict(self.began if self.best is None else self.best[2])
        raise ModelError(
            f"expected a finite loss, got {epoch.loss} in training and {epoch.validation_loss} on validation in epoch "
            f"{epoch.number}: the weights have run away, and were put back to the best epoch so far, or "
            "to where they began; "
            f"lower the learning rate (lr={self.recipe.lr:g} now), clip the gradient (clip=1.0) or scale the inputs"
        )

    def _compare(self, epoch: Epoch) -> None:
        if epoch.validation_loss is None or epoch.validation_accuracy is None:
            return
        merit = (epoch.validation_accuracy, -epoch.validation_loss)
        if self.recipe.choose == "loss":
            merit = (merit[1], merit[0])
        if self.best is None or merit > self.best[1]:
            self.best = (epoch.number, merit, deepcopy(self.model.state_dict()))

    @property
    def over(self) -> bool:
        """Whether no epoch comes any more: all are done, or the best one lies too far back."""
        patience, best = self.recipe.patience, self.best
        tired = patience is not None and best is not None and len(self.history) - best[0] >= patience
        return len(self.history) >= self.recipe.epochs or tired

    def state(self) -> dict[str, Any]:
        """All that is needed to go on."""
        kept = None
        if self.best is not None:
            number, merit, weights = self.best  # when this epoch is the best, its weights need not be written twice
            kept = [number, list(merit), None if number == len(self.history) else weights]
        return {
            "history": [list(astuple(epoch)) for epoch in self.history],
            "model": self.model.state_dict(),
            "best": kept,
            "optimizer": None if self.over else self.optimizer.state,
            "random": seeding.states(self.device),
            "own": [generator.get_state() for generator in self.own],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from a saved `state`; the random generators but the loader's own are left to the caller."""
        self.history = [Epoch(*values) for values in saved["history"]]
        self.model.load_state_dict(saved["model"])
        if saved["best"] is not None:
            number, merit, weights = saved["best"]
            self.best = (number, tuple(merit), deepcopy(self.model.state_dict()) if weights is None else weights)
        if saved["optimizer"] is not None:
            self.optimizer.restore(saved["optimizer"])
        for generator, state in zip(self.own, saved["own"], strict=True):
            generator.set_state(state)

    def finish(self) -> None:
        """Leave the model in eval mode with its best weights, in the order of memory that it came in."""
        if self.best is not None:
            self.model.load_state_dict(self.best[2])
        if self.channels_last:
            self.model.to(memory_format=torch.contiguous_format)
        self.optimizer.clear()
        self.model.eval()


def outputs(
    model: nn.Module,
    x: Inputs,
    transform: Callable[[Any], Any] | None,
    augment: Callable[[Any], Any] | None = None,
) -> Tensor:
    """What the model returns for the batch, as one tensor."""
    transformed: Any = x if transform is None else transform(x)
    transformed = transformed if augment is None else augment(transformed)
    return pick(model(**transformed) if isinstance(transformed, Mapping) else model(transformed))


def _wants_channels_last(model: nn.Module, recipe: Recipe, device: torch.device) -> bool:
    if recipe.channels_last == "auto":
        return device.type == "cuda" and any(isinstance(part, nn.Conv2d) for part in model.modules())
    return recipe.channels_last
